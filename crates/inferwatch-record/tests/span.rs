//! A span ends exactly once, and says how.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[expect(dead_code, reason = "no sink fails here")]
mod sinks;

use std::time::{Duration, Instant};

use inferwatch_record::{
    Line, OpenLine, Options, Outcome, Recorder, RequestLine, Span, Stage, read_lines,
};
use proptest::prelude::*;
use sinks::Scripted;

const LONG: Duration = Duration::from_secs(30);

fn lines(sink: &Scripted) -> Vec<Line> {
    read_lines(sink.text().as_bytes()).map(|line| line.unwrap()).collect()
}

/// The one line that a span leaves behind.
fn line_of(work: impl FnOnce(Span)) -> RequestLine {
    let sink = Scripted::default();
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    work(recorder.span("/generate"));
    assert_eq!(recorder.inflight(), 0);
    assert!(recorder.close(LONG));
    match &lines(&sink)[..] {
        [Line::Request(line)] => (**line).clone(),
        other => panic!("not one request line: {other:?}"),
    }
}

fn panic_in(span: Span) {
    let _quiet = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _span = span;
        std::panic::resume_unwind(Box::new("as the test wants"));
    }));
}

#[test]
fn each_ending_has_its_outcome() {
    let check = |work: fn(Span), outcome, status, error: Option<&str>| {
        let line = line_of(work);
        let got = (line.outcome, line.status, line.error.as_deref());
        assert_eq!(got, (Some(outcome), status, error));
    };
    check(|span| span.end(Outcome::Ok, 200), Outcome::Ok, Some(200), None);
    check(|span| span.end(Outcome::Ok, None), Outcome::Ok, None, None);
    let set = |mut span: Span| {
        span.line_mut().status = Some(206);
        span.end(Outcome::Ok, None);
    };
    check(set, Outcome::Ok, Some(206), None);
    check(drop, Outcome::ClientClosedWaiting, Some(499), None);
    check(panic_in, Outcome::UpstreamError, Some(500), Some("panicked"));
    let answering: [fn(&mut Span); 3] = [
        |span| span.first_token(),
        |span| span.line_mut().headers_ms = Some(1.0),
        |span| span.line_mut().status = Some(200),
    ];
    for begin in answering {
        let mut begun = None;
        let line = line_of(|mut span| {
            begin(&mut span);
            begun = Some(());
        });
        assert_eq!((line.outcome, line.status), (Some(Outcome::ClientClosed), Some(499)));
    }
}

#[test]
fn what_is_told_stands_in_the_line_and_nothing_else() {
    let line = line_of(|mut span| {
        span.model("smollm2");
        span.stage(Stage::Encode, Duration::from_micros(1_500));
        span.stage(Stage::Encode, Duration::from_micros(1_500));
        span.stage(Stage::Generate, Duration::from_millis(70));
        assert_eq!(span.time(Stage::Rerank, || 7), 7);
        span.tokens(21, 96);
        span.line_mut().id = Some("theirs".into());
        span.end(Outcome::Ok, 200);
    });
    assert_eq!(line.model.as_deref(), Some("smollm2"));
    assert_eq!(line.id.as_deref(), Some("theirs"));
    assert_eq!((line.encode_ms, line.generate_ms), (Some(3.0), Some(70.0)));
    assert_eq!((line.prompt_tokens, line.completion_tokens), (Some(21), Some(96)));
    assert!(line.rerank_ms.is_some());
    assert_eq!((line.retrieve_ms, line.ttft_ms, line.decode_tokens_per_s), (None, None, None));
    assert_eq!(line.inflight, Some(1));
}

#[test]
fn the_decode_rate_needs_a_first_token_and_a_second() {
    for (completion_tokens, known) in [(0, false), (1, false), (96, true)] {
        let line = line_of(|mut span| {
            span.first_token();
            span.tokens(21, completion_tokens);
            std::thread::yield_now();
            span.end(Outcome::Ok, 200);
        });
        assert_eq!(line.decode_tokens_per_s.is_some(), known, "{completion_tokens} tokens");
        assert!(line.ttft_ms.is_some_and(|ttft_ms| ttft_ms <= line.total_ms));
    }
}

#[test]
fn a_finished_span_hands_over_its_line() {
    let recorder = Recorder::to_writer(std::io::sink()).unwrap();
    let started = Instant::now();
    let span = recorder.span_at("/generate", started);
    let line = span.finish(Outcome::Truncated, 200, started + Duration::from_millis(1_234));
    assert_eq!(recorder.inflight(), 0);
    assert_eq!((line.total_ms, line.outcome), (1234.0, Some(Outcome::Truncated)));
    assert_eq!((line.seq, line.status), (None, Some(200)));
    assert!(line.ts_unix_ms.is_some());
}

