//! One accepted request, from its head to its line. Whatever happens in between, exactly one line
//! is written: by [`Guard::conclude`], by [`Guard::refuse`], or by dropping the guard.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use inferwatch_record::{Outcome, RequestLine, Span};

use crate::io::Traffic;
use crate::lifecycle::{Lifecycle, Stage};
use crate::observe::{BodyEnd, Observer};
use crate::tokens::TokenDesk;

/// A wait before our own door that is shorter than this is only the time to pass it.
const NOTED_WAIT: Duration = Duration::from_micros(50);

/// nginx's word for "the client left before it had its answer".
const CLIENT_CLOSED_REQUEST: u16 = 499;

/// The observed state of one request, shared by its two bodies.
pub(crate) struct Watch {
    started: Instant,
    state: Mutex<State>,
}

struct State {
    observer: Observer,
    span: Option<Span>,
    /// Wait before our own door (`--max-inflight`).
    waited_ms: Option<f64>,
    /// Bytes in and out of a tunnel, which the observer does not see.
    tunnelled_bytes: Option<(u64, u64)>,
}

impl Watch {
    pub(crate) fn new(started: Instant, observer: Observer, span: Span) -> Arc<Self> {
        let state = Mutex::new(State {
            observer,
            span: Some(span),
            waited_ms: None,
            tunnelled_bytes: None,
        });
        Arc::new(Watch { started, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started)
    }

    /// A piece of the request's body goes by.
    pub(crate) fn request_chunk(&self, bytes: &[u8]) {
        self.state().observer.request_chunk(bytes);
    }

    /// The request's body has gone by.
    pub(crate) fn request_end(&self, at: Instant) {
        self.state().observer.request_end(self.since_start(at));
    }

    /// The head of the answer came at `at`.
    pub(crate) fn response_head(&self, status: StatusCode, headers: &HeaderMap, at: Instant) {
        let since = self.since_start(at);
        let mut state = self.state();
        state.observer.response_head(status, headers, since);
        if let Some(span) = &mut state.span {
            let mut line = span.line_mut();
            line.status = Some(status.as_u16());
            line.upstream_status = Some(status.as_u16());
            line.headers_ms = Some(ms(since));
        }
    }

    /// A piece of the answer's body, read from the upstream at `at`, goes by.
    pub(crate) fn response_chunk(&self, bytes: &[u8], at: Instant) {
        let since = self.since_start(at);
        let mut state = self.state();
        let waiting = state.observer.first_token_at().is_none();
        state.observer.response_chunk(bytes, since);
        if waiting && let Some(first) = state.observer.first_token_at() {
            let model = state.observer.model().map(str::to_owned);
            if let Some(span) = &mut state.span {
                let mut line = span.line_mut();
                line.ttft_ms = Some(ms(first));
                line.model = model;
            }
        }
    }

    /// The request waited before our own door.
    pub(crate) fn waited(&self, wait: Duration) {
        self.state().waited_ms = (wait >= NOTED_WAIT).then(|| ms(wait));
    }

    /// What went through an upgraded connection.
    pub(crate) fn tunnelled(&self, bytes_in: u64, bytes_out: u64) {
        self.state().tunnelled_bytes = Some((bytes_in, bytes_out));
    }

    fn edit(&self, change: impl FnOnce(&mut RequestLine)) {
        if let Some(span) = &mut self.state().span {
            change(&mut span.line_mut());
        }
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The duty to end a request. There is one per request; it goes where the answer goes.
pub(crate) struct Guard {
    watch: Arc<Watch>,
    desk: TokenDesk,
    client_traffic: Arc<Traffic>,
    lifecycle: Arc<Lifecycle>,
    /// The client has left, and the upstream's answer is read to its end all the same.
    client_left: bool,
    ended: bool,
}

impl Guard {
    pub(crate) fn new(
        watch: Arc<Watch>,
        desk: TokenDesk,
        client_traffic: Arc<Traffic>,
        lifecycle: Arc<Lifecycle>,
    ) -> Self {
        Guard { watch, desk, client_traffic, lifecycle, client_left: false, ended: false }
    }

    pub(crate) fn watch(&self) -> &Arc<Watch> {
        &self.watch
    }

    /// Notes something in the line while the request runs.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut RequestLine)) {
        self.watch.edit(change);
    }

    /// From now on the upstream works for nobody (`--on-abort drain`).
    pub(crate) fn client_left(&mut self) {
        self.client_left = true;
    }

    /// Completes when the proxy drops what still runs.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        let lifecycle = self.lifecycle.clone();
        async move { lifecycle.reached(Stage::Cut).await }
    }

    /// Completes when the client's connection has taken all that was given to it so far.
    pub(crate) fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        self.client_traffic.poll_flushed(cx)
    }

    /// Whether the line is still owed.
    pub(crate) fn owed(&self) -> bool {
        !self.ended
    }

    /// The answer's body ended.
    pub(crate) fn conclude(&mut self, how: BodyEnd, error: Option<String>) {
        let client_left = self.client_left;
        self.end(|observer, since, line| {
            let outcome = observer.conclude(how, since, line);
            line.error = line.error.take().or(error);
            if line.error.is_none() && outcome == Some(Outcome::Truncated) {
                line.error = Some("the answer ended without its end marker".to_owned());
            }
            if client_left {
                line.status = Some(CLIENT_CLOSED_REQUEST);
                return Outcome::ClientClosed;
            }
            outcome.unwrap_or(Outcome::ClientClosed)
        });
    }

    /// The request ends with an answer of our own.
    pub(crate) fn refuse(&mut self, status: StatusCode, outcome: Outcome, error: &str) {
        self.end(|observer, since, line| {
            observer.conclude(BodyEnd::Abandoned, since, line);
            line.status = Some(status.as_u16());
            line.error = Some(error.to_owned());
            line.bytes_out = None;
            outcome
        });
    }

    fn abandon(&mut self) {
        // What is dropped then was cut by us, not by the client.
        let cut_off = self.lifecycle.is_cut();
        self.end(|observer, since, line| {
            observer.conclude(BodyEnd::Abandoned, since, line);
            let answered = line.upstream_status.is_some();
            if cut_off {
                line.error = Some("cut off: the drain time ran out".to_owned());
                return Outcome::Timeout;
            }
            line.status = Some(CLIENT_CLOSED_REQUEST);
            if answered { Outcome::ClientClosed } else { Outcome::ClientClosedWaiting }
        });
    }

    fn end(&mut self, decide: impl FnOnce(&mut Observer, Duration, &mut RequestLine) -> Outcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let now = Instant::now();
        let since = self.watch.since_start(now);
        let mut state = self.watch.state();
        let State { observer, span, waited_ms, tunnelled_bytes } = &mut *state;
        let Some(mut span) = span.take() else { return };
        let (outcome, status) = {
            let mut line = span.line_mut();
            let outcome = decide(observer, since, &mut line);
            // The observer counts from the end of the request, which is read after our own door.
            if let Some(waited_ms) = *waited_ms {
                line.queue_ms = Some(line.queue_ms.unwrap_or(0.0) + waited_ms);
            }
            if let Some((bytes_in, bytes_out)) = *tunnelled_bytes {
                (line.bytes_in, line.bytes_out) = (Some(bytes_in), Some(bytes_out));
            }
            (outcome, line.status)
        };
        let line = span.finish(outcome, status, now);
        let text = observer.take_text();
        drop(state);
        self.client_traffic.rewind();
        self.desk.deliver(line, text);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.abandon();
    }
}
