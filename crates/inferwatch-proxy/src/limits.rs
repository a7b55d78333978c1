//! Admission: how many requests the upstream may hold, and how many may wait before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds on admission. Without them every request goes straight to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests that the upstream may hold at once.
    pub max_inflight: usize,
    /// Requests that may wait for one of these places, first come, first served.
    pub max_queue: usize,
    /// How long one may wait.
    pub queue_timeout: Duration,
}

/// The door.
pub(crate) struct Admission {
    limits: Limits,
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Smoothed time that a request holds its place, milliseconds; 0 before the first.
    hold_ms: AtomicU64,
}

/// A place at the upstream; dropping it lets the next one in.
pub(crate) struct Permit {
    admission: Arc<Admission>,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

/// Not let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: &'static str,
    /// When to try again, from how long requests held their places lately.
    pub(crate) retry_after_s: u64,
}

/// One that waits; leaving (in any way) is counted.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(limits.max_inflight.min(Semaphore::MAX_PERMITS)));
        let (waiting, hold_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Admission { limits, places, waiting, hold_ms })
    }

    /// Waits for a place, first come, first served.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<Permit, Refused> {
        // Free places go to those who wait first: this succeeds only when nobody does.
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(self.permit(place));
        }
        let Some(_waiting) = self.queue() else { return Err(self.refuse("queue full")) };
        let place = self.places.clone().acquire_owned();
        match tokio::time::timeout(self.limits.queue_timeout, place).await {
            Ok(Ok(place)) => Ok(self.permit(place)),
            _ => Err(self.refuse("queue time-out")),
        }
    }

    fn queue(&self) -> Option<Waiting<'_>> {
        let waiting = Waiting(&self.waiting);
        let ahead = self.waiting.fetch_add(1, Relaxed);
        (ahead < self.limits.max_queue).then_some(waiting)
    }

    fn permit(self: &Arc<Self>, place: OwnedSemaphorePermit) -> Permit {
        Permit { admission: self.clone(), since: Instant::now(), _place: place }
    }

    fn refuse(&self, why: &'static str) -> Refused {
        let (waiting, hold_ms) = (self.waiting.load(Relaxed), self.hold_ms.load(Relaxed));
        Refused { why, retry_after_s: retry_after_s(waiting, self.limits.max_inflight, hold_ms) }
    }
}

/// When a place is likely free: those ahead, shared out over the places; 1 s to 1 min.
fn retry_after_s(waiting: usize, places: usize, hold_ms: u64) -> u64 {
    let rounds = (waiting / places.max(1)) as u64 + 1;
    rounds.saturating_mul(hold_ms).div_ceil(1000).clamp(1, 60)
}

/// Exponential smoothing over the last eight or so.
fn smooth(old_ms: u64, new_ms: u64) -> u64 {
    if old_ms == 0 { new_ms } else { (old_ms * 7 + new_ms) / 8 }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let held_ms = self.since.elapsed().as_millis() as u64;
        let hold_ms = &self.admission.hold_ms;
        hold_ms.store(smooth(hold_ms.load(Relaxed), held_ms), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(max_inflight: usize, max_queue: usize) -> Arc<Admission> {
        let queue_timeout = Duration::from_secs(5);
        Admission::new(Limits { max_inflight, max_queue, queue_timeout })
    }

    async fn place(door: &Arc<Admission>) -> Permit {
        door.enter().await.unwrap_or_else(|refused| panic!("no free place: {refused:?}"))
    }

    #[tokio::test(start_paused = true)]
    async fn first_come_first_served_and_no_more() {
        let door = admission(1, 2);
        let first = place(&door).await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..2)
            .map(|n| {
                let (door, order) = (door.clone(), order.clone());
                tokio::spawn(async move {
                    let permit = door.enter().await;
                    order.lock().unwrap().push(n);
                    drop(permit);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(door.enter().await.err().map(|r| r.why), Some("queue full"));
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1]);
        assert_eq!(door.waiting.load(Relaxed), 0);
        assert_eq!(door.places.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends() {
        let door = admission(1, 1);
        let _held = place(&door).await;
        assert_eq!(door.enter().await.err().map(|r| r.why), Some("queue time-out"));
        assert_eq!(door.waiting.load(Relaxed), 0);
        let gave_up = tokio::time::timeout(Duration::from_secs(1), door.enter()).await;
        assert!(gave_up.is_err());
        assert_eq!(door.waiting.load(Relaxed), 0);
    }

    #[test]
    fn retry_after() {
        for (waiting, places, hold_ms, expected) in
            [(0, 1, 0, 1), (0, 1, 2500, 3), (4, 2, 2000, 6), (1000, 1, 9000, 60), (0, 0, 1, 1)]
        {
            assert_eq!(retry_after_s(waiting, places, hold_ms), expected);
        }
    }
}