#[test]
fn ids_are_made_and_never_twice() {
    let recorder = Recorder::to_writer(std::io::sink()).unwrap();
    let id = || recorder.span("/generate").line_mut().id.clone().unwrap();
    let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| id()).collect();
    assert_eq!(ids.len(), 1000);
}

/// Begun long ago, so that no test has to wait: the ages 10, 20 and 40 s have all passed, which is
/// one line.
#[test]
fn a_span_that_runs_long_is_seen() {
    let sink = Scripted::default();
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    let started = Instant::now().checked_sub(Duration::from_secs(50)).expect("50 s of uptime");
    let mut old = recorder.span_at("/old", started);
    old.model("smollm2");
    old.line_mut().headers_ms = Some(4.0);
    let id = old.line_mut().id.clone();
    let young = recorder.span("/young");
    let first = wait_for_open_line(&recorder, &sink);
    assert_eq!((first.route.as_str(), first.id, first.inflight), ("/old", id, Some(1)));
    assert_eq!(first.model.as_deref(), Some("smollm2"));
    assert_eq!((first.headers_ms, first.ttft_ms), (Some(4.0), None));
    assert!(first.age_ms >= 50_000.0);
    old.end(Outcome::Ok, 200);
    young.end(Outcome::Ok, 200);
    assert!(recorder.close(LONG));
    let count = lines(&sink).iter().filter(|line| matches!(line, Line::Open(_))).count();
    assert_eq!(count, 1);
}

#[test]
fn the_ages_of_open_lines_double() {
    let sink = Scripted::default();
    let options = Options::default().open_after(Duration::from_millis(2));
    let recorder = options.to_writer(sink.clone()).unwrap();
    let span = recorder.span("/hung");
    while open_lines(&sink).len() < 4 {
        recorder.flush(LONG);
    }
    span.end(Outcome::Timeout, 504);
    let ages: Vec<f64> = open_lines(&sink).iter().map(|line| line.age_ms).collect();
    for (at, age_ms) in ages.iter().enumerate() {
        assert!(*age_ms >= 2.0 * f64::powi(2.0, at as i32), "{ages:?}");
    }
}

fn open_lines(sink: &Scripted) -> Vec<OpenLine> {
    let open = |line| if let Line::Open(line) = line { Some(*line) } else { None };
    lines(sink).into_iter().filter_map(open).collect()
}

fn wait_for_open_line(recorder: &Recorder, sink: &Scripted) -> OpenLine {
    loop {
        recorder.flush(LONG);
        if let Some(line) = open_lines(sink).into_iter().next() {
            return line;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    End,
    Finish,
    Drop,
    Panic,
    /// Ends on another thread, and later.
    Linger,
}

fn meet(fate: Fate, recorder: &Recorder, lingering: &mut Vec<Span>) {
    let span = recorder.span("/generate");
    match fate {
        Fate::End => span.end(Outcome::Ok, 200),
        Fate::Finish => recorder.send(Line::Request(span.finish(Outcome::Ok, 200, Instant::now()))),
        Fate::Drop => drop(span),
        Fate::Panic => panic_in(span),
        Fate::Linger => lingering.push(span),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn as_many_lines_as_spans_and_inflight_back_to_zero(
        fates in proptest::collection::vec(proptest::collection::vec(
            proptest::sample::select(&[
                Fate::End, Fate::Finish, Fate::Drop, Fate::Panic, Fate::Linger,
            ][..]), 0..60), 1..5),
    ) {
        let sink = Scripted::default();
        let recorder = Recorder::to_writer(sink.clone()).unwrap();
        let begun: usize = fates.iter().map(Vec::len).sum();
        std::thread::scope(|scope| for fates in &fates {
            let recorder = recorder.clone();
            scope.spawn(move || {
                let mut lingering = Vec::new();
                fates.iter().for_each(|fate| meet(*fate, &recorder, &mut lingering));
                std::thread::spawn(move || drop(lingering)).join().unwrap();
            });
        });
        prop_assert_eq!(recorder.inflight(), 0);
        prop_assert!(recorder.close(LONG));
        let lines = lines(&sink);
        prop_assert_eq!(lines.len(), begun);
        for line in lines {
            let Line::Request(line) = line else { panic!("{line:?}") };
            prop_assert!(line.inflight.is_some_and(|n| n >= 1 && n <= begun as u64));
        }
    }
}
