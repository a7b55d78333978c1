//! Every way in which a request can end: its outcome, its status, its one line.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod world;

use std::time::Duration;

use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::script::Script;
use inferwatch_proxy::OnAbort;
use inferwatch_record::Outcome;
use world::{PATIENCE, World, config, eventually, get, limits, post, split};

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\nServer: llama.cpp\r\n\
    Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn event(text: &str) -> String {
    let data = format!(
        "data: {{\"choices\":[{{\"finish_reason\":null,\"index\":0,\"delta\":{{\"content\":{text:?}}}}}]}}\n\n"
    );
    format!("{:x}\r\n{data}\r\n", data.len())
}

fn chat() -> String {
    post("/v1/chat/completions", r#"{"model":"m","stream":true,"messages":[]}"#)
}

/// Answers `script` to one request; gives the status the client saw and checks the line.
#[track_caller]
fn ends(script: fn() -> Script, request: String, client_status: Option<u16>, outcome: Outcome) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let upstream = RawUpstream::start(move |_| script()).unwrap();
        let world = World::before(&upstream).await;
        let answer = world.exchange(&request).await;
        let seen = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
        assert_eq!(seen, client_status, "{:?}", String::from_utf8_lossy(&answer));
        let line = world.request().await;
        assert_eq!(line.outcome, Some(outcome), "{line:?}");
        assert_eq!(line.status, client_status, "{line:?}");
        assert_eq!(line.error.is_some(), outcome != Outcome::Ok, "{line:?}");
    });
}

