//! The fake model server speaks its dialects, queues for its slots and notices who leaves.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::time::Duration;

use serde_json::Value;

use inferwatch_lab::client::{Client, exchange};
use inferwatch_lab::cost::{Cost, Payment};
use inferwatch_lab::dialect::Dialect;
use inferwatch_lab::fake::{FakeUpstream, Settings};
use inferwatch_lab::wire::request;

fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, &[], body.as_bytes())
}

fn start(dialect: Dialect) -> FakeUpstream {
    FakeUpstream::start(Settings { dialect, dimensions: 3, ..Settings::default() }).unwrap()
}

async fn document(upstream: &FakeUpstream, path: &str, body: &str) -> Value {
    let response = exchange(upstream.addr(), &post(path, body)).await.unwrap();
    assert_eq!(response.head.status, 200, "{path}");
    serde_json::from_slice(&response.body).unwrap()
}

#[tokio::test]
async fn documents_hold_the_counts_where_each_server_puts_them() {
    use Dialect::{Anthropic, LlamaCpp, Ollama, OpenAi, Tei};
    let chat = r#"{"messages":[{"role":"user","content":"one two three"}],"max_tokens":4}"#;
    let native = r#"{"prompt":"one two three","n_predict":4}"#;
    let ollama = r#"{"prompt":"one two three","stream":false,"options":{"num_predict":4}}"#;
    let respond = r#"{"input":"one two three","max_output_tokens":4}"#;
    let embed = r#"{"input":["one two","three"]}"#;
    let rank = r#"{"query":"one","documents":["two","three"]}"#;
    for (dialect, path, body, expected) in [
        (
            LlamaCpp,
            "/v1/chat/completions",
            chat,
            &[("/usage/prompt_tokens", 3), ("/timings/predicted_n", 4)][..],
        ),
        (OpenAi, "/v1/chat/completions", chat, &[("/usage/completion_tokens", 4)]),
        (OpenAi, "/v1/completions", chat, &[("/usage/total_tokens", 7)]),
        (
            OpenAi,
            "/v1/responses",
            respond,
            &[("/usage/input_tokens", 3), ("/usage/output_tokens", 4)],
        ),
        (
            Anthropic,
            "/v1/messages",
            chat,
            &[("/usage/input_tokens", 3), ("/usage/output_tokens", 4)],
        ),
        (LlamaCpp, "/completion", native, &[("/tokens_evaluated", 3), ("/tokens_predicted", 4)]),
        (LlamaCpp, "/v1/embeddings", embed, &[("/usage/prompt_tokens", 3), ("/data/1/index", 1)]),
        (LlamaCpp, "/embedding", embed, &[("/1/index", 1)]),
        (LlamaCpp, "/v1/rerank", rank, &[("/usage/total_tokens", 3), ("/results/1/index", 1)]),
        (Ollama, "/api/generate", ollama, &[("/prompt_eval_count", 3), ("/eval_count", 4)]),
        (Ollama, "/api/chat", ollama, &[("/prompt_eval_count", 3), ("/eval_count", 4)]),
        (Ollama, "/api/embed", embed, &[("/prompt_eval_count", 3)]),
        (Tei, "/v1/embeddings", embed, &[("/usage/prompt_tokens", 3)]),
    ] {
        let answer = document(&start(dialect), path, body).await;
        for (pointer, number) in expected {
            let found = answer.pointer(pointer).and_then(Value::as_u64);
            assert_eq!(found, Some(*number), "{dialect} {path} {pointer}: {answer}");
        }
    }
}

#[tokio::test]
async fn streams_end_with_their_own_marker() {
    use Dialect::{Anthropic, LlamaCpp, Ollama, OpenAi};
    let usage = r#"{"stream":true,"max_tokens":2,"stream_options":{"include_usage":true}}"#;
    let plain = r#"{"stream":true,"max_tokens":2}"#;
    for (dialect, path, body, events, marker, says) in [
        (LlamaCpp, "/v1/chat/completions", plain, 5, "[DONE]", "\"timings\":"),
        (OpenAi, "/v1/chat/completions", plain, 5, "[DONE]", "\"finish_reason\":\"length\""),
        (OpenAi, "/v1/chat/completions", usage, 6, "[DONE]", "\"usage\":null"),
        (LlamaCpp, "/completion", plain, 3, "\"stop\":true", "\"tokens_evaluated\":0"),
        (OpenAi, "/v1/completions", usage, 4, "[DONE]", "\"usage\":{"),
        (LlamaCpp, "/v1/responses", plain, 8, "response.completed", "\"usage\":{\"input_tokens\""),
        (OpenAi, "/v1/responses", plain, 8, "response.incomplete", "response.created"),
        (Anthropic, "/v1/messages", plain, 7, "message_stop", "\"output_tokens\":2"),
        (
            Ollama,
            "/api/chat",
            "{\"options\":{\"num_predict\":2}}",
            3,
            "\"done\":true",
            "eval_count",
        ),
        (Ollama, "/v1/chat/completions", plain, 5, "[DONE]", "capital"),
    ] {
        let upstream = start(dialect);
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(&post(path, body)).await.unwrap();
        let head = client.read_head().await.unwrap();
        let mut stream = client.body(&head, "POST");
        let mut all = Vec::new();
        while let Some(event) = stream.next_event().await.unwrap() {
            all.push(String::from_utf8(event.bytes).unwrap());
        }
        assert_eq!(all.len(), events, "{dialect} {path}: {all:#?}");
        assert!(all.last().unwrap().contains(marker), "{dialect} {path}: {all:#?}");
        assert!(all.concat().contains(says), "{dialect} {path}: {all:#?}");
    }
}

