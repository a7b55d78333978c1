//! The rejected ways, with the same 25 fields and values.

use std::hint::black_box;
use std::io;

use serde::Serialize;

#[derive(Serialize)]
struct Mirror<'a> {
    ts: &'a str,
    kind: &'a str,
    seq: u64,
    id: &'a str,
    route: &'a str,
    model: Option<&'a str>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    encode_ms: Option<f64>,
    retrieve_ms: Option<f64>,
    rerank_ms: Option<f64>,
    generate_ms: Option<f64>,
    total_ms: f64,
    rss_mb: Option<f64>,
    inflight: Option<u64>,
    cache_hit: Option<bool>,
    status: Option<u16>,
    outcome: &'a str,
    upstream: &'a str,
    upstream_status: u16,
    stream: bool,
    finish: &'a str,
    tokens_src: &'a str,
    queue_ms: f64,
    headers_ms: f64,
    prefill_ms: f64,
    ttft_ms: f64,
    decode_tokens_per_s: f64,
    bytes_in: u64,
    bytes_out: u64,
}

fn mirror() -> Mirror<'static> {
    Mirror {
        ts: "2026-11-30T14:02:11.123Z",
        kind: "request",
        seq: 7,
        id: "mx3u79hl.as9.2",
        route: "/v1/chat/completions",
        model: Some("SmolLM2-135M-Instruct"),
        prompt_tokens: Some(21),
        completion_tokens: Some(96),
        encode_ms: None,
        retrieve_ms: None,
        rerank_ms: None,
        generate_ms: Some(1_503.2),
        total_ms: 1_519.9,
        rss_mb: Some(412.3),
        inflight: Some(2),
        cache_hit: Some(false),
        status: Some(200),
        outcome: "ok",
        upstream: "127.0.0.1:8080",
        upstream_status: 200,
        stream: true,
        finish: "stop",
        tokens_src: "timings",
        queue_ms: 3.1,
        headers_ms: 4.0,
        prefill_ms: 88.4,
        ttft_ms: 91.5,
        decode_tokens_per_s: 66.5,
        bytes_in: 310,
        bytes_out: 18_211,
    }
}

/// Time stamp given, no queue, no write: the least that serde can cost.
pub(crate) fn serde_json_line() {
    black_box(serde_json::to_vec(black_box(&mirror())).ok());
}

pub(crate) fn tracing_burst(lines: u64) -> impl FnMut() {
    let subscriber =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(io::sink).finish();
    let dispatch = tracing::Dispatch::new(subscriber);
    move || tracing::dispatcher::with_default(&dispatch, || (0..lines).for_each(|_| tracing_line()))
}

fn tracing_line() {
    let line = mirror();
    tracing::info!(
        kind = line.kind,
        id = line.id,
        route = line.route,
        model = line.model,
        prompt_tokens = line.prompt_tokens,
        completion_tokens = line.completion_tokens,
        generate_ms = line.generate_ms,
        total_ms = line.total_ms,
        rss_mb = line.rss_mb,
        inflight = line.inflight,
        cache_hit = line.cache_hit,
        status = line.status,
        outcome = line.outcome,
        upstream = line.upstream,
        upstream_status = line.upstream_status,
        stream = line.stream,
        finish = line.finish,
        tokens_src = line.tokens_src,
        queue_ms = line.queue_ms,
        headers_ms = line.headers_ms,
        prefill_ms = line.prefill_ms,
        ttft_ms = line.ttft_ms,
        decode_tokens_per_s = line.decode_tokens_per_s,
        bytes_in = line.bytes_in,
        bytes_out = line.bytes_out,
    );
}
