//! Connections to the upstream: opened, kept for a moment, used again.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::address::UpstreamAddr;
use crate::link::Link;

/// llama-server (cpp-httplib) and uvicorn close a connection that idles for 5 s: ours go first.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// cpp-httplib closes a connection after 100 requests: ours end before.
const REQUESTS_PER_CONNECTION: u32 = 90;

/// Connections kept at most; more than this many at once idle only after a burst.
const IDLE_CONNECTIONS: usize = 64;

/// A model server on this box accepts at once or not at all.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The upstream and the idle connections to it.
pub(crate) struct Pool {
    address: UpstreamAddr,
    idle: Mutex<Vec<(Link, Instant)>>,
}

impl Pool {
    pub(crate) fn new(address: UpstreamAddr) -> Pool {
        Pool { address, idle: Mutex::new(Vec::new()) }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Link, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A kept connection that still stands, the youngest first.
    pub(crate) fn take_idle(&self, now: Instant) -> Option<Link> {
        let mut idle = self.idle();
        while let Some((mut link, since)) = idle.pop() {
            if now.saturating_duration_since(since) < IDLE_LIMIT && link.is_idle() {
                return Some(link);
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> io::Result<Link> {
        let target = (self.address.host(), self.address.port());
        let tcp = match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(target)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        };
        Link::open(tcp).await.map_err(io::Error::other)
    }

    /// Keeps a connection whose answer was read to its end, if it can be used again.
    pub(crate) fn give_back(&self, mut link: Link, now: Instant) {
        if link.requests() >= REQUESTS_PER_CONNECTION || !link.is_idle() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < IDLE_CONNECTIONS {
            idle.push((link, now));
        }
    }

    /// Closes what has idled too long or was closed by the upstream.
    pub(crate) fn sweep(&self, now: Instant) {
        let stands = |(link, since): &mut (Link, Instant)| {
            now.saturating_duration_since(*since) < IDLE_LIMIT && link.is_idle()
        };
        self.idle().retain_mut(stands);
    }

    /// Closes every idle connection: file descriptors are short.
    pub(crate) fn clear(&self) {
        self.idle().clear();
    }
}
