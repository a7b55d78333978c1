//! What a raw upstream does with a connection: a list of steps on the wire.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::Receiver;

use crate::wire;

/// One thing to do on the wire.
#[derive(Debug)]
pub enum Step {
    /// Write these bytes in one go.
    Send(Bytes),
    /// Write these bytes `size` at a time, with `gap` between two writes.
    SendInPieces {
        /// What to write.
        bytes: Bytes,
        /// Bytes per write; 0 counts as 1.
        size: usize,
        /// Time between two writes.
        gap: Duration,
    },
    /// Write the same bytes `count` times on a fixed schedule, the first after one `gap`.
    Repeat {
        /// What to write each time.
        bytes: Bytes,
        /// How often.
        count: u64,
        /// Time from one write to the next, late writes do not push back later ones.
        gap: Duration,
    },
    /// Do nothing for so long.
    Wait(Duration),
    /// Do the steps that come through a channel, until its sender is dropped.
    Relay(Receiver<Step>),
    /// Close in good order (FIN) and ignore what the peer still sends.
    Fin,
    /// Close with RST: what the peer has not read yet is lost to it.
    Reset,
    /// Never say another word, until the peer closes.
    Hang,
}

/// The steps that answer one request. If none of them closes, the connection is kept alive.
#[derive(Debug, Default)]
pub struct Script(pub(crate) Vec<Step>);

impl Script {
    /// Nothing: the connection waits for its next request.
    pub fn new() -> Script {
        Script::default()
    }

    /// A whole response with `Content-Length`.
    pub fn answer(status: u16, content_type: &str, body: &[u8]) -> Script {
        let length = body.len().to_string();
        let headers = [("Content-Type", content_type), ("Content-Length", &length)];
        let mut bytes = wire::response_head(status, &headers);
        bytes.extend_from_slice(body);
        Script::new().send(bytes)
    }

    /// Adds any step.
    #[must_use]
    pub fn then(mut self, step: Step) -> Script {
        self.0.push(step);
        self
    }

    /// Adds [`Step::Send`].
    #[must_use]
    pub fn send(self, bytes: impl Into<Bytes>) -> Script {
        self.then(Step::Send(bytes.into()))
    }

    /// Adds [`Step::SendInPieces`].
    #[must_use]
    pub fn send_in_pieces(self, bytes: impl Into<Bytes>, size: usize, gap: Duration) -> Script {
        self.then(Step::SendInPieces { bytes: bytes.into(), size, gap })
    }

    /// Adds [`Step::Wait`].
    #[must_use]
    pub fn wait(self, time: Duration) -> Script {
        self.then(Step::Wait(time))
    }

    /// Adds [`Step::Fin`].
    #[must_use]
    pub fn fin(self) -> Script {
        self.then(Step::Fin)
    }

    /// Adds [`Step::Reset`].
    #[must_use]
    pub fn reset(self) -> Script {
        self.then(Step::Reset)
    }

    /// Adds [`Step::Hang`].
    #[must_use]
    pub fn hang(self) -> Script {
        self.then(Step::Hang)
    }
}

impl From<Vec<Step>> for Script {
    fn from(steps: Vec<Step>) -> Script {
        Script(steps)
    }
}
