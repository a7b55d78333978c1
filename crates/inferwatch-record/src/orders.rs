//! What callers ask of the writer thread (flush, reopen, close) and how they wait for its answer.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::shared::lock;

/// What a caller wants of the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Flush,
    Reopen,
    Close,
}

#[derive(Default)]
pub(crate) struct Orders {
    book: Mutex<Book>,
    answered: Condvar,
}

/// Each asking has a number.
#[derive(Default)]
struct Book {
    asked: u64,
    answered: u64,
    reopen: bool,
    closing: bool,
    answer: Answer,
}

/// What the writer said last.
#[derive(Default)]
pub(crate) struct Answer {
    /// All lines sent before the asking are written.
    pub(crate) drained: bool,
    /// What the last reopening failed with.
    pub(crate) reopen_error: Option<(io::ErrorKind, String)>,
}

/// The orders that stand when the writer looks.
pub(crate) struct Standing {
    pub(crate) asked: u64,
    pub(crate) urgent: bool,
    pub(crate) reopen: bool,
    pub(crate) closing: bool,
}

impl Orders {
    /// Enters an order; its number tells its answer from earlier ones.
    pub(crate) fn enter(&self, order: Order) -> u64 {
        let mut book = lock(&self.book);
        book.asked += 1;
        book.reopen |= order == Order::Reopen;
        book.closing |= order == Order::Close;
        book.asked
    }

    /// Waits until order `number` is answered; `None` if that did not come in time.
    pub(crate) fn wait<T>(
        &self,
        number: u64,
        timeout: Duration,
        read: impl FnOnce(&Answer) -> T,
    ) -> Option<T> {
        let waiting = |book: &mut Book| book.answered < number;
        let (book, wait) = self
            .answered
            .wait_timeout_while(lock(&self.book), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        (!wait.timed_out()).then(|| read(&book.answer))
    }

    /// The writer's look; an order to reopen is taken off.
    pub(crate) fn standing(&self) -> Standing {
        let mut book = lock(&self.book);
        Standing {
            asked: book.asked,
            urgent: book.asked > book.answered,
            reopen: std::mem::take(&mut book.reopen),
            closing: book.closing,
        }
    }

    /// Answers all orders up to number `asked`.
    pub(crate) fn answer(&self, asked: u64, drained: bool, reopened: Option<io::Result<()>>) {
        let mut book = lock(&self.book);
        book.answered = asked;
        book.answer.drained = drained;
        if let Some(result) = reopened {
            book.answer.reopen_error = result.err().map(|e| (e.kind(), e.to_string()));
        }
        self.answered.notify_all();
    }

    /// Answers all orders, those still to come too: the writer is gone.
    pub(crate) fn answer_for_ever(&self, drained: bool) {
        let closed = io::Error::new(io::ErrorKind::NotConnected, "the recorder is closed");
        self.answer(u64::MAX, drained, Some(Err(closed)));
    }
}
