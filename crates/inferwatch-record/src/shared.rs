//! What the callers' handles and the writer thread hold in common. Every lock in it is held for
//! memory operations only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, SystemTime};

use crate::line::Line;
use crate::orders::{Order, Orders};
use crate::queue::Queue;
use crate::running::RunningSpans;

pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) running: RunningSpans,
    pub(crate) orders: Orders,
    pub(crate) write_failed_count: AtomicU64,
    writer: OnceLock<Thread>,
}

impl Shared {
    pub(crate) fn new(queue_lines: usize, open_after: Duration) -> Shared {
        Shared {
            queue: Queue::new(queue_lines),
            running: RunningSpans::new(open_after),
            orders: Orders::default(),
            write_failed_count: AtomicU64::new(0),
            writer: OnceLock::new(),
        }
    }

    pub(crate) fn set_writer(&self, thread: Thread) {
        self.writer.get_or_init(|| thread);
    }

    pub(crate) fn send(&self, mut line: Line) {
        line.stamp_mut().0.get_or_insert_with(|| unix_ms(SystemTime::now()));
        if self.queue.push(line) {
            self.wake_writer();
        }
    }

    /// Gives an order to the writer; the number is for `orders.wait`.
    pub(crate) fn ask(&self, order: Order) -> u64 {
        let number = self.orders.enter(order);
        self.wake_writer();
        number
    }

    pub(crate) fn dropped_count(&self) -> u64 {
        self.queue.full_count() + self.write_failed_count.load(Ordering::Relaxed)
    }

    /// The writer is gone: later lines are dropped and counted, every order is answered.
    pub(crate) fn mark_ended(&self, drained: bool) {
        let nothing_left = self.queue.close();
        self.orders.answer_for_ever(drained && nothing_left);
    }

    fn wake_writer(&self) {
        if let Some(thread) = self.writer.get() {
            thread.unpark();
        }
    }
}

/// A panic elsewhere must not become one here: the values under these locks are whole at all times.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
