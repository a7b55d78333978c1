//! A request that hangs shows while it hangs: `open` lines, with what is known so far.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod world;

use std::time::Duration;

use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::script::Script;
use inferwatch_record::{Line, OpenLine, Options, Outcome};
use world::{World, config, post};

/// The first age at which a request is reported; 10 s outside of tests.
const OPEN_AFTER: Duration = Duration::from_millis(60);

async fn open_lines(script: fn() -> Script) -> (Vec<OpenLine>, Vec<Line>) {
    let upstream = RawUpstream::start(move |_| script()).unwrap();
    let options = Options::default().open_after(OPEN_AFTER);
    let world = World::with_options(config(upstream.addr()), options).await;
    let client = world.client(post("/v1/chat/completions", r#"{"model":"m"}"#)).await;
    tokio::time::sleep(OPEN_AFTER * 8).await;
    drop(client);
    let lines = world.lines().await;
    let open = |line: &Line| match line {
        Line::Open(open) => Some((**open).clone()),
        _ => None,
    };
    (lines.iter().filter_map(open).collect(), lines)
}

#[tokio::test]
async fn a_request_that_waits_is_reported_at_doubling_ages() {
    let (open, lines) = open_lines(|| Script::new().hang()).await;
    let ages: Vec<_> = open.iter().map(|line| line.age_ms).collect();
    assert!(ages.len() >= 2, "{ages:?}");
    let after_ms = OPEN_AFTER.as_secs_f64() * 1e3;
    assert!(
        ages.iter().zip([1.0, 2.0, 4.0, 8.0]).all(|(age, times)| *age >= after_ms * times),
        "{ages:?}"
    );
    let first = &open[0];
    assert_eq!((first.route.as_str(), first.inflight), ("/v1/chat/completions", Some(1)));
    assert_eq!((first.headers_ms, first.ttft_ms), (None, None));
    let Some(Line::Request(last)) = lines.last() else { panic!("{lines:?}") };
    assert_eq!((&last.id, last.outcome), (&first.id, Some(Outcome::ClientClosedWaiting)));
}

#[tokio::test]
async fn it_says_how_far_the_request_came() {
    let (open, _) = open_lines(|| {
        let event = "data: {\"model\":\"served\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        Script::new().send(format!("{head}{event}")).hang()
    })
    .await;
    let first = &open[0];
    assert!(first.headers_ms.is_some() && first.ttft_ms.is_some(), "{first:?}");
    assert_eq!(first.model.as_deref(), Some("served"));
}
