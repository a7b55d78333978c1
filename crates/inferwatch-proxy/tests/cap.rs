//! `--max-tokens` over sockets: what goes up instead of the body that came, and what the line says.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod world;

use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::script::Script;
use inferwatch_record::{Outcome, RequestLine};
use world::{World, config, post, split};

struct Capped {
    answer: Vec<u8>,
    /// What the upstream got, if anything.
    body: Option<Vec<u8>>,
    length: Option<String>,
    line: RequestLine,
}

async fn ask(request: &str) -> Capped {
    let upstream = RawUpstream::start(|_| Script::answer(200, "text/plain", b"hi")).unwrap();
    let set = inferwatch_proxy::Config { max_tokens: Some(64), ..config(upstream.addr()) };
    let world = World::with(set).await;
    let answer = world.exchange(request).await;
    let seen = upstream.requests().first().cloned();
    Capped {
        answer,
        body: seen.as_ref().map(|seen| seen.body.clone()),
        length: seen.and_then(|seen| seen.head.headers.get("content-length").map(str::to_owned)),
        line: world.request().await,
    }
}

/// `body` goes up as `expected`.
async fn goes_up(path: &str, body: &str, expected: &str) {
    let capped = ask(&post(path, body)).await;
    assert_eq!(String::from_utf8(capped.body.unwrap()).unwrap(), expected);
    assert_eq!(capped.length, Some(expected.len().to_string()));
    assert!(capped.answer.ends_with(b"hi"));
    let changed = body != expected;
    assert_eq!(capped.line.capped_max_tokens, changed.then_some(64), "{:?}", capped.line);
    assert_eq!(capped.line.bytes_in, Some(body.len() as u64), "what the client sent");
}

#[tokio::test]
async fn every_dialect_is_held_to_the_cap() {
    let chat = "/v1/chat/completions";
    goes_up(chat, r#"{"max_tokens": 9999, "x": "é"}"#, r#"{"max_tokens": 64, "x": "é"}"#).await;
    goes_up(chat, r#"{"max_tokens": 64}"#, r#"{"max_tokens": 64}"#).await;
    goes_up(chat, r#"{"a":1}"#, r#"{"max_tokens":64,"a":1}"#).await;
    goes_up("/completion", r#"{"n_predict":-1}"#, r#"{"n_predict":64}"#).await;
    goes_up("/v1/messages", r#"{"max_tokens":65}"#, r#"{"max_tokens":64}"#).await;
    goes_up("/v1/responses", r#"{"max_output_tokens":65}"#, r#"{"max_output_tokens":64}"#).await;
    let ollama = r#"{"options":{"num_predict":900,"seed":1}}"#;
    goes_up("/api/generate", ollama, r#"{"options":{"num_predict":64,"seed":1}}"#).await;
}

#[tokio::test]
async fn what_generates_nothing_is_left_alone() {
    for path in ["/v1/embeddings", "/tokenize", "/unknown"] {
        goes_up(path, r#"{"max_tokens":9999}"#, r#"{"max_tokens":9999}"#).await;
    }
}

#[tokio::test]
async fn a_chunked_request_gets_a_length() {
    let sent = "POST /completion HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
        8\r\n{\"n_pred\r\nc\r\nict\": 65.5} \r\n0\r\n\r\n";
    let capped = ask(sent).await;
    assert_eq!(capped.body.unwrap(), b"{\"n_predict\": 64} ");
    assert_eq!(capped.length.as_deref(), Some("18"));
}

#[tokio::test]
async fn what_cannot_be_held_to_it_is_refused() {
    let chat = "/v1/chat/completions";
    let big = format!("{{\"x\":\"{}\"}}", "x".repeat(8 << 20));
    let packed = post(chat, "{}").replace("Host:", "Content-Encoding: gzip\r\nHost:");
    let cases = [
        (post(chat, "[1]"), 400, "not a JSON object"),
        (post(chat, ""), 400, "not a JSON object"),
        (post(chat, &big), 413, "over 8 MiB"),
        (packed, 415, "compressed"),
    ];
    for (request, status, why) in cases {
        let capped = ask(&request).await;
        let (head, body) = split(&capped.answer);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(String::from_utf8_lossy(body).contains(why), "{body:?}");
        assert_eq!(capped.body, None, "it went up all the same");
        assert_eq!((capped.line.outcome, capped.line.status), (Some(Outcome::Shed), Some(status)));
    }
}
