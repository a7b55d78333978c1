//! A TCP stream that remembers when bytes came: the first of a request, the last of an answer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The shape in which hyper takes a connection.
pub(crate) type Io = TokioIo<ClockedStream>;

/// When a connection was last read from. Nanoseconds since `base`, plus one; 0 is "not yet".
pub(crate) struct ReadClock {
    base: Instant,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl ReadClock {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(ReadClock { base: Instant::now(), first_ns: zero(), last_ns: zero() })
    }

    fn tick(&self) {
        let now_ns = self.base.elapsed().as_nanos() as u64 + 1;
        self.last_ns.store(now_ns, Relaxed);
        let _ = self.first_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
    }

    fn instant(&self, ns: u64) -> Option<Instant> {
        ns.checked_sub(1).map(|ns| self.base + Duration::from_nanos(ns))
    }

    /// When the first read since the last call of [`ReadClock::rewind`] came.
    pub(crate) fn first_read(&self) -> Option<Instant> {
        self.instant(self.first_ns.load(Relaxed))
    }

    /// When the last read came: two pieces of a body with one time came in one read.
    pub(crate) fn last_read(&self) -> Option<Instant> {
        self.instant(self.last_ns.load(Relaxed))
    }

    /// The next read is the first of the next request.
    pub(crate) fn rewind(&self) {
        self.first_ns.store(0, Relaxed);
    }
}

/// A TCP stream with a [`ReadClock`].
pub(crate) struct ClockedStream {
    tcp: TcpStream,
    clock: Arc<ReadClock>,
}

impl ClockedStream {
    /// Wraps `tcp`; small writes are sent at once (Nagle's delay of 40 ms hides in token streams).
    pub(crate) fn new(tcp: TcpStream) -> (Io, Arc<ReadClock>) {
        // Fails only on a socket that is already dead, which the first read will tell.
        let _ = tcp.set_nodelay(true);
        let clock = ReadClock::new();
        (TokioIo::new(ClockedStream { tcp, clock: clock.clone() }), clock)
    }
}

impl AsyncRead for ClockedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.clock.tick();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ClockedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