#[test]
fn answers_of_the_upstream() {
    ends(|| Script::answer(200, "text/plain", b"hi"), get("/x"), Some(200), Outcome::Ok);
    ends(|| Script::answer(200, "text/plain", b""), get("/x"), Some(200), Outcome::Ok);
    ends(
        || Script::new().send("HTTP/1.1 204 No Content\r\n\r\n"),
        get("/x"),
        Some(204),
        Outcome::Ok,
    );
    ends(
        || Script::new().send("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        get("/x"),
        Some(304),
        Outcome::Ok,
    );
    ends(
        || {
            Script::answer(
                400,
                "application/json",
                br#"{"error":{"code":400,"message":"no","type":"invalid_request_error"}}"#,
            )
        },
        chat(),
        Some(400),
        Outcome::Rejected,
    );
    ends(
        || {
            Script::answer(
                503,
                "application/json",
                br#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
            )
        },
        chat(),
        Some(503),
        Outcome::UpstreamError,
    );
    // Until the upstream closes: that is a complete body.
    ends(
        || Script::new().send("HTTP/1.1 200 OK\r\n\r\nhi").fin(),
        get("/x"),
        Some(200),
        Outcome::Ok,
    );
}

#[test]
fn answers_that_break_off() {
    ends(
        || Script::new().send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi").fin(),
        get("/x"),
        Some(200),
        Outcome::Truncated,
    );
    ends(
        || Script::new().send(STREAM_HEAD).send(event("a")).fin(),
        chat(),
        Some(200),
        Outcome::Truncated,
    );
    ends(
        || Script::new().send(STREAM_HEAD).send(event("a")).wait(Duration::from_millis(20)).reset(),
        chat(),
        Some(200),
        Outcome::Truncated,
    );
    // A whole stream that lacks its own end marker.
    ends(
        || Script::new().send(STREAM_HEAD).send(event("a")).send("0\r\n\r\n"),
        chat(),
        Some(200),
        Outcome::Truncated,
    );
    ends(|| Script::new().fin(), chat(), Some(502), Outcome::UpstreamError);
    ends(|| Script::new().reset(), chat(), Some(502), Outcome::UpstreamError);
    ends(|| Script::new().send("HTTP/1.1 200 O").fin(), chat(), Some(502), Outcome::UpstreamError);
    ends(|| Script::new().send("SSH-2.0-OpenSSH\r\n"), chat(), Some(502), Outcome::UpstreamError);
}

#[test]
fn errors_under_200() {
    ends(
        || {
            let error = "data: {\"error\":{\"code\":500,\"message\":\"boom\",\"type\":\"server_error\"}}\n\n";
            let chunk = format!("{:x}\r\n{error}\r\n0\r\n\r\n", error.len());
            Script::new().send(STREAM_HEAD).send(event("a")).send(chunk)
        },
        chat(),
        Some(200),
        Outcome::ErrorInStream,
    );
}

#[test]
fn head_requests() {
    ends(
        || Script::new().send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"),
        get("/x").replace("GET", "HEAD"),
        Some(200),
        Outcome::Ok,
    );
}

#[test]
fn connect_is_refused() {
    ends(Script::new, get("box:1").replace("GET", "CONNECT"), Some(405), Outcome::Shed);
}

#[tokio::test]
async fn an_upstream_that_is_not_there() {
    let upstream = RawUpstream::start(|_| Script::answer(200, "text/plain", b"hi")).unwrap();
    let world = World::before(&upstream).await;
    let addr = upstream.stop().await;
    let (head, body) = {
        let answer = world.exchange(chat()).await;
        let (head, body) = split(&answer);
        (head, String::from_utf8(body.to_vec()).unwrap())
    };
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(body.contains("cannot connect to the model server"), "{body}");

    let _back = RawUpstream::start_with(addr, Default::default(), |_| {
        Script::answer(200, "text/plain", b"hi")
    });
    assert!(world.exchange(chat()).await.ends_with(b"hi"));
    let lines = world.requests().await;
    let outcomes: Vec<_> = lines.iter().map(|line| line.outcome.unwrap()).collect();
    assert_eq!(outcomes, [Outcome::ConnectFailed, Outcome::Ok]);
    assert_eq!((lines[0].status, lines[0].upstream_status), (Some(502), None));
}

#[tokio::test]
async fn a_client_that_leaves_during_prefill() {
    let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let world = World::before(&upstream).await;
    let client = world.client(chat()).await;
    upstream.request(0).await;
    drop(client);
    tokio::time::timeout(PATIENCE, upstream.peer_closed(0)).await.expect("the upstream is told");
    let line = world.request().await;
    assert_eq!(line.outcome, Some(Outcome::ClientClosedWaiting));
    assert_eq!((line.status, line.upstream_status), (Some(499), None));
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_stream() {
    let upstream = RawUpstream::start(|_| Script::new().send(STREAM_HEAD).send(event("a")).hang());
    let upstream = upstream.unwrap();
    let world = World::before(&upstream).await;
    let mut client = world.client(chat()).await;
    client.until(b"\"a\"}}]}\n\n\r\n").await;
    drop(client);
    tokio::time::timeout(PATIENCE, upstream.peer_closed(0)).await.expect("the upstream is told");
    let line = world.request().await;
    assert_eq!(line.outcome, Some(Outcome::ClientClosed));
    assert_eq!((line.status, line.upstream_status), (Some(499), Some(200)));
    assert!(line.ttft_ms.is_some());
}

#[tokio::test]
async fn drain_reads_for_a_client_that_left() {
    for leave_after_head in [false, true] {
        let upstream = RawUpstream::start(move |_| {
            let last = "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":7}}\n\n";
            let last = format!("{:x}\r\n{last}\r\n0\r\n\r\n", last.len());
            let start = Script::new().wait(Duration::from_millis(150)).send(STREAM_HEAD);
            start.send(event("a")).wait(Duration::from_millis(150)).send(last)
        });
        let upstream = upstream.unwrap();
        let world = World::with(inferwatch_proxy::Config {
            on_abort: OnAbort::Drain,
            ..config(upstream.addr())
        })
        .await;
        let mut client = world.client(chat()).await;
        upstream.request(0).await;
        if leave_after_head {
            client.until(b"\r\n\r\n").await;
        }
        drop(client);
        let line = world.request().await;
        assert_eq!(line.outcome, Some(Outcome::ClientClosed));
        assert_eq!((line.status, line.upstream_status), (Some(499), Some(200)));
        assert_eq!((line.prompt_tokens, line.completion_tokens), (Some(3), Some(7)), "{line:?}");
    }
}

#[tokio::test]
async fn the_queue_is_bounded_and_fifo() {
    let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let world = World::with(inferwatch_proxy::Config {
        limits: limits(1, 1, PATIENCE),
        ..config(upstream.addr())
    })
    .await;
    let first = world.client(chat()).await;
    upstream.request(0).await;
    let second = world.client(chat()).await;
    eventually("two in flight", || world.recorder.inflight() == 2).await;

    let answer = world.exchange(post("/api/chat", "{}")).await;
    let (head, body) = split(&answer);
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.to_lowercase().contains("\r\nretry-after: 1\r\n"), "{head}");
    assert_eq!(body, br#"{"error":"too many requests: queue full"}"#);
    // What does no model work is not held up.
    let mut health = world.client(get("/health")).await;
    upstream.request(1).await;
    health.send("").await;

    drop(first);
    upstream.request(2).await;
    drop((second, health));
    let lines = world.requests().await;
    let mut outcomes: Vec<_> =
        lines.iter().map(|l| (l.route.as_str(), l.outcome.unwrap())).collect();
    outcomes.sort_by_key(|(route, _)| route.to_owned());
    assert_eq!(
        outcomes,
        [
            ("/api/chat", Outcome::Shed),
            ("/health", Outcome::ClientClosedWaiting),
            ("/v1/chat/completions", Outcome::ClientClosedWaiting),
            ("/v1/chat/completions", Outcome::ClientClosedWaiting),
        ]
    );
    let waited = lines.iter().filter(|line| line.queue_ms.is_some()).count();
    assert!(waited >= 1, "the wait before our own door is in the line: {lines:?}");
}

