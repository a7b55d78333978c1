//! The examples run, and write the lines that they promise.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]
#![expect(clippy::duplicate_mod, reason = "two examples share their stand-in work")]

use std::time::Duration;

use inferwatch_record::{Line, Outcome, Recorder, RequestLine, read_lines};
use sinks::Scripted;

#[expect(dead_code, reason = "no sink fails here")]
mod sinks;

#[expect(dead_code, reason = "only its `main` is not called here")]
#[path = "../examples/axum.rs"]
mod axum_service;
#[expect(dead_code, reason = "only its `main` is not called here")]
#[path = "../examples/plain_thread.rs"]
mod plain_thread;

fn recorded(work: impl FnOnce(&Recorder)) -> Vec<RequestLine> {
    let sink = Scripted::default();
    let recorder = Recorder::to_writer(sink.clone()).unwrap();
    work(&recorder);
    assert!(recorder.close(Duration::from_secs(30)));
    let request =
        |line| if let Ok(Line::Request(line)) = line { *line } else { panic!("{line:?}") };
    read_lines(sink.text().as_bytes()).map(request).collect()
}

fn stages(line: &RequestLine) -> [bool; 4] {
    [line.encode_ms, line.retrieve_ms, line.rerank_ms, line.generate_ms].map(|ms| ms.is_some())
}

#[test]
fn plain_threads_write_three_lines() {
    let lines = recorded(plain_thread::serve);
    assert_eq!(lines.len(), 3);
    let (served, refused): (Vec<_>, Vec<_>) =
        lines.iter().partition(|line| line.outcome == Some(Outcome::Ok));
    assert_eq!((served.len(), refused[0].status, stages(refused[0])), (2, Some(400), [false; 4]));
    for line in served {
        assert_eq!((line.status, line.completion_tokens), (Some(200), Some(64)));
        assert_eq!(stages(line), [true; 4]);
        assert!(line.total_ms >= line.ttft_ms.unwrap() && line.decode_tokens_per_s.is_some());
    }
}

#[test]
fn a_client_that_leaves_an_axum_service_is_a_line() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lines = recorded(|recorder| {
        runtime.block_on(axum_service::serve_own_requests(recorder.clone())).unwrap();
    });
    let [served, left] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((served.outcome, served.status), (Some(Outcome::Ok), Some(200)));
    assert_eq!(stages(served), [true; 4]);
    assert_eq!((left.outcome, left.status), (Some(Outcome::ClientClosed), Some(499)));
    assert_eq!(left.completion_tokens, None);
}
