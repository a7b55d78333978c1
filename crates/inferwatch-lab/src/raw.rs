//! An HTTP/1.1 upstream on a bare socket: answers with scripts, so that it can commit every
//! fault on the wire that no HTTP library would commit.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::observed::{CloseKind, Observed, PeerClosed, Request};
use crate::play::{Played, play};
use crate::script::Script;
use crate::wire::RequestHead;

const LISTEN_BACKLOG: u32 = 4096;
const MAX_HEAD_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 16 << 10;

type Handler = dyn Fn(&Request) -> Script + Send + Sync;
type HeadHandler = dyn Fn(&RequestHead) -> OnHead + Send + Sync;

/// What to do when the head of a request is there and its body is not.
#[derive(Debug)]
pub enum OnHead {
    /// Read the body, then answer.
    ReadBody,
    /// Play this first (`100 Continue`), then read the body and answer.
    Interim(Script),
    /// This is the answer; the body is not read before it ends.
    Final(Script),
}

/// Settings of a raw upstream.
pub struct Options {
    /// Whether requests are kept for the tests to look at.
    pub keep_requests: bool,
    /// Most bytes of a body that are kept; the rest is counted only.
    pub keep_body_bytes: usize,
    /// Close a connection that waits this long for its next request.
    pub idle_timeout: Option<Duration>,
    /// Asked as soon as a head is there.
    pub on_head: Option<Box<HeadHandler>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keep_requests: true,
            keep_body_bytes: 64 << 20,
            idle_timeout: None,
            on_head: None,
        }
    }
}

/// A running upstream. Dropping it stops listening and closes every connection.
pub struct RawUpstream {
    addr: SocketAddr,
    observed: Arc<Observed>,
    accepting: JoinHandle<()>,
}

impl fmt::Debug for RawUpstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawUpstream").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl RawUpstream {
    /// Starts on a free loopback port.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn start<H>(handler: H) -> io::Result<RawUpstream>
    where
        H: Fn(&Request) -> Script + Send + Sync + 'static,
    {
        RawUpstream::start_with(SocketAddr::from(([127, 0, 0, 1], 0)), Options::default(), handler)
    }

    /// Starts on `addr`, which may be the one that a stopped upstream had.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn start_with<H>(addr: SocketAddr, options: Options, handler: H) -> io::Result<RawUpstream>
    where
        H: Fn(&Request) -> Script + Send + Sync + 'static,
    {
        let listener = listen(addr)?;
        let addr = listener.local_addr()?;
        let observed = Arc::new(Observed::default());
        let served =
            Served { handler: Box::new(handler), options, observed: Arc::clone(&observed) };
        let accepting = tokio::spawn(accept(listener, Arc::new(served)));
        Ok(RawUpstream { addr, observed, accepting })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops listening, closes every connection and returns when that is done, with the address
    /// to start again on.
    pub async fn stop(mut self) -> SocketAddr {
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        self.addr
    }
}

impl Deref for RawUpstream {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        &self.observed
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(LISTEN_BACKLOG)
}

struct Served {
    handler: Box<Handler>,
    options: Options,
    observed: Arc<Observed>,
}

async fn accept(listener: TcpListener, served: Arc<Served>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(Connection::new(stream, Arc::clone(&served)).serve());
                }
                // Out of descriptors: a busy loop would not bring them back.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Connection {
    stream: TcpStream,
    served: Arc<Served>,
    buffer: Vec<u8>,
    index: usize,
    requests_count: usize,
}

enum Ended {
    ByUs,
    ByPeer(CloseKind),
}

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended::ByPeer(CloseKind::Reset)
    }
}

impl Connection {
    fn new(stream: TcpStream, served: Arc<Served>) -> Connection {
        let index = served.observed.opened();
        Connection { stream, served, buffer: Vec::new(), index, requests_count: 0 }
    }

