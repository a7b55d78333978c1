//! Watches one exchange with a model server and says what happened: a pure state machine that
//! is fed the bytes as they pass, with the time as an argument, and keeps at most 64 KiB.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod answer;
mod capped;
mod clock;
mod conclude;
mod decode;
mod failure;
mod headers;
mod json;
mod keys;
mod ndjson;
mod request;
mod route;
mod sse;
mod stages;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;

use std::time::Duration;

use http::header::{CONTENT_TYPE, UPGRADE};
use http::{HeaderMap, Method, StatusCode};
use inferwatch_record::{Outcome, ParseTrouble, RequestLine, TokensSrc};

pub use route::{Dialect, RouteKind, route};

use answer::Answer;
use conclude::Seen;
use decode::Coding;
use headers::HeadFacts;
use keys::Words;
use request::Request;
use tokens::Tokens;

/// The parts that stand on their own, for the fuzz targets.
#[doc(hidden)]
pub mod fuzzing {
    pub use super::decode::{Coding, Decoder};
    pub use super::json::{Node, Scanner, Sink, Value};
    pub use super::ndjson::feed as feed_lines;
    pub use super::sse::{Framed, Framer};
}

/// Longest kept text beside the window of a decoder, so that both fit the bound.
const MAX_TEXT_BESIDE_DECODER_BYTES: usize = 12 << 10;

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path without query.
    pub path: &'a str,
    /// The headers.
    pub headers: &'a HeaderMap,
}

/// How the body of an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// Where its framing says that it ends: the last chunk, the length, or the end of a connection
    /// that is the only mark.
    Complete,
    /// The connection closed inside the body.
    Cut,
    /// The client left.
    Abandoned,
}

/// The observer of one exchange. It holds at most 64 KiB, heap included.
///
/// Times are counted from the first byte of the request.
#[derive(Debug)]
pub struct Observer {
    kind: RouteKind,
    dialect: Dialect,
    is_head_request: bool,
    request: Request,
    request_bytes: u64,
    request_end: Option<Duration>,
    request_read: bool,
    request_trouble: Option<ParseTrouble>,
    /// The request claims to be JSON.
    request_claims_json: bool,
    answer: Option<Box<Answer>>,
}

impl Observer {
    /// Begins with the head of the request. `keep_text`: keep up to 40 KiB of the text that the
    /// model reads, for a tokenizer.
    pub fn new(head: &RequestHead<'_>, keep_text: bool) -> Observer {
        let (kind, dialect) = route(head.path);
        let kind = refined_kind(head, kind);
        let content_type = head.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
        let claims = |kind: &[u8]| content_type.is_some_and(|value| value.starts_with(kind));
        let packed = headers::coding(head.headers) != Coding::Identity;
        let multipart = claims(b"multipart/") || claims(b"application/octet-stream");
        let read = kind != RouteKind::Opaque && !multipart;
        Observer {
            kind,
            dialect,
            is_head_request: head.method == Method::HEAD,
            request: Request::new(keep_text && kind.is_model_work()),
            request_bytes: 0,
            request_end: None,
            request_read: read && !packed,
            request_trouble: (read && packed).then_some(ParseTrouble::Encoded),
            request_claims_json: claims(b"application/json"),
            answer: None,
        }
    }

    /// What the request asks for.
    pub fn kind(&self) -> RouteKind {
        self.kind
    }

    /// Whose shapes the caller expects.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Takes a piece of the request's body.
    pub fn request_chunk(&mut self, bytes: &[u8]) {
        self.request_bytes = self.request_bytes.saturating_add(bytes.len() as u64);
        if self.request_read {
            self.request.feed(bytes);
            self.request_read = !self.request.is_broken();
            if !self.request_read && self.request_claims_json {
                self.request_trouble = Some(ParseTrouble::GaveUp);
            }
        }
    }

    /// The request has been sent whole.
    pub fn request_end(&mut self, at: Duration) {
        self.request_end.get_or_insert(at);
    }

    /// Takes the head of the answer; interim ones (1xx) are not for here.
    pub fn response_head(&mut self, status: StatusCode, headers: &HeaderMap, at: Duration) {
        let answer = Answer::new(self.kind, status, HeadFacts::new(headers), at);
        if answer.is_decoded() {
            self.request.limit_kept(MAX_TEXT_BESIDE_DECODER_BYTES);
        }
        self.answer = Some(Box::new(answer));
    }

    /// Takes a piece of the answer's body. Pieces with the same `at` came in one read.
    pub fn response_chunk(&mut self, bytes: &[u8], at: Duration) {
        if let Some(answer) = &mut self.answer {
            answer.chunk(bytes, at);
        }
    }

    /// When the first token came, so far.
    pub fn first_token_at(&self) -> Option<Duration> {
        self.answer.as_ref()?.first_token_at()
    }

    /// The model that serves, as far as the answer has come, else the one that was asked for.
    pub fn model(&self) -> Option<&str> {
        let served = self.answer.as_ref().and_then(|answer| answer.tally().word(Words::Model));
        served.or_else(|| self.request.model())
    }

    /// Ends the observation at `at` and fills what it knows of the line: everything but route,
    /// status, total, memory, `inflight` and id. Returns the outcome as the body tells it; `None`
    /// if the client left or no answer came.
    pub fn conclude(
        &mut self,
        how: BodyEnd,
        at: Duration,
        line: &mut RequestLine,
    ) -> Option<Outcome> {
        if let Some(answer) = &mut self.answer {
            answer.end();
        }
        line.bytes_in = Some(self.request_bytes);
        line.parse =
            self.answer.as_ref().and_then(|answer| answer.trouble).or(self.request_trouble);
        self.seen(how, at).conclude(line)
    }

    /// The text of the request for a tokenizer, if it was asked for and kept whole and nobody
    /// reported a count.
    pub fn take_text(&mut self) -> Option<String> {
        let text = self.request.take_text()?;
        let counted = Tokens::new(&self.seen(BodyEnd::Complete, Duration::ZERO)).src;
        (counted == TokensSrc::None).then_some(text)
    }

    fn seen(&self, how: BodyEnd, end: Duration) -> Seen<'_> {
        Seen {
            kind: self.kind,
            is_head_request: self.is_head_request,
            request: &self.request,
            request_end: self.request_end,
            answer: self.answer.as_deref(),
            how,
            end,
        }
    }

    /// Heap bytes held.
    #[cfg(test)]
    fn heap_bytes(&self) -> usize {
        let answer = |answer: &Answer| size_of::<Answer>() + answer.heap_bytes();
        self.request.heap_bytes() + self.answer.as_deref().map_or(0, answer)
    }
}

/// The kind by path, unless method or headers speak against it.
fn refined_kind(head: &RequestHead<'_>, kind: RouteKind) -> RouteKind {
    if head.headers.contains_key(UPGRADE) || head.method == Method::CONNECT {
        RouteKind::Opaque
    } else if kind.is_model_work() && head.method != Method::POST {
        RouteKind::NoModelWork
    } else {
        kind
    }
}
