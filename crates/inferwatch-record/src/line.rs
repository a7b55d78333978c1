//! The line types: what one JSON line says, with a unit in every name. Formatting lives in
//! `write.rs`, parsing in `read.rs`; the wire contract is SCHEMA.md.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::borrow::Cow;

use crate::words::{Outcome, ParseTrouble, TokensSrc};

/// One request, as it ended. `None` means unknown or not applicable, never zero.
///
/// Milliseconds and MiB are plain numbers that the writer rounds to one decimal. Strings from
/// outside may hold anything: the writer escapes and caps them.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RequestLine {
    /// When the line was made (the end of the request), milliseconds since the Unix epoch, UTC;
    /// `None` is filled in when the line is sent.
    pub ts_unix_ms: Option<u64>,
    /// Number of this line among the lines of its process; a hole is a lost line.
    pub seq: Option<u64>,
    /// Name of the request: unique within the process, or the caller's own `x-request-id`.
    pub id: Option<String>,
    /// Path without query.
    pub route: String,
    /// What the server says it served, else what was asked.
    pub model: Option<String>,
    /// Whole prompt: cached and evaluated.
    pub prompt_tokens: Option<u64>,
    /// Tokens generated.
    pub completion_tokens: Option<u64>,
    /// Time of the encode stage, queue excluded.
    pub encode_ms: Option<f64>,
    /// Time of the retrieve stage.
    pub retrieve_ms: Option<f64>,
    /// Time of the rerank stage, queue excluded.
    pub rerank_ms: Option<f64>,
    /// Time of the generate stage (prefill and decode), queue excluded.
    pub generate_ms: Option<f64>,
    /// From the first byte of the request to the last byte of the answer.
    pub total_ms: f64,
    /// Resident memory of the model server's process tree at the end of the request, MiB.
    pub rss_mb: Option<f64>,
    /// Requests in flight when this one began, itself included.
    pub inflight: Option<u64>,
    /// Whether the prompt cache (or an answer cache) served part of it; `None` if not told.
    pub cache_hit: Option<bool>,
    /// HTTP status that the client got; 499 when the client left.
    pub status: Option<u16>,

    /// How the request ended.
    pub outcome: Option<Outcome>,
    /// Why it did not end well, in a few words; never prompt or completion text.
    pub error: Option<String>,
    /// `host:port` of the model server.
    pub upstream: Option<String>,
    /// HTTP status that the model server sent.
    pub upstream_status: Option<u16>,
    /// What the request asked for, if it differs in meaning from `model`.
    pub requested_model: Option<String>,
    /// Whether the answer was streamed.
    pub stream: Option<bool>,
    /// Why generation stopped: `stop`, `length`, `tool`, ... as the server put it, normalised.
    pub finish: Option<String>,
    /// Where the token counts came from.
    pub tokens_src: Option<TokensSrc>,
    /// Estimate of the prompt from its size in bytes, when nobody counted.
    pub est_prompt_tokens: Option<u64>,
    /// Prompt tokens that a cache served.
    pub cached_tokens: Option<u64>,
    /// `true` if `completion_tokens` is known to miss some choices (llama.cpp with `n` above 1).
    pub completion_tokens_partial: Option<bool>,
    /// Inputs in an embed or rerank call.
    pub batch: Option<u64>,
    /// Wait before the model server began to work on it.
    pub queue_ms: Option<f64>,
    /// Time the model server took to load the model for this request.
    pub load_ms: Option<f64>,
    /// From the first byte of the request to the head of the answer.
    pub headers_ms: Option<f64>,
    /// Time to evaluate the prompt.
    pub prefill_ms: Option<f64>,
    /// From the first byte of the request to the first token (not the first byte, not a role event).
    pub ttft_ms: Option<f64>,
    /// (n-1) tokens over the time since the first token.
    pub decode_tokens_per_s: Option<f64>,
    /// `true` if tokens came several to a read, so that no time between them can be told.
    pub coalesced: Option<bool>,
    /// Resident memory of the model server at the start of the request, MiB.
    pub rss_start_mb: Option<f64>,
    /// Anonymous memory and swap of the model server at the end, MiB: the part that can kill.
    pub anon_mb: Option<f64>,
    /// Anonymous memory and swap of the model server at the start, MiB.
    pub anon_start_mb: Option<f64>,
    /// Size of the request's body.
    pub bytes_in: Option<u64>,
    /// Size of the answer's body, as far as it came.
    pub bytes_out: Option<u64>,
    /// The cap that replaced what the request asked to generate at most.
    pub capped_max_tokens: Option<u64>,
    /// Why the observer saw less of this request than usual.
    pub parse: Option<ParseTrouble>,
    /// Trace id of the caller's `traceparent`.
    pub trace_id: Option<String>,
    /// Who called (off by default).
    pub client: Option<String>,
}

