//! One connection to the upstream, driven by whoever uses it and by nobody else: dropping the
//! user closes the connection in the same poll, so a client that leaves is told to the upstream at
//! once, during prefill too.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use tokio::net::TcpStream;

use crate::io::{Io, Traffic, WatchedStream};
use crate::upload::Upload;

/// The longest head that is read, and the most that is read at a time.
pub(crate) const MAX_BUF_BYTES: usize = 128 * 1024;

/// A connection to the upstream.
pub(crate) struct Link {
    conn: Connection<Io, Upload>,
    sender: SendRequest<Upload>,
    traffic: Arc<Traffic>,
    alive: bool,
    requests: u32,
}

impl Link {
    pub(crate) async fn open(tcp: TcpStream) -> hyper::Result<Link> {
        let (io, traffic) = WatchedStream::new(tcp);
        let (sender, conn) = http1::Builder::new()
            .preserve_header_case(true)
            .max_buf_size(MAX_BUF_BYTES)
            .handshake(io)
            .await?;
        Ok(Link { conn, sender, traffic, alive: true, requests: 0 })
    }

    /// Requests sent so far.
    pub(crate) fn requests(&self) -> u32 {
        self.requests
    }

    /// When the last bytes came.
    pub(crate) fn last_read(&self) -> Instant {
        self.traffic.last_read().unwrap_or_else(Instant::now)
    }

    /// Lets the connection read and write what it can.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        // An error of the connection comes out again, with its place, where the answer is awaited.
        if self.alive && Pin::new(&mut self.conn).poll(cx).is_ready() {
            self.alive = false;
        }
    }

    /// Whether another request can be sent. Finds out on its own if the upstream hung up.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.alive && self.sender.is_ready()
    }

    /// Sends a request; the head of the answer comes with the link it came over.
    pub(crate) fn send(mut self, request: Request<Upload>) -> AwaitHead {
        self.requests += 1;
        let answer = Box::pin(self.sender.try_send_request(request));
        AwaitHead { link: Some(self), answer }
    }

    /// Gives the connection up to hyper: the way for protocols that leave HTTP.
    pub(crate) fn into_parts(self) -> (Connection<Io, Upload>, SendRequest<Upload>) {
        (self.conn, self.sender)
    }
}

/// An error of hyper with its cause, which says more than it does.
pub(crate) fn in_words(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

type Answer = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

/// Waits for the head of an answer.
pub(crate) struct AwaitHead {
    link: Option<Link>,
    answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
}

impl Future for AwaitHead {
    type Output = Result<(Response<Incoming>, Link), TrySendError<Request<Upload>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(link) = &mut self.link {
            link.drive(cx);
        }
        let answer = std::task::ready!(self.answer.as_mut().poll(cx));
        match (answer, self.link.take()) {
            (Ok(response), Some(link)) => Poll::Ready(Ok((response, link))),
            (Err(failed), _) => Poll::Ready(Err(failed)),
            (Ok(_), None) => Poll::Pending,
        }
    }
}
