//! The recorder's promises when its sink blocks, fails, tears, moves or panics. No test here looks
//! at a clock: time-outs only bound how long a broken promise hangs.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod sinks;

use std::collections::BTreeSet;
use std::io::{self, BufReader, ErrorKind, Read};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use inferwatch_record::{DroppedLine, Line, Options, Recorder, RequestLine, read_lines};
use sinks::{Scripted, Step};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

fn request(route: &str) -> Line {
    let mut line = RequestLine::default();
    line.route = route.into();
    Line::Request(Box::new(line))
}

fn read(text: &[u8]) -> Vec<Line> {
    read_lines(text).map(|line| line.unwrap()).collect()
}

fn dropped(lines: &[Line]) -> Vec<&DroppedLine> {
    let mut dropped = Vec::new();
    for line in lines {
        if let Line::Dropped(line) = line {
            dropped.push(&**line);
        }
    }
    dropped
}

/// In short: `request /a`, `dropped 2`, `bad`.
fn shapes(text: &str) -> Vec<String> {
    let shape = |line| match line {
        Ok(Line::Request(line)) => format!("request {}", line.route),
        Ok(Line::Dropped(line)) => format!("dropped {}", line.dropped_count),
        Ok(other) => format!("{other:?}"),
        Err(_) => "bad".into(),
    };
    read_lines(text.as_bytes()).map(shape).collect()
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Two minutes of a stopped reader are the same as this: more lines than all buffers hold.
#[test]
fn a_reader_that_stands_still_costs_lines_and_nothing_else() {
    const QUEUE: usize = 512;
    const SENT: usize = 50 * QUEUE;
    let (mut reader, writer) = io::pipe().unwrap();
    let recorder = Options::default().queue_lines(QUEUE).to_writer(writer).unwrap();
    for _ in 0..SENT {
        recorder.send(request("/v1/chat/completions"));
    }
    assert!(recorder.dropped_count() > 0);
    assert!(!recorder.flush(SHORT), "nobody has read a byte");

    let text = thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).map(|_| text)
    });
    assert!(recorder.close(LONG));
    let lost_count = recorder.dropped_count();
    drop(recorder);
    let lines = read(&text.join().unwrap().unwrap());
    let reported: u64 = dropped(&lines).iter().map(|line| line.dropped_count).sum();
    let requests = lines.iter().filter(|line| matches!(line, Line::Request(_))).count();
    assert_eq!(reported, lost_count);
    assert_eq!(requests + lost_count as usize, SENT);

    let numbers: BTreeSet<u64> = lines.iter().filter_map(Line::seq).collect();
    let holes = numbers.last().unwrap() - numbers.len() as u64;
    assert!(holes <= lost_count, "{holes} holes, {lost_count} lines lost");
    assert_eq!(numbers.len(), lines.len(), "a number stands twice");
}

#[test]
fn closing_does_not_wait_for_a_sink_that_stands_still() {
    let (_reader, writer) = io::pipe().unwrap();
    let recorder = Recorder::to_writer(writer).unwrap();
    (0..5000).for_each(|_| recorder.send(request("/generate")));
    assert!(!recorder.close(SHORT));
}

#[test]
fn every_line_gets_out_under_senders_at_once() {
    let sink = Scripted::default();
    let recorder = Options::default().queue_lines(64).to_writer(sink.clone()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5000).for_each(|_| recorder.send(request("/generate"))));
        }
    });
    assert!(recorder.close(LONG));
    let lines = read(sink.text().as_bytes());
    let reported: u64 = dropped(&lines).iter().map(|line| line.dropped_count).sum();
    let written = lines.len() - dropped(&lines).len();
    assert_eq!(reported, recorder.dropped_count());
    assert_eq!(written as u64 + reported, 20_000);
}

#[test]
fn a_write_holds_whole_lines_and_at_most_64_kib() {
    let sink = Scripted::default();
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    (0..4000).for_each(|_| recorder.send(request(&"\0".repeat(5000))));
    assert!(recorder.close(LONG));
    let writes = sink.writes();
    assert!(writes.len() > 1);
    for write in writes {
        assert!(write.ends_with(b"\n") && write.len() <= 64 * 1024, "{} bytes", write.len());
    }
}

/// Each case: what the sink does, and what stands in it after `/a`, a flush, `/b` and a flush.
#[test]
fn a_sink_that_fails_costs_only_what_it_tore() {
    use ErrorKind::{BrokenPipe, Interrupted, StorageFull, WouldBlock};
    use Step::{Fail, Take};
    for (steps, expected) in [
        (&[][..], &["request /a", "request /b"][..]),
        (&[Take(1), Take(2), Take(3)], &["request /a", "request /b"]),
        (&[Fail(Interrupted), Take(9), Fail(Interrupted)], &["request /a", "request /b"]),
        (&[Take(9), Fail(WouldBlock), Fail(WouldBlock)], &["request /a", "request /b"]),
        (&[Fail(BrokenPipe)], &["dropped 1", "request /b"]),
        (&[Take(0)], &["dropped 1", "request /b"]),
        (&[Take(10), Fail(StorageFull)], &["bad", "dropped 1", "request /b"]),
        (
            &[Take(10), Fail(StorageFull), Take(1), Fail(StorageFull)],
            &["bad", "dropped 1", "request /b"],
        ),
        (
            &[Take(10), Fail(StorageFull), Take(1), Take(9), Fail(StorageFull)],
            &["bad", "bad", "dropped 1", "request /b"],
        ),
    ] {
        let sink = Scripted::new(steps);
        let recorder = Recorder::to_writer(sink.clone()).unwrap();
        recorder.send(request("/a"));
        recorder.flush(LONG);
        recorder.send(request("/b"));
        while !recorder.flush(LONG) {}
        assert_eq!(shapes(&sink.text()), expected, "{steps:?}");
    }
}

