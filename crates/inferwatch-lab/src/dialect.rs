//! What each model server says: routes, heads, events and bodies, in its own words.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod anthropic;
mod ask;
mod embed;
mod llama_cpp;
mod ollama;
mod openai;
mod responses;
mod route;
mod text;

use std::fmt;
use std::str::FromStr;

pub(crate) use ask::Ask;
pub(crate) use route::{Route, route};

use crate::engine::Timings;
use crate::sse::Framing;

/// A kind of model server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// llama-server: native routes, OpenAI, Responses and Anthropic shapes, `timings`.
    LlamaCpp,
    /// The OpenAI platform or vLLM: chat, completions, embeddings, Responses.
    OpenAi,
    /// The Anthropic messages route.
    Anthropic,
    /// Ollama: NDJSON native routes, and the OpenAI shapes under `/v1`.
    Ollama,
    /// Text Embeddings Inference: counts in headers.
    Tei,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 5] =
        [Dialect::LlamaCpp, Dialect::OpenAi, Dialect::Anthropic, Dialect::Ollama, Dialect::Tei];

    /// Its name in flags.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::LlamaCpp => "llama-cpp",
            Dialect::OpenAi => "openai",
            Dialect::Anthropic => "anthropic",
            Dialect::Ollama => "ollama",
            Dialect::Tei => "tei",
        }
    }

    /// Header fields of every answer.
    pub(crate) fn headers(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Dialect::LlamaCpp => &[("Server", "llama.cpp"), ("Access-Control-Allow-Origin", "")],
            Dialect::OpenAi => &[("server", "uvicorn"), ("x-request-id", "req_lab")],
            Dialect::Anthropic => &[("request-id", "req_lab")],
            Dialect::Ollama => &[("Date", "Thu, 01 Jan 2026 00:00:00 GMT")],
            Dialect::Tei => &[("vary", "origin, access-control-request-method")],
        }
    }

    /// The body of an error answer.
    pub(crate) fn error_body(self, status: u16, message: &str) -> String {
        let message = text::json(message);
        match self {
            Dialect::LlamaCpp => {
                let kind = llama_cpp::error_type(status);
                format!(r#"{{"error":{{"code":{status},"message":{message},"type":"{kind}"}}}}"#)
            }
            Dialect::OpenAi => format!(
                r#"{{"error":{{"message":{message},"type":"server_error","param":null,"code":null}}}}"#
            ),
            Dialect::Anthropic => {
                format!(r#"{{"type":"error","error":{{"type":"api_error","message":{message}}}}}"#)
            }
            Dialect::Ollama => format!(r#"{{"error":{message}}}"#),
            Dialect::Tei => {
                let kind = embed::tei_error_type(status);
                format!(r#"{{"error":{message},"error_type":"{kind}"}}"#)
            }
        }
    }

    /// The same inside a stream that began with 200, framed.
    pub(crate) fn error_event(self, framing: Framing, message: &str) -> String {
        let body = self.error_body(500, message);
        match (framing, self) {
            (Framing::Ndjson, _) => format!("{body}\n"),
            (Framing::Sse, Dialect::Anthropic) => format!("event: error\ndata: {body}\n\n"),
            (Framing::Sse, _) => format!("data: {body}\n\n"),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(name: &str) -> Result<Dialect, String> {
        let known = || Dialect::ALL.map(Dialect::as_str).join(", ");
        let found = Dialect::ALL.into_iter().find(|dialect| dialect.as_str() == name);
        found.ok_or_else(|| format!("{name:?} is no dialect; there are {}", known()))
    }
}

/// What an answer is made from.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) dialect: Dialect,
    /// Name that the server gives its model.
    pub(crate) model: String,
    /// Length of an embedding.
    pub(crate) dimensions: usize,
    pub(crate) ask: Ask,
}

impl Context {
    /// Why generation stops: at its limit if one was asked for.
    pub(crate) fn is_limited(&self) -> bool {
        self.ask.max_tokens.is_some()
    }

    /// The whole generated text.
    pub(crate) fn text(&self, tokens: u64) -> String {
        (0..tokens).map(text::token).collect()
    }
}

/// The words of one route. Events come framed, one string each.
pub(crate) trait Voice: Sync {
    /// How a streamed answer is framed; `None` if this route never streams.
    fn framing(&self) -> Option<Framing>;

    /// Whether an answer is streamed when the request does not say.
    fn streams_by_default(&self) -> bool {
        false
    }

    /// Whether tokens are generated at all.
    fn generates(&self) -> bool {
        true
    }

    /// Events before the first token.
    fn opening(&self, _context: &Context) -> Vec<String> {
        Vec::new()
    }

    /// The event of one token.
    fn token(&self, _context: &Context, _index: u64) -> String {
        String::new()
    }

    /// Events after the last token.
    fn closing(&self, _context: &Context, _timings: &Timings) -> Vec<String> {
        Vec::new()
    }

    /// The whole answer as one document.
    fn whole(&self, context: &Context, timings: &Timings) -> String;

    /// Header fields that only a finished answer can have.
    fn extra_headers(&self, _context: &Context, _timings: &Timings) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

fn data(json: impl fmt::Display) -> String {
    format!("data: {json}\n\n")
}

fn event(name: &str, json: impl fmt::Display) -> String {
    format!("event: {name}\ndata: {json}\n\n")
}
