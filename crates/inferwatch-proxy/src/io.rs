//! A TCP stream that remembers its traffic: when the first bytes of a request came, when the last
//! of an answer, and when what was written has left.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The shape in which hyper takes a connection.
pub(crate) type Io = TokioIo<WatchedStream>;

/// What came and went on a connection. Nanoseconds since `base`, plus one; 0 is "not yet".
pub(crate) struct Traffic {
    base: Instant,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    flush: Mutex<Flush>,
    flush_awaited: AtomicBool,
}

/// Whether everything that was written before somebody asked has left.
enum Flush {
    Unasked,
    Awaited(Waker),
    Done,
}

impl Traffic {
    fn new() -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        Arc::new(Traffic {
            base: Instant::now(),
            first_ns: zero(),
            last_ns: zero(),
            flush: Mutex::new(Flush::Unasked),
            flush_awaited: AtomicBool::new(false),
        })
    }

    fn tick(&self) {
        let now_ns = self.base.elapsed().as_nanos() as u64 + 1;
        self.last_ns.store(now_ns, Relaxed);
        let _ = self.first_ns.compare_exchange(0, now_ns, Relaxed, Relaxed);
    }

    fn instant(&self, ns: u64) -> Option<Instant> {
        ns.checked_sub(1).map(|ns| self.base + Duration::from_nanos(ns))
    }

    /// When the first read since the last call of [`Traffic::rewind`] came.
    pub(crate) fn first_read(&self) -> Option<Instant> {
        self.instant(self.first_ns.load(Relaxed))
    }

    /// When the last read came: two pieces of a body with one time came in one read.
    pub(crate) fn last_read(&self) -> Option<Instant> {
        self.instant(self.last_ns.load(Relaxed))
    }

    fn flush(&self) -> MutexGuard<'_, Flush> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flushed(&self) {
        if self.flush_awaited.swap(false, Relaxed)
            && let Flush::Awaited(waker) = std::mem::replace(&mut *self.flush(), Flush::Done)
        {
            waker.wake();
        }
    }

    /// Completes when all that was written before the first call has been handed to the kernel.
    pub(crate) fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        let mut flush = self.flush();
        if matches!(*flush, Flush::Done) {
            return Poll::Ready(());
        }
        *flush = Flush::Awaited(cx.waker().clone());
        self.flush_awaited.store(true, Relaxed);
        Poll::Pending
    }

    /// The next read is the first of the next request.
    pub(crate) fn rewind(&self) {
        self.first_ns.store(0, Relaxed);
    }
}

/// A TCP stream with a [`Traffic`].
pub(crate) struct WatchedStream {
    tcp: TcpStream,
    traffic: Arc<Traffic>,
}

impl WatchedStream {
    /// Wraps `tcp`; small writes are sent at once (Nagle's delay of 40 ms hides in token streams).
    pub(crate) fn new(tcp: TcpStream) -> (Io, Arc<Traffic>) {
        // Fails only on a socket that is already dead, which the first read will tell.
        let _ = tcp.set_nodelay(true);
        let traffic = Traffic::new();
        (TokioIo::new(WatchedStream { tcp, traffic: traffic.clone() }), traffic)
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.traffic.tick();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.traffic.flushed();
        Poll::Ready(Ok(()))
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