#[tokio::test]
async fn a_client_may_leave_the_queue() {
    let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let world = World::with(inferwatch_proxy::Config {
        limits: limits(1, 5, PATIENCE),
        ..config(upstream.addr())
    })
    .await;
    let first = world.client(chat()).await;
    upstream.request(0).await;
    let second = world.client(chat()).await;
    eventually("two in flight", || world.recorder.inflight() == 2).await;
    drop(second);
    eventually("one in flight", || world.recorder.inflight() == 1).await;
    drop(first);
    assert_eq!(upstream.requests().len(), 1, "the one that left was never sent");
    let lines = world.requests().await;
    assert!(lines.iter().all(|line| line.outcome == Some(Outcome::ClientClosedWaiting)));
}

#[tokio::test]
async fn waiting_too_long_is_shed() {
    let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let world = World::with(inferwatch_proxy::Config {
        limits: limits(1, 5, Duration::from_millis(50)),
        ..config(upstream.addr())
    })
    .await;
    let first = world.client(chat()).await;
    upstream.request(0).await;
    assert!(world.exchange(chat()).await.starts_with(b"HTTP/1.1 429 "));
    drop(first);
    world.settled().await;
    let lines = world.requests().await;
    assert_eq!(lines[0].outcome, Some(Outcome::Shed));
    assert!(lines[0].queue_ms.is_some_and(|ms| ms >= 50.0), "{:?}", lines[0]);
}

#[tokio::test]
async fn both_queues_add_up() {
    // The server says that it worked for 1 ms of the 150 that it took: the rest was its own queue.
    let upstream = RawUpstream::start(|_| {
        let body = r#"{"usage":{"prompt_tokens":3,"completion_tokens":1},"choices":[{"finish_reason":"stop"}],
            "timings":{"cache_n":0,"prompt_n":3,"prompt_ms":0.5,"predicted_n":1,"predicted_ms":0.5}}"#;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Script::new().wait(Duration::from_millis(150)).send(head).send(body)
    });
    let upstream = upstream.unwrap();
    let world = World::with(inferwatch_proxy::Config {
        limits: limits(1, 5, PATIENCE),
        ..config(upstream.addr())
    })
    .await;
    let first = world.client(chat()).await;
    upstream.request(0).await;
    let second = world.client(chat()).await;
    first.rest().await;
    second.rest().await;
    let lines = world.requests().await;
    let queued_ms: Vec<_> = lines.iter().map(|line| line.queue_ms.unwrap()).collect();
    assert!(queued_ms[0] >= 149.0 && queued_ms[1] >= 149.0 + 100.0, "{queued_ms:?}");
    assert!(lines.iter().all(|line| line.generate_ms == Some(1.0)), "{lines:?}");
}

#[tokio::test]
async fn a_stop_lets_running_requests_finish() {
    let upstream = RawUpstream::start(|_| {
        Script::new().send(STREAM_HEAD).wait(Duration::from_millis(200)).send("0\r\n\r\n")
    });
    let upstream = upstream.unwrap();
    let world = World::before(&upstream).await;
    let idle = world.client("").await;
    let mut client = world.client(chat()).await;
    client.until(b"\r\n\r\n").await;
    world.tell_to_stop().await;
    assert!(client.rest().await.ends_with(b"0\r\n\r\n"), "the answer was cut");
    assert_eq!(idle.rest().await, b"", "idle clients are let go");
    let refused = tokio::net::TcpStream::connect(world.addr).await;
    assert!(refused.is_err(), "no new connections");
    let (served, lines) = world.end().await;
    assert_eq!((served.requests_count, served.unfinished_count, lines.len()), (1, 0, 1));
}

#[tokio::test]
async fn what_does_not_finish_is_cut() {
    let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let world = World::with(inferwatch_proxy::Config {
        drain_timeout: Duration::from_millis(50),
        ..config(upstream.addr())
    })
    .await;
    let client = world.client(chat()).await;
    upstream.request(0).await;
    world.tell_to_stop().await;
    assert_eq!(client.rest().await, b"");
    let (served, lines) = world.end().await;
    assert_eq!((served.requests_count, served.unfinished_count), (1, 1));
    let inferwatch_record::Line::Request(line) = &lines[0] else { panic!("{lines:?}") };
    assert_eq!((line.outcome, line.status), (Some(Outcome::Timeout), None));
}