#[test]
fn whole_lines_before_the_torn_one_are_not_lost() {
    let sink = Scripted::new(&[Step::Take(400), Step::Fail(ErrorKind::StorageFull)]);
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    ["/a", "/b", "/c"].into_iter().for_each(|route| recorder.send(request(route)));
    while !recorder.flush(LONG) {}
    let good: Vec<Line> = read_lines(sink.text().as_bytes()).filter_map(Result::ok).collect();
    let requests = good.iter().filter(|line| matches!(line, Line::Request(_))).count() as u64;
    assert!(requests >= 1);
    assert_eq!(requests + recorder.dropped_count(), 3, "{good:?}");
}

#[test]
fn the_dropped_line_says_why() {
    let sink = Scripted::new(&[Step::Fail(ErrorKind::StorageFull)]);
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    recorder.send(request("/a"));
    assert!(!recorder.flush(LONG));
    assert!(recorder.flush(LONG));
    let lines = read(sink.text().as_bytes());
    let [line] = dropped(&lines)[..] else { panic!("{lines:?}") };
    assert_eq!((line.dropped_count, line.write_failed_count, line.queue_full_count), (1, 1, 0));
    assert!(line.error.as_deref().unwrap().contains("storage"), "{line:?}");
}

#[test]
fn a_full_disk_and_a_closed_pipe_leave_callers_alone() {
    let (reader, closed) = io::pipe().unwrap();
    drop(reader);
    for recorder in [Recorder::to_file("/dev/full"), Recorder::to_writer(closed)] {
        let recorder = recorder.unwrap();
        (0..1000).for_each(|_| recorder.send(request("/generate")));
        assert!(!recorder.flush(LONG));
        recorder.send(request("/generate"));
        assert!(!recorder.close(LONG));
        assert_eq!(recorder.dropped_count(), 1001);
        recorder.send(request("/generate"));
        assert_eq!(recorder.dropped_count(), 1002);
    }
}

#[test]
fn a_sink_that_panics_ends_the_writer_only() {
    let recorder = Recorder::to_writer(Scripted::new(&[Step::Panic])).unwrap();
    recorder.send(request("/generate"));
    assert!(!recorder.flush(LONG));
    recorder.send(request("/generate"));
    assert!(!recorder.close(LONG));
    assert_eq!(recorder.dropped_count(), 2);
    assert_eq!(recorder.reopen(LONG).unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn a_file_is_reopened_by_its_path() {
    let folder = scratch("reopen");
    let path = folder.join("lines.jsonl");
    let recorder = Recorder::to_file(&path).unwrap();
    recorder.send(request("/old"));
    assert!(recorder.flush(LONG));
    std::fs::rename(&path, folder.join("lines.1")).unwrap();
    recorder.reopen(LONG).unwrap();
    recorder.send(request("/new"));
    assert!(recorder.close(LONG));
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(shapes(&text("lines.1")), ["request /old"]);
    assert_eq!(shapes(&text("lines.jsonl")), ["request /new"]);
}

#[test]
fn a_reopening_that_fails_keeps_the_old_file() {
    let (folder, moved) = (scratch("reopen-fails"), scratch("reopen-fails-moved"));
    let recorder = Recorder::to_file(folder.join("lines.jsonl")).unwrap();
    std::fs::rename(&folder, moved.join("inner")).unwrap();
    assert_eq!(recorder.reopen(LONG).unwrap_err().kind(), ErrorKind::NotFound);
    recorder.send(request("/kept"));
    assert!(recorder.close(LONG));
    let text = std::fs::read_to_string(moved.join("inner/lines.jsonl")).unwrap();
    assert_eq!(shapes(&text), ["request /kept"]);
}

#[test]
fn a_line_that_an_earlier_process_tore_is_ended_first() {
    let path = scratch("torn").join("lines.jsonl");
    std::fs::write(&path, "{\"ts\":\"2026-11-30T14").unwrap();
    let recorder = Recorder::to_file(&path).unwrap();
    recorder.send(request("/next"));
    assert!(recorder.close(LONG));
    assert_eq!(shapes(&std::fs::read_to_string(&path).unwrap()), ["bad", "request /next"]);
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_at_once() {
    assert!(Recorder::to_file("/proc/no/such/folder/lines.jsonl").is_err());
}

#[test]
fn the_last_handle_takes_its_lines_along() {
    let (reader, writer) = io::pipe().unwrap();
    let recorder = Recorder::to_writer(writer).unwrap();
    let span = recorder.span("/generate");
    drop(recorder);
    drop(span);
    assert_eq!(read_lines(BufReader::new(reader)).count(), 1);
}
