//! Formats a line by hand into bytes. Serde would cost twice as much per line and would let
//! the wire follow the struct; here the wire order stands in one place.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use crate::escape::put_capped;
use crate::line::{DroppedLine, Line, OpenLine, RequestLine, StartLine, StopLine};
use crate::timestamp::put_ts;

/// No line is longer, its newline included: a pipe takes a write of this size whole
/// (`PIPE_BUF` on Linux).
pub(crate) const LINE_BYTES: usize = 4096;

const ROUTE_BYTES: usize = 512;
const MODEL_BYTES: usize = 256;
const ERROR_BYTES: usize = 256;
const WORD_BYTES: usize = 128;
/// Kept free in a `start` line for the count of settings that did not fit.
const LEFT_OUT_BYTES: usize = 64;
/// Larger numbers are no measurement, and would have up to 309 digits.
const NUMBER_LIMIT: f64 = 1e14;

/// Appends `line` as one JSON object and its newline: at most 4,096 bytes, whatever the fields hold.
///
/// ```
/// let mut line = inferwatch_record::RequestLine::default();
/// line.route = "/v1/embeddings\n{\"forged\":true}".into();
/// let mut bytes = Vec::new();
/// inferwatch_record::format_line(&inferwatch_record::Line::Request(Box::new(line)), &mut bytes);
/// assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
/// ```
pub fn format_line(line: &Line, out: &mut Vec<u8>) {
    let seq = line.seq();
    let mut object = match line {
        Line::Request(line) => request(Object::begin(out, line.ts_unix_ms, "request", seq), line),
        Line::Open(line) => open(Object::begin(out, line.ts_unix_ms, "open", seq), line),
        Line::Start(line) => start(Object::begin(out, line.ts_unix_ms, "start", seq), line),
        Line::Stop(line) => stop(Object::begin(out, line.ts_unix_ms, "stop", seq), line),
        Line::Dropped(line) => dropped(Object::begin(out, line.ts_unix_ms, "dropped", seq), line),
        Line::Unknown { ts_unix_ms, kind, .. } => Object::begin(out, *ts_unix_ms, kind, seq),
    };
    object.end();
}

fn request<'a>(mut object: Object<'a>, line: &RequestLine) -> Object<'a> {
    object.known("id", text(&line.id, WORD_BYTES));
    request_fixed(&mut object, line);
    request_known(&mut object, line);
    object
}

/// The thirteen that are always there, in the order of the contract.
fn request_fixed(object: &mut Object<'_>, line: &RequestLine) {
    object.always("route", Some(Text(&line.route, ROUTE_BYTES)));
    object.always("model", text(&line.model, MODEL_BYTES));
    object.always("prompt_tokens", line.prompt_tokens);
    object.always("completion_tokens", line.completion_tokens);
    object.always("encode_ms", line.encode_ms);
    object.always("retrieve_ms", line.retrieve_ms);
    object.always("rerank_ms", line.rerank_ms);
    object.always("generate_ms", line.generate_ms);
    object.always("total_ms", Some(line.total_ms));
    object.always("rss_mb", line.rss_mb);
    object.always("inflight", line.inflight);
    object.always("cache_hit", line.cache_hit);
    object.always("status", line.status.map(u64::from));
}

fn request_known(object: &mut Object<'_>, line: &RequestLine) {
    object.known("outcome", line.outcome.map(|outcome| Text(outcome.as_str(), WORD_BYTES)));
    object.known("error", text(&line.error, ERROR_BYTES));
    object.known("upstream", text(&line.upstream, WORD_BYTES));
    object.known("upstream_status", line.upstream_status.map(u64::from));
    object.known("requested_model", text(&line.requested_model, MODEL_BYTES));
    object.known("stream", line.stream);
    object.known("finish", text(&line.finish, WORD_BYTES));
    object.known("tokens_src", line.tokens_src.map(|src| Text(src.as_str(), WORD_BYTES)));
    object.known("est_prompt_tokens", line.est_prompt_tokens);
    object.known("cached_tokens", line.cached_tokens);
    object.known("completion_tokens_partial", line.completion_tokens_partial);
    object.known("batch", line.batch);
    object.known("queue_ms", line.queue_ms);
    object.known("load_ms", line.load_ms);
    object.known("headers_ms", line.headers_ms);
    object.known("prefill_ms", line.prefill_ms);
    object.known("ttft_ms", line.ttft_ms);
    object.known("decode_tokens_per_s", line.decode_tokens_per_s);
    object.known("coalesced", line.coalesced);
    object.known("rss_start_mb", line.rss_start_mb);
    object.known("anon_mb", line.anon_mb);
    object.known("anon_start_mb", line.anon_start_mb);
    object.known("bytes_in", line.bytes_in);
    object.known("bytes_out", line.bytes_out);
    object.known("capped_max_tokens", line.capped_max_tokens);
    object.known("parse", line.parse.map(|trouble| Text(trouble.as_str(), WORD_BYTES)));
    object.known("trace_id", text(&line.trace_id, WORD_BYTES));
    object.known("client", text(&line.client, WORD_BYTES));
}

