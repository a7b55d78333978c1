//! The answer's body on its way down. The observer looks on inside the poll, without a task or a
//! channel between: nothing is copied, nothing runs ahead of the client, and the body ends once.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::limits::Permit;
use crate::link::{self, Link};
use crate::observe::BodyEnd;
use crate::pool::Pool;
use crate::watch::Guard;

/// What the client does when it leaves before the answer is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAbort {
    /// Closes the upstream's connection at once.
    #[default]
    Cancel,
    /// Reads the answer to its end: for servers that do not take a cancelled request well.
    Drain,
}

/// The body of an answer: the upstream's, or our own words.
pub(crate) enum Answer {
    Upstream(Option<Box<Relay>>),
    Own(Option<Bytes>),
}

/// The upstream's body, its connection, and the duty to write the line.
pub(crate) struct Relay {
    body: Incoming,
    /// `None` when hyper drives the connection (an upgrade was asked for and refused).
    link: Option<Link>,
    guard: Guard,
    pool: Arc<Pool>,
    permit: Option<Permit>,
    on_abort: OnAbort,
    /// The upstream is likely to take another request over the same connection.
    reusable: bool,
    /// The upstream broke off; told to the client once it has what came before.
    broken: Option<hyper::Error>,
}

impl Relay {
    pub(crate) fn new(
        body: Incoming,
        link: Option<Link>,
        guard: Guard,
        pool: Arc<Pool>,
        permit: Option<Permit>,
        on_abort: OnAbort,
        reusable: bool,
    ) -> Self {
        let mut relay = Relay { body, link, guard, pool, permit, on_abort, reusable, broken: None };
        if relay.body.is_end_stream() {
            relay.finish(BodyEnd::Complete, None);
        }
        relay
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let Some(link) = &mut self.link else { return Poll::Pending };
        link.drive(cx);
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn poll_observed(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if self.broken.is_some() {
            return self.poll_broken(cx);
        }
        let polled = std::task::ready!(self.poll_body(cx));
        match polled {
            Some(Ok(frame)) => {
                self.observe(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let words = format!("the upstream's answer broke off: {}", link::in_words(&error));
                self.finish(BodyEnd::Cut, Some(words));
                self.broken = Some(error);
                self.poll_broken(cx)
            }
            None => {
                self.finish(BodyEnd::Complete, None);
                Poll::Ready(None)
            }
        }
    }

    /// hyper closes on an error without writing what it still holds, so the error waits for it.
    fn poll_broken(&mut self, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        std::task::ready!(self.guard.poll_flushed(cx));
        Poll::Ready(self.broken.take().map(Err))
    }

    fn observe(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            let at = self.link.as_ref().map_or_else(Instant::now, Link::last_read);
            self.guard.watch().response_chunk(data, at);
        }
        if self.body.is_end_stream() {
            self.finish(BodyEnd::Complete, None);
        }
    }

    fn finish(&mut self, how: BodyEnd, error: Option<String>) {
        let link = self.link.take();
        if let (BodyEnd::Complete, true, Some(link)) = (how, self.reusable, link) {
            self.pool.give_back(link, Instant::now());
        }
        self.permit = None;
        self.guard.conclude(how, error);
    }

    /// Reads the rest for nobody.
    async fn drain(mut self) {
        self.guard.client_left();
        let cut = self.guard.cut();
        let rest = std::future::poll_fn(|cx| {
            while self.guard.owed() {
                std::task::ready!(self.poll_observed(cx));
            }
            Poll::Ready(())
        });
        tokio::select! {
            () = rest => {}
            () = cut => {}
        }
    }
}

impl Answer {
    /// Our own words.
    pub(crate) fn own(text: impl Into<Bytes>) -> Answer {
        Answer::Own(Some(text.into()))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Answer::Upstream(relay) = self else { return };
        let Some(relay) = relay.take() else { return };
        let unfinished = relay.guard.owed() && relay.on_abort == OnAbort::Drain;
        if let (true, Ok(runtime)) = (unfinished, tokio::runtime::Handle::try_current()) {
            runtime.spawn(relay.drain());
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Answer::Upstream(Some(relay)) => relay.poll_observed(cx),
            Answer::Upstream(None) => Poll::Ready(None),
            Answer::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Upstream(relay) => relay.as_ref().is_none_or(|r| r.body.is_end_stream()),
            Answer::Own(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Answer::Upstream(relay) => {
                relay.as_ref().map_or_else(|| SizeHint::with_exact(0), |r| r.body.size_hint())
            }
            Answer::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}
