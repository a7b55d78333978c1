//! What a line costs: the caller's side hot, cold and with a stuck sink, and the writer's side,
//! beside the ways that were rejected. `cargo bench -p inferwatch-record`, or `-- --json`.

use std::fs;
use std::hint::black_box;
use std::io::{self, Write};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use inferwatch_record::{Line, Options, Outcome, Recorder, RequestLine, TokensSrc, format_line};

#[path = "overhead/peers.rs"]
mod peers;

/// Below half the queue, so that the writer is never woken early, as in real traffic.
const BURST_LINES: u64 = 4_000;
const ROUNDS: usize = 9;
const LONG: Duration = Duration::from_secs(30);

/// A burst of lines, and what it is called in the table.
type Work = (&'static str, Box<dyn FnMut()>);

/// One row of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
}

impl Row {
    fn quantile(&self, quantile: f64) -> f64 {
        let mut values = self.values.clone();
        values.sort_by(f64::total_cmp);
        values[((values.len() - 1) as f64 * quantile).round() as usize]
    }
}

fn main() -> io::Result<()> {
    let mut rows = hot()?;
    rows.extend(cold()?);
    rows.push(stuck()?);
    let out = &mut io::stdout();
    if std::env::args().any(|arg| arg == "--json") {
        return print_json(out, &rows);
    }
    writeln!(out, "load average {}", fs::read_to_string("/proc/loadavg")?.trim())?;
    writeln!(out, "{:<52}{:>9}{:>9}{:>9}{:>11}", "ns per line", "min", "median", "p99", "max")?;
    for row in &rows {
        let [min, median, p99, max] = [0.0, 0.5, 0.99, 1.0].map(|at| row.quantile(at));
        let name = format!("{} ({})", row.name, row.unit);
        writeln!(out, "{name:<52}{min:>9.0}{median:>9.0}{p99:>9.0}{max:>11.0}")?;
    }
    Ok(())
}

fn print_json(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    for row in rows {
        let [min, median, p99, max] = [0.0, 0.5, 0.99, 1.0].map(|at| row.quantile(at).round());
        let row = serde_json::json!({
            "name": row.name, "unit": row.unit, "samples_count": row.values.len(),
            "min_ns": min, "median_ns": median, "p99_ns": p99, "max_ns": max,
        });
        writeln!(out, "{row}")?;
    }
    Ok(())
}

/// CPU time of this thread. The kernel brings it up to date when the thread is switched out, so
/// that a difference is good to a few milliseconds, or exact right after a sleep.
fn thread_cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// CPU ns per call of `work`, which does one burst of lines; bursts run for a good while.
fn burst_ns(mut work: impl FnMut()) -> f64 {
    const BURSTS: u64 = 25;
    thread::sleep(Duration::from_millis(1));
    let before = thread_cpu_ns();
    (0..BURSTS).for_each(|_| work());
    thread::sleep(Duration::from_millis(1));
    (thread_cpu_ns() - before) as f64 / (BURSTS * BURST_LINES) as f64
}

/// A line as the proxy fills it: 25 fields known, five strings.
fn filled() -> Box<RequestLine> {
    let mut line = Box::<RequestLine>::default();
    line.ts_unix_ms = Some(1_796_047_331_123);
    line.id = Some("mx3u79hl.as9.2".into());
    line.route = "/v1/chat/completions".into();
    line.model = Some("SmolLM2-135M-Instruct".into());
    line.prompt_tokens = Some(21);
    line.completion_tokens = Some(96);
    line.generate_ms = Some(1_503.2);
    line.total_ms = 1_519.9;
    line.rss_mb = Some(412.3);
    line.inflight = Some(2);
    line.cache_hit = Some(false);
    line.status = Some(200);
    line.outcome = Some(Outcome::Ok);
    line.upstream = Some("127.0.0.1:8080".into());
    line.upstream_status = Some(200);
    line.stream = Some(true);
    line.finish = Some("stop".into());
    line.tokens_src = Some(TokensSrc::Timings);
    line.queue_ms = Some(3.1);
    line.headers_ms = Some(4.0);
    line.prefill_ms = Some(88.4);
    line.ttft_ms = Some(91.5);
    line.decode_tokens_per_s = Some(66.5);
    line.bytes_in = Some(310);
    line.bytes_out = Some(18_211);
    line
}

