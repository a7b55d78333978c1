//! What the headers of an answer say about it: format, coding, and the counts and times that
//! some servers put there (TEI, TGI, `Server-Timing`).

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, SERVER};

use super::decode::Coding;

/// How the body is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `text/event-stream`.
    Events,
    /// One JSON document a line.
    Lines,
    /// One JSON document.
    Document,
    /// Anything else is not looked into.
    Bytes,
}

impl Format {
    /// Reads the value of a `Content-Type` header.
    fn from_header(value: &str) -> Format {
        let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Format::Events,
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines"
            | "application/json-seq"
            | "application/stream+json" => Format::Lines,
            "application/json" | "text/json" => Format::Document,
            other if other.ends_with("+json") => Format::Document,
            _ => Format::Bytes,
        }
    }

    /// Whether the answer is a stream of events.
    pub(super) fn is_stream(self) -> bool {
        matches!(self, Format::Events | Format::Lines)
    }
}

/// What the headers of an answer say.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HeadFacts {
    pub(super) format: Format,
    pub(super) coding: Coding,
    pub(super) is_llama_cpp: bool,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    pub(super) queue_ms: Option<f64>,
    /// Tokenization and inference.
    pub(super) work_ms: Option<f64>,
    pub(super) encode_ms: Option<f64>,
    pub(super) retrieve_ms: Option<f64>,
    pub(super) rerank_ms: Option<f64>,
    pub(super) generate_ms: Option<f64>,
}

impl HeadFacts {
    /// Reads the head of an answer.
    pub(super) fn new(headers: &HeaderMap) -> HeadFacts {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let timing = |stage: &str| server_timing(headers, stage);
        let inference = text("x-inference-time").and_then(duration_ms);
        let tokenization = text("x-tokenization-time").and_then(duration_ms);
        let content_type = text(CONTENT_TYPE.as_str()).unwrap_or_default();
        HeadFacts {
            format: Format::from_header(content_type),
            coding: coding(headers),
            is_llama_cpp: text(SERVER.as_str()) == Some("llama.cpp"),
            prompt_tokens: text("x-compute-tokens")
                .and_then(count)
                .or_else(|| text("x-prompt-tokens").and_then(count)),
            completion_tokens: text("x-generated-tokens").and_then(count),
            queue_ms: text("x-queue-time").and_then(duration_ms),
            work_ms: inference.map(|inference| inference + tokenization.unwrap_or(0.0)),
            encode_ms: timing("encode"),
            retrieve_ms: timing("retrieve"),
            rerank_ms: timing("rerank"),
            generate_ms: timing("generate"),
        }
    }
}

/// How the body of these headers is packed.
pub(super) fn coding(headers: &HeaderMap) -> Coding {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    match (values.next(), values.next()) {
        (None, _) => Coding::Identity,
        (Some(value), None) => value.to_str().map_or(Coding::Other, Coding::from_header),
        _ => Coding::Other,
    }
}

fn count(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn duration_ms(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
}

/// The duration of a stage in `Server-Timing: encode;dur=12.3, retrieve;dur=4.5`.
fn server_timing(headers: &HeaderMap, stage: &str) -> Option<f64> {
    let values = headers.get_all("server-timing").iter().filter_map(|value| value.to_str().ok());
    let mut metrics = values.flat_map(|value| value.split(','));
    metrics.find_map(|metric| {
        let mut parts = metric.split(';').map(str::trim);
        let named = parts.next()?.eq_ignore_ascii_case(stage);
        let mut durations = parts.filter_map(|part| part.split_once('='));
        let (_, value) = durations.find(|(name, _)| name.trim().eq_ignore_ascii_case("dur"))?;
        named.then(|| duration_ms(value.trim().trim_matches('"'))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(lines: &[(&'static str, &'static str)]) -> HeadFacts {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, http::HeaderValue::from_static(value));
        }
        HeadFacts::new(&headers)
    }

    #[test]
    fn the_content_type_decides_the_format() {
        let check = |value: &'static str, expected| {
            assert_eq!(facts(&[("content-type", value)]).format, expected, "{value}");
        };
        check("text/event-stream", Format::Events);
        check("Text/Event-Stream;charset=utf-8", Format::Events);
        check("application/x-ndjson", Format::Lines);
        check("application/json; charset=utf-8", Format::Document);
        check("application/problem+json", Format::Document);
        check("text/html", Format::Bytes);
        check("", Format::Bytes);
        assert_eq!(facts(&[]).format, Format::Bytes);
    }

    #[test]
    fn tei_says_counts_and_times_and_zero_is_a_value() {
        let tei = facts(&[
            ("x-compute-tokens", "74"),
            ("x-queue-time", "0"),
            ("x-tokenization-time", "0"),
            ("x-inference-time", "39"),
        ]);
        assert_eq!(
            (tei.prompt_tokens, tei.queue_ms, tei.work_ms),
            (Some(74), Some(0.0), Some(39.0))
        );
        let bad = facts(&[("x-compute-tokens", "-3"), ("x-queue-time", "NaN")]);
        assert_eq!((bad.prompt_tokens, bad.queue_ms, bad.work_ms), (None, None, None));
    }

    #[test]
    fn server_timing_fills_the_stages() {
        let check = |value: &'static str, expected| {
            let facts = facts(&[("server-timing", value)]);
            let stages = [facts.encode_ms, facts.retrieve_ms, facts.rerank_ms, facts.generate_ms];
            assert_eq!(stages, expected, "{value}");
        };
        check("encode;dur=12.3, retrieve;dur=4.5", [Some(12.3), Some(4.5), None, None]);
        check("Rerank; desc=x; dur=\"30\" ,generate;dur=0", [None, None, Some(30.0), Some(0.0)]);
        check("encode, rerank;dur=-1, generate;dur=x", [None; 4]);
        check(";;;=,,=", [None; 4]);
    }

    #[test]
    fn a_coding_that_is_not_understood_is_said_so() {
        let check = |lines: &[(&'static str, &'static str)], expected| {
            assert_eq!(facts(lines).coding, expected, "{lines:?}");
        };
        check(&[], Coding::Identity);
        check(&[("content-encoding", "GZIP")], Coding::Gzip);
        check(&[("content-encoding", "br")], Coding::Other);
        check(&[("content-encoding", "gzip, gzip")], Coding::Other);
        check(&[("content-encoding", "gzip"), ("content-encoding", "gzip")], Coding::Other);
    }
}