fn open<'a>(mut object: Object<'a>, line: &OpenLine) -> Object<'a> {
    object.known("id", text(&line.id, WORD_BYTES));
    object.always("route", Some(Text(&line.route, ROUTE_BYTES)));
    object.always("model", text(&line.model, MODEL_BYTES));
    object.always("age_ms", Some(line.age_ms));
    object.always("inflight", line.inflight);
    object.always("headers_ms", line.headers_ms);
    object.always("ttft_ms", line.ttft_ms);
    object
}

fn start<'a>(mut object: Object<'a>, line: &StartLine) -> Object<'a> {
    object.always("version", Some(Text(&line.version, WORD_BYTES)));
    object.always("pid", Some(u64::from(line.pid)));
    object.always("cores", line.cores);
    let mut left_out = line.settings_left_out_count.unwrap_or(0);
    for (name, value) in &line.settings {
        left_out += u64::from(!object.setting(name, value));
    }
    object.known("settings_left_out_count", (left_out > 0).then_some(left_out));
    object
}

fn stop<'a>(mut object: Object<'a>, line: &StopLine) -> Object<'a> {
    object.always("reason", Some(Text(&line.reason, WORD_BYTES)));
    object.always("uptime_ms", Some(line.uptime_ms));
    object.always("requests_count", Some(line.requests_count));
    object.always("unfinished_count", Some(line.unfinished_count));
    object
}

fn dropped<'a>(mut object: Object<'a>, line: &DroppedLine) -> Object<'a> {
    object.always("dropped_count", Some(line.dropped_count));
    object.always("queue_full_count", Some(line.queue_full_count));
    object.always("write_failed_count", Some(line.write_failed_count));
    object.known("error", text(&line.error, ERROR_BYTES));
    object
}

fn text(value: &Option<String>, cap_bytes: usize) -> Option<Text<'_>> {
    value.as_deref().map(|value| Text(value, cap_bytes))
}

/// A JSON object under construction; its first field is always `ts`.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>, ts: Option<u64>, kind: &str, seq: Option<u64>) -> Self {
        let start = out.len();
        out.extend_from_slice(b"{\"ts\":");
        match ts {
            Some(unix_ms) => {
                out.push(b'"');
                put_ts(out, unix_ms);
                out.push(b'"');
            }
            None => out.extend_from_slice(b"null"),
        }
        let mut object = Object { out, start };
        object.always("kind", Some(Text(kind, WORD_BYTES)));
        object.known("seq", seq);
        object
    }

    fn always(&mut self, name: &str, value: Option<impl Value>) {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        match value {
            Some(value) => value.put(self.out),
            None => self.out.extend_from_slice(b"null"),
        }
    }

    fn known(&mut self, name: &str, value: Option<impl Value>) {
        if let Some(value) = value
            && value.is_known()
        {
            self.always(name, Some(value));
        }
    }

    /// Writes a setting unless the line has no room for it.
    fn setting(&mut self, name: &str, value: &str) -> bool {
        let before = self.out.len();
        let word = |ch: char| if ch.is_ascii_alphanumeric() { ch } else { '_' };
        let name: String = "set_".chars().chain(name.chars().map(word)).collect();
        self.always(&name, Some(Text(value, WORD_BYTES)));
        let fits = self.out.len() - self.start + LEFT_OUT_BYTES <= LINE_BYTES;
        if !fits {
            self.out.truncate(before);
        }
        fits
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"}\n");
    }
}

trait Value: Sized {
    /// A number may turn out to be no measurement.
    fn is_known(&self) -> bool {
        true
    }

    fn put(self, out: &mut Vec<u8>);
}

/// A string and the bytes it may take.
struct Text<'a>(&'a str, usize);

impl Value for Text<'_> {
    fn put(self, out: &mut Vec<u8>) {
        put_capped(out, self.0, self.1);
    }
}

impl Value for bool {
    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self { b"true" } else { b"false" });
    }
}

impl Value for u64 {
    fn put(self, out: &mut Vec<u8>) {
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = self;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        out.extend_from_slice(&digits[first..]);
    }
}

impl Value for f64 {
    fn is_known(&self) -> bool {
        (0.0..NUMBER_LIMIT).contains(self)
    }

    /// At most one decimal; what is no measurement becomes `null`.
    fn put(self, out: &mut Vec<u8>) {
        if !self.is_known() {
            return out.extend_from_slice(b"null");
        }
        let tenths = (self * 10.0).round() as u64;
        (tenths / 10).put(out);
        if !tenths.is_multiple_of(10) {
            out.extend_from_slice(&[b'.', b'0' + (tenths % 10) as u8]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: impl Value) -> String {
        let mut out = Vec::new();
        value.put(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_have_at_most_one_decimal() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.04, "0"),
            (0.05, "0.1"),
            (12.0, "12"),
            (12.34, "12.3"),
            (12.96, "13"),
            (99_999_999_999_999.9, "99999999999999.9"),
            (1e14, "null"),
            (1e300, "null"),
            (-0.1, "null"),
            (f64::NAN, "null"),
            (f64::INFINITY, "null"),
            (f64::NEG_INFINITY, "null"),
        ] {
            assert_eq!(put(value), expected, "{value}");
        }
    }

    #[test]
    fn whole_numbers_are_exact() {
        for value in [0, 9, 10, 1_000_000_007, u64::MAX - 1, u64::MAX] {
            assert_eq!(put(value), value.to_string());
        }
    }
}
