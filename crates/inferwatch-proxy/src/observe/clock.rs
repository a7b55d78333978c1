//! When tokens came: the first, the last, and whether the reads were fine enough to tell.

use std::time::Duration;

/// A head and a body that come within this are taken for one read.
const SAME_READ: Duration = Duration::from_millis(1);

/// Arrival of the events that carry tokens. An event is not a token: they are never counted as
/// tokens.
#[derive(Debug, Default)]
pub(super) struct TokenClock {
    now: Duration,
    in_read: bool,
    first: Option<Duration>,
    last: Option<Duration>,
    finished: Option<Duration>,
    /// Token events after the first one.
    later_count: u64,
    /// Of these: came in a read that had brought a token event already.
    crowded_count: u64,
}

impl TokenClock {
    /// What was read from the upstream at `at` follows; one time is one read.
    pub(super) fn read(&mut self, at: Duration) {
        self.in_read &= at == self.now;
        self.now = at;
    }

    /// An event with a token ended.
    pub(super) fn token(&mut self) {
        if self.first.is_some() {
            self.later_count += 1;
            self.crowded_count += u64::from(self.in_read);
        }
        self.first.get_or_insert(self.now);
        self.last = Some(self.now);
        self.in_read = true;
    }

    /// An event with a finish reason ended.
    pub(super) fn finish(&mut self) {
        self.finished = Some(self.now);
    }

    /// When the first token came.
    pub(super) fn first(&self) -> Option<Duration> {
        self.first
    }

    /// Whether most tokens shared their read with an earlier one, so that the time between
    /// reads says nothing about the time between tokens.
    pub(super) fn is_coalesced(&self) -> bool {
        self.crowded_count * 2 > self.later_count
    }

    /// Whether the first token came in the read that brought the head.
    pub(super) fn first_came_with(&self, head: Duration) -> bool {
        self.first.is_some_and(|first| first.saturating_sub(head) < SAME_READ)
    }

    /// From the first token to the last. `stopped`: the last token was the end-of-sequence token,
    /// which is counted by servers and never shown; its time is that of the finish reason.
    pub(super) fn decode_time(&self, stopped: bool) -> Option<Duration> {
        let last = if stopped { self.finished.max(self.last) } else { self.last };
        let time = last?.checked_sub(self.first?)?;
        (!time.is_zero()).then_some(time)
    }
}
