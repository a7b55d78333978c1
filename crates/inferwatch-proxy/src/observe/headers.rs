//! What the headers of an answer say about it: format, coding, and the counts and times that
//! some servers put there (TEI, TGI, `Server-Timing`).

use http::HeaderMap;
use http::header::CONTENT_ENCODING;

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
        const LINES: [&str; 6] = [
            "application/x-ndjson",
            "application/ndjson",
            "application/jsonl",
            "application/x-jsonlines",
            "application/json-seq",
            "application/stream+json",
        ];
        let kind = value.split(';').next().unwrap_or_default().trim();
        let is = |known: &str| kind.eq_ignore_ascii_case(known);
        let suffix = kind.len().checked_sub("+json".len()).and_then(|at| kind.get(at..));
        if is("application/json") || is("text/json") {
            Format::Document
        } else if is("text/event-stream") {
            Format::Events
        } else if LINES.into_iter().any(is) {
            Format::Lines
        } else if suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case("+json")) {
            Format::Document
        } else {
            Format::Bytes
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

/// What the headers said, of two that say the same the first.
#[derive(Default)]
struct Said<'a> {
    content_type: Option<&'a str>,
    server: Option<&'a str>,
    compute_tokens: Option<&'a str>,
    prompt_tokens: Option<&'a str>,
    generated_tokens: Option<&'a str>,
    queue_time: Option<&'a str>,
    tokenization_time: Option<&'a str>,
    inference_time: Option<&'a str>,
    /// encode, retrieve, rerank, generate.
    stages_ms: [Option<f64>; 4],
}

impl<'a> Said<'a> {
    fn hear(&mut self, name: &str, text: &'a str) {
        let place = match name {
            "content-type" => &mut self.content_type,
            "server" => &mut self.server,
            "x-compute-tokens" => &mut self.compute_tokens,
            "x-prompt-tokens" => &mut self.prompt_tokens,
            "x-generated-tokens" => &mut self.generated_tokens,
            "x-queue-time" => &mut self.queue_time,
            "x-tokenization-time" => &mut self.tokenization_time,
            "x-inference-time" => &mut self.inference_time,
            "server-timing" => return text.split(',').for_each(|metric| self.hear_stage(metric)),
            _ => return,
        };
        place.get_or_insert(text);
    }

    /// One metric of `Server-Timing: encode;dur=12.3, retrieve;dur=4.5`.
    fn hear_stage(&mut self, metric: &str) {
        let mut parts = metric.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let stages = ["encode", "retrieve", "rerank", "generate"];
        let Some(stage) = stages.iter().position(|stage| name.eq_ignore_ascii_case(stage)) else {
            return;
        };
        let mut parts = parts.filter_map(|part| part.split_once('='));
        let duration = parts.find(|(name, _)| name.trim().eq_ignore_ascii_case("dur"));
        let ms = duration.and_then(|(_, value)| duration_ms(value.trim().trim_matches('"')));
        self.stages_ms[stage] = self.stages_ms[stage].or(ms);
    }
}

impl HeadFacts {
    /// Reads the head of an answer.
    pub(super) fn new(headers: &HeaderMap) -> HeadFacts {
        let mut said = Said::default();
        for (name, value) in headers {
            if let Ok(text) = value.to_str() {
                said.hear(name.as_str(), text);
            }
        }
        let ms = |text: Option<&str>| text.and_then(duration_ms);
        let tokens = |text: Option<&str>| text.and_then(count);
        let tokenization_ms = ms(said.tokenization_time).unwrap_or(0.0);
        let [encode_ms, retrieve_ms, rerank_ms, generate_ms] = said.stages_ms;
        HeadFacts {
            format: Format::from_header(said.content_type.unwrap_or_default()),
            coding: coding(headers),
            is_llama_cpp: said.server == Some("llama.cpp"),
            prompt_tokens: tokens(said.compute_tokens).or(tokens(said.prompt_tokens)),
            completion_tokens: tokens(said.generated_tokens),
            queue_ms: ms(said.queue_time),
            work_ms: ms(said.inference_time).map(|inference_ms| inference_ms + tokenization_ms),
            encode_ms,
            retrieve_ms,
            rerank_ms,
            generate_ms,
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