/// A request that still runs: written after 10 s and then at doubling ages, so that a hung or
/// killed request leaves a trace.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct OpenLine {
    /// When the line was made, milliseconds since the Unix epoch, UTC;
    /// `None` is filled in when the line is sent.
    pub ts_unix_ms: Option<u64>,
    /// Number of this line among the lines of its process.
    pub seq: Option<u64>,
    /// Name of the request: the same as in its `request` line.
    pub id: Option<String>,
    /// Path without query.
    pub route: String,
    /// Model, as far as it is known.
    pub model: Option<String>,
    /// How long the request has been running.
    pub age_ms: f64,
    /// Requests in flight when this one began, itself included.
    pub inflight: Option<u64>,
    /// Time to the head of the answer; `None` while the server has not answered.
    pub headers_ms: Option<f64>,
    /// Time to the first token; `None` before it.
    pub ttft_ms: Option<f64>,
}

/// Written once when a service begins to write lines.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StartLine {
    /// When the line was made, milliseconds since the Unix epoch, UTC;
    /// `None` is filled in when the line is sent.
    pub ts_unix_ms: Option<u64>,
    /// Number of this line among the lines of its process.
    pub seq: Option<u64>,
    /// Version of the program that writes the lines.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Cores the process may use.
    pub cores: Option<u64>,
    /// Settings in force, by flag name, in the order given; on the wire a name is
    /// `set_` and the flag with underscores.
    pub settings: Vec<(Cow<'static, str>, String)>,
    /// Settings that did not fit into the line; `None` if all did.
    pub settings_left_out_count: Option<u64>,
}

/// Written once when a service ends in good order.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct StopLine {
    /// When the line was made, milliseconds since the Unix epoch, UTC;
    /// `None` is filled in when the line is sent.
    pub ts_unix_ms: Option<u64>,
    /// Number of this line among the lines of its process.
    pub seq: Option<u64>,
    /// Why it stopped: `SIGTERM`, `SIGINT`, ...
    pub reason: String,
    /// How long the process ran.
    pub uptime_ms: f64,
    /// `request` lines written in that time.
    pub requests_count: u64,
    /// Requests that were cut because the drain time ran out.
    pub unfinished_count: u64,
}

/// Written by the writer itself, as soon as the sink takes lines again.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DroppedLine {
    /// When the line was made, milliseconds since the Unix epoch, UTC;
    /// `None` is filled in when the line is sent.
    pub ts_unix_ms: Option<u64>,
    /// Number of this line among the lines of its process.
    pub seq: Option<u64>,
    /// How many lines were lost since the last `dropped` line.
    pub dropped_count: u64,
    /// Of these: lost because the queue was full (the sink was too slow, or stood still).
    pub queue_full_count: u64,
    /// Of these: lost because a write failed.
    pub write_failed_count: u64,
    /// The last write error.
    pub error: Option<String>,
}

/// A line of any kind.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Line {
    /// One request, as it ended.
    Request(Box<RequestLine>),
    /// A request that still runs.
    Open(Box<OpenLine>),
    /// A service began.
    Start(Box<StartLine>),
    /// A service ended.
    Stop(Box<StopLine>),
    /// Lines were lost.
    Dropped(Box<DroppedLine>),
    /// A kind that this version does not know.
    Unknown {
        /// When the line was made, milliseconds since the Unix epoch, UTC.
        ts_unix_ms: Option<u64>,
        /// Number of this line among the lines of its process.
        seq: Option<u64>,
        /// The word in `kind`.
        kind: String,
    },
}

impl Line {
    /// When the line was made, milliseconds since the Unix epoch, UTC.
    pub fn ts_unix_ms(&self) -> Option<u64> {
        match self {
            Line::Request(line) => line.ts_unix_ms,
            Line::Open(line) => line.ts_unix_ms,
            Line::Start(line) => line.ts_unix_ms,
            Line::Stop(line) => line.ts_unix_ms,
            Line::Dropped(line) => line.ts_unix_ms,
            Line::Unknown { ts_unix_ms, .. } => *ts_unix_ms,
        }
    }

    /// Number of the line among the lines of its process.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Line::Request(line) => line.seq,
            Line::Open(line) => line.seq,
            Line::Start(line) => line.seq,
            Line::Stop(line) => line.seq,
            Line::Dropped(line) => line.seq,
            Line::Unknown { seq, .. } => *seq,
        }
    }

    /// The two fields that sending fills in: `ts_unix_ms` and `seq`.
    pub(crate) fn stamp_mut(&mut self) -> (&mut Option<u64>, &mut Option<u64>) {
        match self {
            Line::Request(line) => (&mut line.ts_unix_ms, &mut line.seq),
            Line::Open(line) => (&mut line.ts_unix_ms, &mut line.seq),
            Line::Start(line) => (&mut line.ts_unix_ms, &mut line.seq),
            Line::Stop(line) => (&mut line.ts_unix_ms, &mut line.seq),
            Line::Dropped(line) => (&mut line.ts_unix_ms, &mut line.seq),
            Line::Unknown { ts_unix_ms, seq, .. } => (ts_unix_ms, seq),
        }
    }
}
