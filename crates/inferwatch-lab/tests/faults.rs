//! Every fault does on the wire what its name says, in every dialect, and each can be told from a
//! healthy answer.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;

use inferwatch_lab::client::{Client, Response, Trouble, exchange};
use inferwatch_lab::dialect::Dialect;
use inferwatch_lab::fake::{FakeUpstream, Settings};
use inferwatch_lab::fault;
use inferwatch_lab::wire::request;

/// A streaming route of every dialect that streams.
const STREAMS: [(Dialect, &str); 7] = [
    (Dialect::LlamaCpp, "/v1/chat/completions"),
    (Dialect::LlamaCpp, "/completion"),
    (Dialect::OpenAi, "/v1/chat/completions"),
    (Dialect::OpenAi, "/v1/responses"),
    (Dialect::Anthropic, "/v1/messages"),
    (Dialect::Ollama, "/api/chat"),
    (Dialect::Ollama, "/api/generate"),
];

fn start(dialect: Dialect) -> FakeUpstream {
    FakeUpstream::start(Settings { dialect, ..Settings::default() }).unwrap()
}

fn asking(path: &str, fault: &str, stream: bool) -> Vec<u8> {
    let limit = r#""max_tokens":4,"options":{"num_predict":4}"#;
    let body = format!(r#"{{"prompt":"a b c","stream":{stream},{limit}}}"#);
    request("POST", path, &[(fault::HEADER, fault), ("Connection", "close")], body.as_bytes())
}

async fn ask(upstream: &FakeUpstream, path: &str, fault: &str) -> Response {
    exchange(upstream.addr(), &asking(path, fault, true)).await.unwrap()
}

async fn raw_bytes(upstream: &FakeUpstream, bytes: &[u8]) -> (Vec<u8>, Option<Trouble>) {
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    client.send(bytes).await.unwrap();
    client.read_to_end().await
}

fn text(response: &Response) -> String {
    String::from_utf8_lossy(&response.body).into_owned()
}

#[tokio::test]
async fn faults_that_keep_the_bytes_keep_them() {
    for (dialect, path) in STREAMS {
        let upstream = start(dialect);
        let healthy = steady(&text(&ask(&upstream, path, "none").await));
        for fault in
            ["stall_before_head=1ms", "stall_mid_stream=1,1ms", "slow_drip=30,1ms", "burst_all"]
        {
            let response = ask(&upstream, path, fault).await;
            assert!(response.trouble.is_none(), "{path} {fault}");
            assert_eq!(steady(&text(&response)), healthy, "{path} {fault}");
        }
    }
}

/// The text without its measured times.
fn steady(text: &str) -> String {
    text.split(',')
        .filter(|part| {
            !part.contains("_ms") && !part.contains("per_second") && !part.contains("duration")
        })
        .collect()
}

#[tokio::test]
async fn cuts_and_resets_come_after_the_byte() {
    for (dialect, path) in STREAMS {
        let upstream = start(dialect);
        for limit in [0, 1, 100, 300, 500] {
            let (bytes, trouble) =
                raw_bytes(&upstream, &asking(path, &format!("cut_after_bytes={limit}"), true))
                    .await;
            assert_eq!(bytes.len(), limit, "{path}");
            assert!(trouble.is_none(), "{path}: FIN, not {trouble:?}");
            let (bytes, trouble) =
                raw_bytes(&upstream, &asking(path, &format!("reset_after_bytes={limit}"), true))
                    .await;
            assert!(bytes.len() <= limit, "{path}: a reset may eat, never add");
            assert!(matches!(trouble, Some(Trouble::Reset(_))), "{path} {limit}: {trouble:?}");
        }
    }
}

#[tokio::test]
async fn a_cut_beyond_the_end_is_none() {
    let upstream = start(Dialect::LlamaCpp);
    let response = ask(&upstream, STREAMS[0].1, "cut_after_bytes=1000000").await;
    assert!(response.trouble.is_none() && text(&response).ends_with("[DONE]\n\n"));
}

#[tokio::test]
async fn errors_in_a_stream_end_it_in_good_order() {
    for (dialect, path) in STREAMS {
        let upstream = start(dialect);
        let end = text(&ask(&upstream, path, "none").await)
            .lines()
            .rfind(|l| !l.is_empty())
            .unwrap()
            .to_owned();
        let response = ask(&upstream, path, "error_line_in_200=2").await;
        assert_eq!((response.head.status, response.trouble.is_none()), (200, true), "{path}");
        let text = text(&response);
        let last = text.lines().rfind(|line| !line.is_empty()).unwrap();
        assert!(last.contains("\"error\"") && last.contains("the lab's error"), "{path}: {last}");
        assert!(!text.contains(&end), "{path}: no end marker");
    }
}

#[tokio::test]
async fn garbage_is_neither_utf8_nor_the_end() {
    for (dialect, path) in STREAMS {
        let upstream = start(dialect);
        let healthy = ask(&upstream, path, "none").await;
        let garbled = ask(&upstream, path, "garbage_event=2").await;
        assert!(garbled.trouble.is_none() && std::str::from_utf8(&garbled.body).is_err(), "{path}");
        let lines = |response: &Response| text(response).lines().count();
        assert!(lines(&garbled) > lines(&healthy), "{path}: the stream goes on");
    }
}

#[tokio::test]
async fn wrong_lengths() {
    let upstream = start(Dialect::LlamaCpp);
    for (claim, send, cut) in [(100, 50, true), (50, 50, false), (10, 50, false), (0, 5, false)] {
        let fault = format!("wrong_length={claim},{send}");
        let bytes = asking(STREAMS[0].1, &fault, false);
        let response = exchange(upstream.addr(), &bytes).await.unwrap();
        assert_eq!(matches!(response.trouble, Some(Trouble::Cut)), cut, "{fault}");
        let (bytes, _) = raw_bytes(&upstream, &bytes).await;
        assert_eq!(bytes.len() - response.head.bytes.len(), send, "{fault}");
    }
}

#[tokio::test]
async fn error_statuses_have_the_dialects_body() {
    let mut bodies = BTreeSet::new();
    for dialect in Dialect::ALL {
        let path = if dialect == Dialect::Tei {
            "/embed"
        } else {
            STREAMS.iter().find(|s| s.0 == dialect).unwrap().1
        };
        let upstream = start(dialect);
        for status in [400, 429, 500, 503] {
            let response = ask(&upstream, path, &format!("status={status}")).await;
            assert_eq!(response.head.status, status);
            let body: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            assert!(body.get("error").is_some(), "{dialect}: {body}");
            bodies.insert(body.to_string());
        }
    }
    assert!(bodies.len() > Dialect::ALL.len());
}

#[tokio::test]
async fn silence_lasts_until_the_client_leaves() {
    let upstream = start(Dialect::LlamaCpp);
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    client.send(&asking(STREAMS[0].1, "never_answers", true)).await.unwrap();
    let patience = std::time::Duration::from_millis(30);
    assert!(tokio::time::timeout(patience, client.read_some()).await.is_err());
    client.close();
    assert!(upstream.peer_closed(0).await.mid_request);
}

#[tokio::test]
async fn a_burst_is_one_write() {
    let upstream = start(Dialect::LlamaCpp);
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    client.send(&asking(STREAMS[0].1, "burst_all", true)).await.unwrap();
    let first = client.read_some().await.unwrap();
    assert!(first.ends_with(b"0\r\n\r\n"), "{} bytes", first.len());
}

#[tokio::test]
async fn an_unknown_fault_is_refused_with_the_forms() {
    let upstream = start(Dialect::LlamaCpp);
    for fault in ["cut", "status=200", ""] {
        let response = ask(&upstream, STREAMS[0].1, fault).await;
        assert_eq!(response.head.status, 400);
        assert!(text(&response).contains("cut_after_bytes=300"), "{fault:?}");
    }
}

#[tokio::test]
async fn documents_can_be_faulty_too() {
    let upstream = start(Dialect::LlamaCpp);
    for (fault, expected) in
        [("garbage_event=0", "{\"choices\":[{\"delta"), ("error_line_in_200=0", "{\"error\"")]
    {
        let response =
            exchange(upstream.addr(), &asking(STREAMS[0].1, fault, false)).await.unwrap();
        assert_eq!((response.head.status, response.trouble.is_none()), (200, true), "{fault}");
        assert!(text(&response).starts_with(expected), "{fault}");
    }
}
