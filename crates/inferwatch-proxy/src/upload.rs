//! The request's body on its way up: observed as it goes, held back while the client waits for
//! `100 Continue`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::Sleep;

use crate::watch::Watch;

/// How long an upstream may take to say `100 Continue` before the body is sent regardless, as RFC
/// 9110 section 10.1.1 asks for; curl waits as long.
const CONTINUE_PATIENCE: Duration = Duration::from_secs(1);

/// The body of a request, on its way to the upstream.
pub(crate) struct Upload {
    source: Source,
    gate: Option<Gate>,
    watch: Arc<Watch>,
    ended: bool,
}

enum Source {
    Client(Incoming),
    /// A body that was read and rewritten (`--max-tokens`).
    Rewritten(Option<Bytes>),
}

/// Shut until the upstream says `100 Continue`, or patience ends.
struct Gate {
    said: oneshot::Receiver<()>,
    patience: Pin<Box<Sleep>>,
}

impl Gate {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.said).poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.patience.as_mut().poll(cx)
    }
}

impl Upload {
    /// The client's own body.
    pub(crate) fn stream(body: Incoming, watch: Arc<Watch>) -> Upload {
        Upload::new(Source::Client(body), watch)
    }

    /// A body that the observer has seen already.
    pub(crate) fn rewritten(bytes: Bytes, watch: Arc<Watch>) -> Upload {
        let mut upload = Upload::new(Source::Rewritten(Some(bytes)), watch);
        upload.ended = true;
        upload
    }

    fn new(source: Source, watch: Arc<Watch>) -> Upload {
        let mut upload = Upload { source, gate: None, watch, ended: false };
        if upload.is_end_stream() {
            upload.end();
        }
        upload
    }

    /// Holds the body back until the returned sender speaks (or is dropped).
    pub(crate) fn await_continue(&mut self) -> oneshot::Sender<()> {
        let (say, said) = oneshot::channel();
        let patience = Box::pin(tokio::time::sleep(CONTINUE_PATIENCE));
        self.gate = Some(Gate { said, patience });
        say
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.watch.request_end(Instant::now());
        }
    }

    fn observe(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.watch.request_chunk(data);
        }
        if self.is_end_stream() {
            self.end();
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(gate) = &mut self.gate {
            ready!(gate.poll_open(cx));
            self.gate = None;
        }
        let body = match &mut self.source {
            Source::Client(body) => body,
            Source::Rewritten(bytes) => {
                return Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))));
            }
        };
        let polled = ready!(Pin::new(body).poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => self.observe(frame),
            Some(Err(_)) => {}
            None => self.end(),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Client(body) => body.is_end_stream(),
            Source::Rewritten(bytes) => bytes.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Client(body) => body.size_hint(),
            Source::Rewritten(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}

/// The most that is read of a body that must be seen whole: room for a long conversation with
/// a few pictures in it.
pub(crate) const WHOLE_BODY_BYTES: usize = 8 << 20;

/// Why a body was not read whole.
pub(crate) enum Unread {
    TooLarge,
    Broken(hyper::Error),
}

/// Reads a body to its end, observed.
pub(crate) async fn read_whole(mut body: Incoming, watch: &Watch) -> Result<Bytes, Unread> {
    let mut whole = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(Unread::Broken)?;
        if let Some(data) = frame.data_ref() {
            if whole.len() + data.len() > WHOLE_BODY_BYTES {
                return Err(Unread::TooLarge);
            }
            watch.request_chunk(data);
            whole.extend_from_slice(data);
        }
    }
    watch.request_end(Instant::now());
    Ok(whole.into())
}
