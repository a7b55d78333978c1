//! Lines to write: the ones behind the golden file, and hostile and random ones.

use inferwatch_record::{
    DroppedLine, Line, OpenLine, Outcome, ParseTrouble, RequestLine, StartLine, StopLine, TokensSrc,
};

pub(crate) const TS_UNIX_MS: u64 = 1_796_047_331_123;

pub(crate) fn written(line: &Line) -> Vec<u8> {
    let mut bytes = Vec::new();
    inferwatch_record::format_line(line, &mut bytes);
    bytes
}

/// What a service knows that only counts requests.
pub(crate) fn bare_request() -> RequestLine {
    let mut line = RequestLine::default();
    line.ts_unix_ms = Some(TS_UNIX_MS);
    line.route = "/generate".into();
    line.total_ms = 81.0;
    line
}

/// A streamed chat through the proxy.
pub(crate) fn chat_request() -> RequestLine {
    let mut line = bare_request();
    line.seq = Some(7);
    line.id = Some("mx3u79hl.as9.2".into());
    line.route = "/v1/chat/completions".into();
    line.model = Some("SmolLM2-135M-Instruct".into());
    line.prompt_tokens = Some(21);
    line.completion_tokens = Some(96);
    line.generate_ms = Some(1_503.25);
    line.total_ms = 1_519.96;
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
    line.cached_tokens = Some(0);
    line.queue_ms = Some(3.1);
    line.headers_ms = Some(4.0);
    line.prefill_ms = Some(88.4);
    line.ttft_ms = Some(91.5);
    line.decode_tokens_per_s = Some(66.5);
    line.bytes_in = Some(310);
    line.bytes_out = Some(18_211);
    line
}

/// Every field of a request, each string `text`, each number `number`.
pub(crate) fn full_request(text: &str, whole: u64, number: f64) -> RequestLine {
    let mut line = RequestLine::default();
    line.ts_unix_ms = Some(u64::MAX);
    line.route = text.into();
    line.total_ms = number;
    for field in texts_mut(&mut line) {
        *field = Some(text.into());
    }
    for field in wholes_mut(&mut line) {
        *field = Some(whole);
    }
    for field in numbers_mut(&mut line) {
        *field = Some(number);
    }
    for field in flags_mut(&mut line) {
        *field = Some(false);
    }
    line.status = Some(499);
    line.upstream_status = Some(502);
    line.outcome = Some(Outcome::ClientClosedWaiting);
    line.tokens_src = Some(TokensSrc::Tokenizer);
    line.parse = Some(ParseTrouble::GaveUp);
    line
}

pub(crate) fn texts_mut(line: &mut RequestLine) -> [&mut Option<String>; 8] {
    [
        &mut line.id,
        &mut line.model,
        &mut line.error,
        &mut line.upstream,
        &mut line.requested_model,
        &mut line.finish,
        &mut line.trace_id,
        &mut line.client,
    ]
}

pub(crate) fn wholes_mut(line: &mut RequestLine) -> [&mut Option<u64>; 10] {
    [
        &mut line.seq,
        &mut line.prompt_tokens,
        &mut line.completion_tokens,
        &mut line.inflight,
        &mut line.est_prompt_tokens,
        &mut line.cached_tokens,
        &mut line.batch,
        &mut line.bytes_in,
        &mut line.bytes_out,
        &mut line.capped_max_tokens,
    ]
}

pub(crate) fn numbers_mut(line: &mut RequestLine) -> [&mut Option<f64>; 14] {
    [
        &mut line.encode_ms,
        &mut line.retrieve_ms,
        &mut line.rerank_ms,
        &mut line.generate_ms,
        &mut line.rss_mb,
        &mut line.queue_ms,
        &mut line.load_ms,
        &mut line.headers_ms,
        &mut line.prefill_ms,
        &mut line.ttft_ms,
        &mut line.decode_tokens_per_s,
        &mut line.rss_start_mb,
        &mut line.anon_mb,
        &mut line.anon_start_mb,
    ]
}

pub(crate) fn flags_mut(line: &mut RequestLine) -> [&mut Option<bool>; 4] {
    [
        &mut line.cache_hit,
        &mut line.stream,
        &mut line.completion_tokens_partial,
        &mut line.coalesced,
    ]
}

pub(crate) fn open(text: &str) -> OpenLine {
    let mut line = OpenLine::default();
    line.ts_unix_ms = Some(TS_UNIX_MS);
    line.seq = Some(8);
    line.id = Some("mx3u79hl.as9.3".into());
    line.route = text.into();
    line.model = Some(text.into());
    line.age_ms = 20_018.6;
    line.inflight = Some(1);
    line.headers_ms = Some(4.2);
    line
}

pub(crate) fn start(settings: &[(String, String)]) -> StartLine {
    let mut line = StartLine::default();
    line.ts_unix_ms = Some(TS_UNIX_MS);
    line.seq = Some(1);
    line.version = "0.1.0".into();
    line.pid = 4_242;
    line.cores = Some(4);
    line.settings =
        settings.iter().map(|(name, value)| (name.clone().into(), value.clone())).collect();
    line
}

pub(crate) fn stop(reason: &str) -> StopLine {
    let mut line = StopLine::default();
    line.ts_unix_ms = Some(TS_UNIX_MS);
    line.seq = Some(9);
    line.reason = reason.into();
    line.uptime_ms = 86_400_000.0;
    line.requests_count = 5;
    line
}

pub(crate) fn dropped(error: Option<&str>) -> DroppedLine {
    let mut line = DroppedLine::default();
    line.ts_unix_ms = Some(TS_UNIX_MS);
    line.seq = Some(10);
    line.dropped_count = 131;
    line.queue_full_count = 130;
    line.write_failed_count = 1;
    line.error = error.map(str::to_owned);
    line
}

/// The lines of `golden/lines.jsonl`, in its order.
pub(crate) fn golden() -> Vec<Line> {
    let settings = [("listen", "127.0.0.1:9080"), ("max-inflight", "4")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut embedding = open("/v1/embeddings");
    embedding.model = Some("all-MiniLM-L6-v2".into());
    vec![
        Line::Start(Box::new(start(&settings))),
        Line::Request(Box::new(bare_request())),
        Line::Request(Box::new(chat_request())),
        Line::Request(Box::new(full_request("a\"b\\c\n\u{0}\u{2028}é🦀", 3, 12.25))),
        Line::Open(Box::new(embedding)),
        Line::Dropped(Box::new(dropped(Some("No space left on device (os error 28)")))),
        Line::Stop(Box::new(stop("SIGTERM"))),
    ]
}
