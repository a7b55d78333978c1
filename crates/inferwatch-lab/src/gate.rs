//! Turns what a fake server wants to say into steps on the wire, with one fault committed on the
//! way.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Duration;

use bytes::Bytes;

use crate::fault::Fault;
use crate::script::Step;

/// Neither UTF-8 nor JSON.
pub(crate) const GARBAGE: &[u8] = b"{\"choices\":[{\"delta\xff\xfe\x00:";

/// Bytes on their way out. Once it is closed, it says nothing any more.
#[derive(Debug)]
pub(crate) struct Gate {
    fault: Fault,
    sent_bytes: u64,
    held: Vec<u8>,
    closed: bool,
}

impl Gate {
    pub(crate) fn new(fault: Fault) -> Gate {
        Gate { fault, sent_bytes: 0, held: Vec::new(), closed: false }
    }

    /// Whether nothing more will be said.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The bytes of one write, as the fault lets them pass.
    pub(crate) fn pass(&mut self, bytes: Vec<u8>) -> Vec<Step> {
        if self.closed || bytes.is_empty() {
            return Vec::new();
        }
        match self.fault {
            Fault::CutAfterBytes(limit) => self.cut(bytes, limit, Step::Fin),
            Fault::ResetAfterBytes(limit) => self.cut(bytes, limit, Step::Reset),
            Fault::SlowDrip { bytes: size, gap } => drip(bytes, size, gap),
            Fault::BurstAll => {
                self.held.extend_from_slice(&bytes);
                Vec::new()
            }
            _ => vec![Step::Send(Bytes::from(bytes))],
        }
    }

    /// The end of the answer.
    pub(crate) fn finish(&mut self, close: bool) -> Vec<Step> {
        if std::mem::replace(&mut self.closed, true) {
            return Vec::new();
        }
        let held = std::mem::take(&mut self.held);
        let burst = (!held.is_empty()).then(|| Step::Send(Bytes::from(held)));
        burst.into_iter().chain(close.then_some(Step::Fin)).collect()
    }

    fn cut(&mut self, mut bytes: Vec<u8>, limit_bytes: u64, end: Step) -> Vec<Step> {
        let room = usize::try_from(limit_bytes - self.sent_bytes).unwrap_or(usize::MAX);
        if bytes.len() < room {
            self.sent_bytes += bytes.len() as u64;
            return vec![Step::Send(Bytes::from(bytes))];
        }
        bytes.truncate(room);
        self.closed = true;
        vec![Step::Send(Bytes::from(bytes)), end]
    }
}

fn drip(bytes: Vec<u8>, size: usize, gap: Duration) -> Vec<Step> {
    // The gap before the first piece keeps it apart from the write before.
    vec![Step::Wait(gap), Step::SendInPieces { bytes: Bytes::from(bytes), size, gap }]
}
