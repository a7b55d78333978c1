//! A request in flight. It ends exactly once: by `end`, by `finish`, or by being dropped.

use std::fmt;
use std::ops::DerefMut;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::line::{Line, RequestLine};
use crate::recorder::Recorder;
use crate::running::RunningSpan;
use crate::shared::{lock, unix_ms};
use crate::words::Outcome;

/// A part of the work on a request that has its own field in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Text to vectors: `encode_ms`.
    Encode,
    /// Vectors to documents: `retrieve_ms`.
    Retrieve,
    /// Ordering the documents: `rerank_ms`.
    Rerank,
    /// Prompt to answer: `generate_ms`.
    Generate,
}

/// A request in flight, from [`Recorder::span`] to its one `request` line.
///
/// Dropping a span is an ending too, so that no return, `?`, cancelled future or panic loses a
/// request: `client_closed` with status 499 (`client_closed_waiting` while no status, headers or first
/// token are known), or `upstream_error` with status 500 when the thread is panicking.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use inferwatch_record::{Outcome, Recorder, Stage};
///
/// let recorder = Recorder::to_stdout()?;
/// let mut span = recorder.span("/generate");
/// let vector = span.time(Stage::Encode, || vec![0.5_f32; 384]);
/// span.line_mut().batch = Some(1);
/// span.model("smollm2-135m");
/// span.first_token();
/// span.tokens(21, 96);
/// span.end(Outcome::Ok, 200);
///
/// drop(recorder.span("/generate")); // the client left
/// # drop(vector);
/// # Ok(())
/// # }
/// ```
pub struct Span {
    recorder: Recorder,
    running: Arc<RunningSpan>,
    key: u64,
    first_token_at: Option<Instant>,
    ended: bool,
}

impl Span {
    pub(crate) fn begin(recorder: Recorder, route: String, started: Instant) -> Span {
        let (key, running) = recorder.shared().running.enter(route, started);
        Span { recorder, running, key, first_token_at: None, ended: false }
    }

    /// The line so far, to read or set any field. What stands in `id`, `model`, `headers_ms` and
    /// `ttft_ms` also shows in `open` lines. Do not keep it: it is a lock.
    pub fn line_mut(&mut self) -> impl DerefMut<Target = RequestLine> + '_ {
        lock(&self.running.line)
    }

    /// Adds `took` to the time of a stage.
    pub fn stage(&mut self, stage: Stage, took: Duration) {
        let mut line = lock(&self.running.line);
        let field = match stage {
            Stage::Encode => &mut line.encode_ms,
            Stage::Retrieve => &mut line.retrieve_ms,
            Stage::Rerank => &mut line.rerank_ms,
            Stage::Generate => &mut line.generate_ms,
        };
        *field.get_or_insert(0.0) += ms(took);
    }

    /// Runs `work` and adds the time it took to a stage.
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.stage(stage, started.elapsed());
        result
    }

    /// The first token came now: sets `ttft_ms`. Later calls change nothing.
    pub fn first_token(&mut self) {
        if self.first_token_at.is_none() {
            let now = Instant::now();
            self.first_token_at = Some(now);
            lock(&self.running.line).ttft_ms = Some(self.since_start_ms(now));
        }
    }

    /// The whole prompt, cached part included, and what was generated.
    pub fn tokens(&mut self, prompt: u64, completion: u64) {
        let mut line = lock(&self.running.line);
        line.prompt_tokens = Some(prompt);
        line.completion_tokens = Some(completion);
    }

    /// The model that serves the request.
    pub fn model(&mut self, name: impl Into<String>) {
        lock(&self.running.line).model = Some(name.into());
    }

    /// Ends the request now and sends its line. After [`Span::first_token`] and [`Span::tokens`] the
    /// decode rate is computed, unless it is set.
    pub fn end(mut self, outcome: Outcome, status: impl Into<Option<u16>>) {
        let now = Instant::now();
        self.set_decode_rate(now);
        let line = self.conclude(outcome, status.into(), now);
        self.recorder.send(Line::Request(line));
    }

    /// Ends the request as of `at` and hands over its line, for a caller who completes it later
    /// and sends it with [`Recorder::send`].
    pub fn finish(
        mut self,
        outcome: Outcome,
        status: impl Into<Option<u16>>,
        at: Instant,
    ) -> Box<RequestLine> {
        self.conclude(outcome, status.into(), at)
    }

    fn conclude(&mut self, outcome: Outcome, status: Option<u16>, at: Instant) -> Box<RequestLine> {
        self.ended = true;
        self.recorder.shared().running.leave(self.key);
        let mut line = Box::new(std::mem::take(&mut *lock(&self.running.line)));
        line.ts_unix_ms = wall_clock_unix_ms(at);
        line.total_ms = self.since_start_ms(at);
        line.outcome = Some(outcome);
        line.status = status.or(line.status);
        line
    }

    fn since_start_ms(&self, at: Instant) -> f64 {
        ms(at.saturating_duration_since(self.running.started))
    }

    fn set_decode_rate(&self, now: Instant) {
        let Some(first_token_at) = self.first_token_at else { return };
        let seconds = now.saturating_duration_since(first_token_at).as_secs_f64();
        let mut line = lock(&self.running.line);
        let after_first = line.completion_tokens.unwrap_or(0).saturating_sub(1);
        if line.decode_tokens_per_s.is_none() && after_first > 0 && seconds > 0.0 {
            line.decode_tokens_per_s = Some(after_first as f64 / seconds);
        }
    }

    fn end_by_drop(&mut self) {
        let panicking = thread::panicking();
        let answered = {
            let mut line = lock(&self.running.line);
            if panicking {
                line.error = Some("panicked".into());
            }
            line.status.is_some() || line.headers_ms.is_some() || line.ttft_ms.is_some()
        };
        let (outcome, status) = match (panicking, answered) {
            (true, _) => (Outcome::UpstreamError, 500),
            (false, true) => (Outcome::ClientClosed, 499),
            (false, false) => (Outcome::ClientClosedWaiting, 499),
        };
        let line = self.conclude(outcome, Some(status), Instant::now());
        self.recorder.send(Line::Request(line));
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if !self.ended {
            self.end_by_drop();
        }
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = lock(&self.running.line);
        f.debug_struct("Span").field("id", &line.id).field("route", &line.route).finish()
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn wall_clock_unix_ms(at: Instant) -> Option<u64> {
    SystemTime::now().checked_sub(at.elapsed()).map(unix_ms)
}