    async fn serve(mut self) {
        // Without it our small writes would not be separate reads at the peer.
        let _ = self.stream.set_nodelay(true);
        loop {
            let head = match self.read_head().await {
                Ok(head) => head,
                Err(ended) => return self.end(ended, !self.buffer.is_empty()),
            };
            self.served.observed.began(self.index);
            if let Err(ended) = self.answer(head).await {
                return self.end(ended, true);
            }
            self.requests_count += 1;
        }
    }

    fn end(&self, ended: Ended, mid_request: bool) {
        if let Ended::ByPeer(kind) = ended {
            let closed = PeerClosed { at: Instant::now(), kind, mid_request };
            self.served.observed.closed(self.index, closed);
        }
    }

    async fn read_more(&mut self) -> Result<(), Ended> {
        self.buffer.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(Ended::ByPeer(CloseKind::Fin)),
            _ => Ok(()),
        }
    }

    async fn read_head(&mut self) -> Result<RequestHead, Ended> {
        if let Some(limit) = self.served.options.idle_timeout.filter(|_| self.buffer.is_empty()) {
            timeout(limit, self.read_more()).await.map_err(|_| Ended::ByUs)??;
        }
        loop {
            match RequestHead::parse(&self.buffer) {
                Ok(Some(head)) => {
                    self.buffer.drain(..head.bytes.len());
                    return Ok(head);
                }
                Ok(None) if self.buffer.len() < MAX_HEAD_BYTES => self.read_more().await?,
                _ => return Err(Ended::ByUs),
            }
        }
    }

    async fn answer(&mut self, head: RequestHead) -> Result<(), Ended> {
        let on_head = self.served.options.on_head.as_ref();
        match on_head.map_or(OnHead::ReadBody, |ask| ask(&head)) {
            OnHead::ReadBody => {}
            OnHead::Interim(script) => self.play(script).await?,
            OnHead::Final(script) => {
                self.note(self.request(&head));
                self.play(script).await?;
                self.read_body(head).await?;
                return Ok(());
            }
        }
        let request = self.read_body(head).await?;
        let script = {
            let request = self.note(request);
            (self.served.handler)(&request)
        };
        self.play(script).await
    }

    fn note(&self, request: Request) -> Arc<Request> {
        let request = Arc::new(request);
        if self.served.options.keep_requests {
            self.served.observed.came(Arc::clone(&request));
        }
        request
    }

    async fn play(&mut self, script: Script) -> Result<(), Ended> {
        match play(&mut self.stream, &mut self.buffer, script).await {
            Played::Open => Ok(()),
            Played::Closed => Err(Ended::ByUs),
            Played::PeerClosed(closed) => {
                self.served.observed.closed(self.index, closed);
                Err(Ended::ByPeer(closed.kind))
            }
        }
    }

    fn request(&self, head: &RequestHead) -> Request {
        Request {
            head: head.clone(),
            body: Vec::new(),
            body_on_wire: Vec::new(),
            body_bytes: 0,
            connection: self.index,
            number: self.requests_count,
        }
    }

    async fn read_body(&mut self, head: RequestHead) -> Result<Request, Ended> {
        let mut reader = head.body();
        let mut request = self.request(&head);
        let keep = self.served.options.keep_body_bytes;
        let mut piece = Vec::new();
        while !reader.is_done() {
            if self.buffer.is_empty() {
                self.read_more().await?;
            }
            let taken = reader.feed(&self.buffer, &mut piece).map_err(|_| Ended::ByUs)?;
            if self.served.options.keep_requests {
                append_capped(&mut request.body_on_wire, &self.buffer[..taken], keep);
            }
            append_capped(&mut request.body, &piece, keep);
            request.body_bytes += piece.len() as u64;
            piece.clear();
            self.buffer.drain(..taken);
        }
        Ok(request)
    }
}

fn append_capped(kept: &mut Vec<u8>, bytes: &[u8], cap: usize) {
    let room = cap.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
}