/// All in turn in each round, so that a noisy neighbour meets them alike.
fn hot() -> io::Result<Vec<Row>> {
    let recorder = Recorder::to_file("/dev/null")?;
    let mut work: Vec<Work> = vec![
        ("caller: fill the struct only", Box::new(|| burst(|| drop(black_box(filled()))))),
        ("caller: fill the struct and send", Box::new(send_burst(recorder.clone()))),
        ("caller: span begin, end", Box::new(span_burst(recorder.clone()))),
        ("rejected: fill and std sync_channel try_send", Box::new(channel_burst())),
        ("rejected: fill and serde_json to Vec", Box::new(|| burst(peers::serde_json_line))),
        (
            "rejected: tracing-subscriber JSON to a sink",
            Box::new(peers::tracing_burst(BURST_LINES)),
        ),
        ("writer: format_line", Box::new(format_burst())),
    ];
    let mut rows: Vec<Row> =
        work.iter().map(|(name, _)| Row { name, unit: "CPU, hot", values: Vec::new() }).collect();
    for _ in 0..ROUNDS {
        for (row, (_, work)) in rows.iter_mut().zip(&mut work) {
            row.values.push(burst_ns(work));
        }
    }
    assert_eq!(recorder.dropped_count(), 0, "a dropped line is cheaper than a kept one");
    Ok(rows)
}

fn burst(mut line: impl FnMut()) {
    (0..BURST_LINES).for_each(|_| line());
}

fn send_burst(recorder: Recorder) -> impl FnMut() {
    move || {
        burst(|| recorder.send(Line::Request(filled())));
        recorder.flush(LONG);
    }
}

fn span_burst(recorder: Recorder) -> impl FnMut() {
    move || {
        burst(|| recorder.span("/v1/chat/completions").end(Outcome::Ok, 200));
        recorder.flush(LONG);
    }
}

/// Its receiver polls, as the recorder's writer does.
fn channel_burst() -> impl FnMut() {
    let (sender, receiver) = sync_channel::<Line>(8192);
    thread::spawn(move || {
        loop {
            match receiver.try_recv() {
                Ok(line) => drop(black_box(line)),
                Err(std::sync::mpsc::TryRecvError::Empty) => {
                    thread::sleep(Duration::from_millis(5));
                }
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
    });
    move || {
        burst(|| drop(black_box(sender.try_send(Line::Request(filled())))));
        thread::sleep(Duration::from_millis(20));
    }
}

fn format_burst() -> impl FnMut() {
    let line = Line::Request(filled());
    let mut bytes = Vec::with_capacity(1 << 20);
    move || {
        burst(|| {
            if bytes.len() > 60_000 {
                bytes.clear();
            }
            format_line(black_box(&line), &mut bytes);
        });
    }
}

/// One line every 2 ms, the caches emptied in between: what a request meets in real traffic.
fn cold() -> io::Result<Vec<Row>> {
    const LINES: usize = 1_500;
    let recorder = Recorder::to_file("/dev/null")?;
    let mut other_work = vec![1_u8; 24 << 20];
    let mut wall = Row { name: "caller: fill and send", unit: "wall, cold", values: Vec::new() };
    let mut cpu = Row { name: "caller: fill and send", unit: "CPU, cold", values: Vec::new() };
    let mut empty = Vec::new();
    for at in 0..LINES * 2 {
        other_work.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_mul(3));
        thread::sleep(Duration::from_millis(1));
        let before = thread_cpu_ns();
        let started = Instant::now();
        // Every second turn sends nothing: what remains is the cost of measuring.
        if at % 2 == 0 {
            recorder.send(Line::Request(filled()));
            wall.values.push(started.elapsed().as_nanos() as f64);
        }
        thread::sleep(Duration::from_millis(1));
        let took = (thread_cpu_ns() - before) as f64;
        if at % 2 == 0 { cpu.values.push(took) } else { empty.push(took) }
    }
    black_box(other_work);
    let measuring = Row { name: "", unit: "", values: empty }.quantile(0.5);
    cpu.values.iter_mut().for_each(|ns| *ns = (*ns - measuring).max(0.0));
    Ok(vec![wall, cpu])
}

/// A pipe that nobody reads: the queue is full, each line is dropped and counted.
fn stuck() -> io::Result<Row> {
    const LINES: usize = 900_000;
    let (_reader, writer) = io::pipe()?;
    let recorder = Options::default().to_writer(writer)?;
    let mut values = Vec::with_capacity(LINES);
    for _ in 0..LINES {
        let line = Line::Request(filled());
        let started = Instant::now();
        recorder.send(line);
        values.push(started.elapsed().as_nanos() as f64);
    }
    assert!(recorder.dropped_count() > LINES as u64 * 9 / 10);
    recorder.close(Duration::from_millis(1));
    Ok(Row { name: "caller: send, sink stuck", unit: "wall", values })
}
