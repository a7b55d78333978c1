//! Prebuilt answers for benchmarks: the fake server then costs next to nothing, and what stands
//! before it is what is measured.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use bytes::Bytes;

use crate::answer::{stream_head, whole_head};
use crate::dialect::{Ask, Context, Dialect, Route, route};
use crate::engine::Timings;
use crate::script::{Script, Step};
use crate::wire;

/// What the prebuilt stream looks like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instant {
    /// Token events in a stream.
    pub events_count: u64,
    /// Token events per second in each stream; 0 for as fast as they can be written.
    pub events_per_s: f64,
}

/// The answers, built once.
#[derive(Debug)]
pub(crate) struct Prebuilt {
    whole: Bytes,
    opening: Bytes,
    token: Bytes,
    closing: Bytes,
    streams: bool,
    streams_by_default: bool,
    events_count: u64,
    gap: Duration,
}

impl Prebuilt {
    /// The answers of the dialect's main route; `None` if it has no such route.
    pub(crate) fn new(dialect: Dialect, model: &str, instant: Instant) -> Option<Prebuilt> {
        let path = match dialect {
            Dialect::LlamaCpp | Dialect::OpenAi => "/v1/chat/completions",
            Dialect::Anthropic => "/v1/messages",
            Dialect::Ollama => "/api/chat",
            Dialect::Tei => "/embed",
        };
        let Some(Route::Work(voice)) = route(dialect, "POST", path) else { return None };
        let timings = timings(instant.events_count);
        let ask = Ask { prompt_tokens: timings.prompt_tokens, ..Ask::default() };
        let context = Context { dialect, model: model.to_owned(), dimensions: 384, ask };
        let body = voice.whole(&context, &timings);
        let extra = voice.extra_headers(&context, &timings);
        let mut whole = whole_head(dialect, 200, body.len() as u64, &extra, false);
        whole.extend_from_slice(body.as_bytes());
        let mut opening = voice.framing().map_or(Vec::new(), |f| stream_head(dialect, f, false));
        opening.extend(wire::chunk(voice.opening(&context).concat().as_bytes()));
        let mut closing = wire::chunk(voice.closing(&context, &timings).concat().as_bytes());
        closing.extend_from_slice(wire::LAST_CHUNK);
        Some(Prebuilt {
            whole: whole.into(),
            opening: opening.into(),
            token: wire::chunk(voice.token(&context, 1).as_bytes()).into(),
            closing: closing.into(),
            streams: voice.framing().is_some(),
            streams_by_default: voice.streams_by_default(),
            events_count: instant.events_count,
            gap: gap(instant.events_per_s),
        })
    }

    /// The answer to a request with this body.
    pub(crate) fn answer(&self, request_body: &[u8]) -> Script {
        if !self.is_stream(request_body) {
            return Script::new().send(self.whole.clone());
        }
        let (bytes, count) = (self.token.clone(), self.events_count);
        Script::new()
            .send(self.opening.clone())
            .then(Step::Repeat { bytes, count, gap: self.gap })
            .send(self.closing.clone())
    }

    // A search, no parser: the bodies of a benchmark are its own.
    fn is_stream(&self, body: &[u8]) -> bool {
        let says = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
        let asks = says(r#""stream":true"#) || says(r#""stream": true"#);
        let declines = says(r#""stream":false"#) || says(r#""stream": false"#);
        self.streams && (asks || self.streams_by_default && !declines)
    }
}

fn gap(events_per_s: f64) -> Duration {
    if events_per_s > 0.0 { Duration::from_secs_f64(1.0 / events_per_s) } else { Duration::ZERO }
}

fn timings(completion_tokens: u64) -> Timings {
    Timings {
        prompt_tokens: 32,
        completion_tokens,
        queue: Duration::ZERO,
        prompt: Duration::from_millis(20),
        generate: Duration::from_millis(200),
    }
}
