//! What a raw upstream saw: requests, connections, and when each peer closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::wire::RequestHead;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its head, parsed and raw.
    pub head: RequestHead,
    /// Payload of the body, without its framing; capped by `Options::keep_body_bytes`.
    pub body: Vec<u8>,
    /// The body as it stood on the wire; capped by `Options::keep_body_bytes`.
    pub body_on_wire: Vec<u8>,
    /// Size of the whole payload, kept or not.
    pub body_bytes: u64,
    /// Connection that it came on, counted from 0 over the life of the upstream.
    pub connection: usize,
    /// Requests that came before it on this connection.
    pub number: usize,
}

impl Request {
    /// Path without query.
    pub fn path(&self) -> &str {
        self.head.target.split('?').next().unwrap_or_default()
    }
}

/// How a peer closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseKind {
    /// In good order.
    Fin,
    /// With a reset or another error.
    Reset,
}

/// A peer's close, as it was seen.
#[derive(Debug, Clone, Copy)]
pub struct PeerClosed {
    /// When it was noticed.
    pub at: Instant,
    /// How.
    pub kind: CloseKind,
    /// Whether it came while a request was being read or answered.
    pub mid_request: bool,
}

#[derive(Debug, Default)]
struct ConnectionLog {
    requests_count: usize,
    peer_closed: Option<PeerClosed>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Arc<Request>>,
    connections: Vec<ConnectionLog>,
}

/// The record of one upstream; every question is about its whole life.
#[derive(Debug, Default)]
pub struct Observed {
    log: Mutex<Log>,
    changed: Notify,
}

impl Observed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let result = change(&mut self.log());
        self.changed.notify_waiters();
        result
    }

    async fn wait_for<T>(&self, question: impl Fn(&Log) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(answer) = question(&self.log()) {
                return answer;
            }
            changed.await;
        }
    }

    pub(crate) fn opened(&self) -> usize {
        self.change(|log| {
            log.connections.push(ConnectionLog::default());
            log.connections.len() - 1
        })
    }

    pub(crate) fn began(&self, connection: usize) {
        self.change(|log| log.connections[connection].requests_count += 1);
    }

    pub(crate) fn came(&self, request: Arc<Request>) {
        self.change(|log| log.requests.push(request));
    }

    pub(crate) fn closed(&self, connection: usize, closed: PeerClosed) {
        self.change(|log| {
            log.connections[connection].peer_closed.get_or_insert(closed);
        });
    }

    /// Every request whose body came whole (or whose head was answered at once), in order.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.log().requests.clone()
    }

    /// Connections accepted so far.
    pub fn connections_count(&self) -> usize {
        self.log().connections.len()
    }

    /// How many requests began on each connection.
    pub fn requests_per_connection(&self) -> Vec<usize> {
        self.log().connections.iter().map(|c| c.requests_count).collect()
    }

    /// The request of this index over all connections, as soon as it is there.
    pub async fn request(&self, index: usize) -> Arc<Request> {
        self.wait_for(|log| log.requests.get(index).cloned()).await
    }

    /// The close of the peer of this connection, as soon as it is noticed.
    pub async fn peer_closed(&self, connection: usize) -> PeerClosed {
        self.wait_for(|log| log.connections.get(connection)?.peer_closed).await
    }

    /// The close of this connection's peer, if it was noticed already.
    pub fn peer_closed_yet(&self, connection: usize) -> Option<PeerClosed> {
        self.log().connections.get(connection)?.peer_closed
    }
}
