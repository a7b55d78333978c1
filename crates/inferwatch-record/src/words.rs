//! The closed lists of words that a line can say, and how they stand on the wire.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt;

/// How a request ended. Exactly one of these stands in every `request` line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The answer was complete, by the end marker of its own format.
    Ok,
    /// The upstream answered 4xx.
    Rejected,
    /// The upstream answered 5xx, or went away before it answered at all.
    UpstreamError,
    /// HTTP 200, and an error inside the stream.
    ErrorInStream,
    /// The body ended before its own end marker.
    Truncated,
    /// The client left while the answer was running.
    ClientClosed,
    /// The client left before the answer began (in the queue, or during prefill).
    ClientClosedWaiting,
    /// The upstream could not be reached.
    ConnectFailed,
    /// A time limit of the service that wrote the line ran out.
    Timeout,
    /// Refused by an admission limit before the upstream saw it.
    Shed,
    /// The model server was killed while it worked on this request.
    UpstreamKilled,
}

impl Outcome {
    /// Every outcome, in the order of SCHEMA.md.
    pub const ALL: [Outcome; 11] = [
        Outcome::Ok,
        Outcome::Rejected,
        Outcome::UpstreamError,
        Outcome::ErrorInStream,
        Outcome::Truncated,
        Outcome::ClientClosed,
        Outcome::ClientClosedWaiting,
        Outcome::ConnectFailed,
        Outcome::Timeout,
        Outcome::Shed,
        Outcome::UpstreamKilled,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Rejected => "rejected",
            Outcome::UpstreamError => "upstream_error",
            Outcome::ErrorInStream => "error_in_stream",
            Outcome::Truncated => "truncated",
            Outcome::ClientClosed => "client_closed",
            Outcome::ClientClosedWaiting => "client_closed_waiting",
            Outcome::ConnectFailed => "connect_failed",
            Outcome::Timeout => "timeout",
            Outcome::Shed => "shed",
            Outcome::UpstreamKilled => "upstream_killed",
        }
    }

    /// The outcome that a word on the wire names; `None` for a word of a later version.
    pub fn from_wire(word: &str) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where the token counts of a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokensSrc {
    /// The server's `usage` object, or its equivalent in another dialect.
    Usage,
    /// The server's own counters beside the answer: llama.cpp `timings`, Ollama counts.
    Timings,
    /// A response header, such as TEI's `x-compute-tokens`.
    Header,
    /// The model's tokenizer, run over the request's text by the observer.
    Tokenizer,
    /// An estimate from the size of the text; it stands in `est_prompt_tokens` only.
    BytesOver4,
    /// Nobody said.
    None,
}

impl TokensSrc {
    /// Every source, in the order of SCHEMA.md.
    pub const ALL: [TokensSrc; 6] = [
        TokensSrc::Usage,
        TokensSrc::Timings,
        TokensSrc::Header,
        TokensSrc::Tokenizer,
        TokensSrc::BytesOver4,
        TokensSrc::None,
    ];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            TokensSrc::Usage => "usage",
            TokensSrc::Timings => "timings",
            TokensSrc::Header => "header",
            TokensSrc::Tokenizer => "tokenizer",
            TokensSrc::BytesOver4 => "bytes/4",
            TokensSrc::None => "none",
        }
    }

    /// The source that a word on the wire names; `None` for a word of a later version.
    pub fn from_wire(word: &str) -> Option<TokensSrc> {
        TokensSrc::ALL.into_iter().find(|src| src.as_str() == word)
    }
}

/// Why an observer could not look into a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseTrouble {
    /// The body was not what it claimed to be; the observer stopped looking, the body flowed on.
    GaveUp,
    /// The body was compressed in a way the observer cannot read, or beyond its bound.
    Encoded,
}

impl ParseTrouble {
    /// Every trouble, in the order of SCHEMA.md.
    pub const ALL: [ParseTrouble; 2] = [ParseTrouble::GaveUp, ParseTrouble::Encoded];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ParseTrouble::GaveUp => "gave_up",
            ParseTrouble::Encoded => "encoded",
        }
    }

    /// The trouble that a word on the wire names; `None` for a word of a later version.
    pub fn from_wire(word: &str) -> Option<ParseTrouble> {
        ParseTrouble::ALL.into_iter().find(|trouble| trouble.as_str() == word)
    }
}