#[tokio::test]
async fn heads_are_those_of_the_server() {
    let upstream = start(Dialect::LlamaCpp);
    let get = |path| request("GET", path, &[], b"");
    let response = exchange(upstream.addr(), &get("/health")).await.unwrap();
    let head = response.head.headers;
    assert_eq!(
        (head.get("server"), head.get("access-control-allow-origin")),
        (Some("llama.cpp"), Some(""))
    );
    assert_eq!(exchange(upstream.addr(), &get("/none")).await.unwrap().head.status, 404);
    let head = exchange(upstream.addr(), &request("HEAD", "/health", &[], b"")).await.unwrap();
    assert_eq!((head.head.headers.get("content-length"), head.body.len()), (Some("15"), 0));
    let bad = exchange(upstream.addr(), &post("/completion", "{")).await.unwrap();
    assert_eq!(bad.head.status, 400);

    let tei = start(Dialect::Tei);
    let body = r#"{"inputs":["one two","three"]}"#;
    let response = exchange(tei.addr(), &post("/embed", body)).await.unwrap();
    assert_eq!(response.head.headers.get("x-compute-tokens"), Some("3"));
    assert_eq!(response.body.iter().filter(|byte| **byte == b'[').count(), 3);
}

fn slow(slots: usize, cost: Cost) -> FakeUpstream {
    FakeUpstream::start(Settings { slots, cost, ..Settings::default() }).unwrap()
}

/// A prompt that takes far longer than any test waits for.
const ENDLESS: Cost = Cost {
    per_prompt_token: Duration::from_secs(3600),
    per_token: Duration::from_secs(3600),
    payment: Payment::Sleep,
};

#[tokio::test]
async fn a_queued_request_gets_its_head_when_a_slot_is_free_in_order() {
    let upstream = slow(1, ENDLESS);
    let stream = post("/completion", r#"{"prompt":"long","stream":true}"#);
    let mut clients = Vec::new();
    for count in 0..3 {
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(&stream).await.unwrap();
        while upstream.counts().busy_count() + upstream.counts().queued_count() <= count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        clients.push(client);
    }
    for (index, mut client) in clients.into_iter().enumerate() {
        assert_eq!(client.read_head().await.unwrap().status, 200, "client {index}");
        assert_eq!(upstream.counts().queued_count(), 2 - index, "the others still wait");
        client.close();
    }
    upstream.idle().await;
    assert_eq!(upstream.counts().cancelled_count(), 3);
}

#[tokio::test]
async fn slots_work_side_by_side() {
    let upstream = slow(2, ENDLESS);
    let stream = post("/completion", r#"{"prompt":"long","stream":true}"#);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(&stream).await.unwrap();
        assert_eq!(client.read_head().await.unwrap().status, 200);
        clients.push(client);
    }
    let slots = exchange(upstream.addr(), &request("GET", "/slots", &[], b"")).await.unwrap();
    assert_eq!(String::from_utf8(slots.body).unwrap().matches("\"is_processing\":true").count(), 2);
}

#[tokio::test]
async fn who_leaves_is_noticed_in_every_phase() {
    let generating = Cost { per_prompt_token: Duration::ZERO, ..ENDLESS };
    for (name, cost, stream, until) in [
        ("prefill, streamed", ENDLESS, true, "\r\n\r\n"),
        ("prefill, one document", ENDLESS, false, ""),
        ("generation, streamed", generating, true, "data: "),
        ("generation, one document", generating, false, ""),
    ] {
        for payment in [Payment::Sleep, Payment::Cpu] {
            let upstream = slow(1, Cost { payment, ..cost });
            let mut client = Client::connect(upstream.addr()).await.unwrap();
            let body = format!(r#"{{"prompt":"long","stream":{stream}}}"#);
            client.send(&post("/completion", &body)).await.unwrap();
            let mut seen = String::new();
            while !seen.contains(until) {
                seen += std::str::from_utf8(&client.read_some().await.unwrap()).unwrap();
            }
            while upstream.counts().busy_count() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client.close();
            upstream.idle().await;
            let counts = (upstream.counts().cancelled_count(), upstream.counts().completed_count());
            assert_eq!(counts, (1, 0), "{name}, {payment:?}");
        }
    }
}

#[tokio::test]
async fn connections_end_when_told_to() {
    let settings = Settings { requests_per_connection: Some(2), ..Settings::default() };
    let upstream = FakeUpstream::start(settings).unwrap();
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    for keeps_alive in [true, false] {
        client.send(&post("/completion", r#"{"prompt":"a"}"#)).await.unwrap();
        let response = client.read_response("POST").await.unwrap();
        assert_eq!(response.head.keeps_alive(), keeps_alive);
    }
    assert!(client.read_some().await.unwrap().is_empty());
}
