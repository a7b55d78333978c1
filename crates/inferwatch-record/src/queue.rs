//! What callers and the writer thread share: the bounded queue of lines, the running spans, and
//! the orders to the writer. Every lock here is held for memory operations only.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

use crate::line::{Line, OpenLine, RequestLine};

/// A string in the queue is cut to this (above every cap of the writer, so that its `…` still
/// shows): a queue of hostile lines must not hold megabytes each.
const QUEUED_STRING_BYTES: usize = 1024;

pub(crate) struct Shared {
    queue: Mutex<Queue>,
    running: Mutex<BTreeMap<u64, Running>>,
    orders: Mutex<Orders>,
    answered: Condvar,
    writer: OnceLock<Thread>,
    queue_lines: usize,
    pub(crate) queue_full_count: AtomicU64,
    pub(crate) write_failed_count: AtomicU64,
    next_span: AtomicU64,
    id_prefix: String,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Line>,
    next_seq: u64,
    closed: bool,
}

/// A span that has not ended, as the writer sees it.
struct Running {
    span: Arc<RunningSpan>,
    next_open: Duration,
}

pub(crate) struct RunningSpan {
    pub(crate) started: Instant,
    pub(crate) line: Mutex<RequestLine>,
}

/// What callers ask of the writer, and its last answer. Each asking has a number.
#[derive(Default)]
struct Orders {
    asked: u64,
    answered: u64,
    reopen: bool,
    closing: bool,
    answer: Answer,
}

/// What the writer says to a flush, a reopen or a close.
#[derive(Default)]
pub(crate) struct Answer {
    /// All lines sent before the asking are written.
    pub(crate) drained: bool,
    /// What the last reopening failed with.
    pub(crate) reopen_error: Option<(io::ErrorKind, String)>,
}

/// What a caller wants of the writer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Flush,
    Reopen,
    Close,
}

/// The orders that stand when the writer looks.
pub(crate) struct Standing {
    pub(crate) asked: u64,
    pub(crate) urgent: bool,
    pub(crate) reopen: bool,
    pub(crate) closing: bool,
}

/// A panic elsewhere must not become one here: the values under these locks are whole at all times.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Shared {
    pub(crate) fn new(queue_lines: usize) -> Shared {
        let started_ms = unix_ms(SystemTime::now());
        let process = u64::from(std::process::id());
        Shared {
            queue: Mutex::default(),
            running: Mutex::default(),
            orders: Mutex::default(),
            answered: Condvar::new(),
            writer: OnceLock::new(),
            queue_lines,
            queue_full_count: AtomicU64::new(0),
            write_failed_count: AtomicU64::new(0),
            next_span: AtomicU64::new(1),
            id_prefix: format!("{}.{}.", base36(started_ms), base36(process)),
        }
    }

    pub(crate) fn set_writer(&self, thread: Thread) {
        // Set once, right after the only spawn.
        let _ = self.writer.set(thread);
    }

    fn wake_writer(&self) {
        if let Some(thread) = self.writer.get() {
            thread.unpark();
        }
    }

    /// Stamps and queues a line. A full queue drops this line, but takes its number all the same.
    pub(crate) fn send(&self, mut line: Line) {
        bound_strings(&mut line);
        let (ts_unix_ms, _) = line.stamp_mut();
        ts_unix_ms.get_or_insert_with(|| unix_ms(SystemTime::now()));
        let mut queue = lock(&self.queue);
        *line.stamp_mut().1 = Some(queue.take_seq());
        if queue.closed || queue.lines.len() >= self.queue_lines {
            drop(queue);
            self.queue_full_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.lines.push_back(line);
        let half_full = queue.lines.len() == self.queue_lines.div_ceil(2);
        drop(queue);
        if half_full {
            self.wake_writer();
        }
    }

    pub(crate) fn take_seq(&self) -> u64 {
        lock(&self.queue).take_seq()
    }

    /// Swaps the queued lines for an empty queue, which keeps both allocations in use.
    pub(crate) fn take_lines(&self, empty: &mut VecDeque<Line>) {
        std::mem::swap(&mut lock(&self.queue).lines, empty);
    }

    /// A key for a span, in order of beginning.
    pub(crate) fn next_span_key(&self) -> u64 {
        self.next_span.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters a span; the number of spans that now run is its `inflight`.
    pub(crate) fn enter(&self, key: u64, span: &Arc<RunningSpan>, open_after: Duration) {
        let mut running = lock(&self.running);
        running.insert(key, Running { span: span.clone(), next_open: open_after });
        lock(&span.line).inflight = Some(running.len() as u64);
    }

    pub(crate) fn span_id(&self, key: u64) -> String {
        let mut id = String::with_capacity(self.id_prefix.len() + 4);
        id.push_str(&self.id_prefix);
        push_base36(&mut id, key);
        id
    }

    pub(crate) fn leave(&self, key: u64) {
        lock(&self.running).remove(&key);
    }

    pub(crate) fn inflight(&self) -> u64 {
        lock(&self.running).len() as u64
    }

    /// Sends an `open` line for each span whose age has reached its next threshold.
    pub(crate) fn send_open_lines(&self, now: Instant) {
        let due: Vec<Arc<RunningSpan>> = lock(&self.running)
            .values_mut()
            .filter_map(|running| running.is_due(now).then(|| running.span.clone()))
            .collect();
        for span in due {
            self.send(Line::Open(Box::new(span.open_line(now))));
        }
    }

    /// Gives an order; the number tells its answer from earlier ones.
    pub(crate) fn ask(&self, order: Order) -> u64 {
        let mut orders = lock(&self.orders);
        orders.asked += 1;
        orders.reopen |= order == Order::Reopen;
        orders.closing |= order == Order::Close;
        let number = orders.asked;
        drop(orders);
        self.wake_writer();
        number
    }

    /// Waits until order `number` is answered; `None` if that did not come in time.
    pub(crate) fn wait<T>(
        &self,
        number: u64,
        timeout: Duration,
        read: impl FnOnce(&Answer) -> T,
    ) -> Option<T> {
        let waiting = |orders: &mut Orders| orders.answered < number;
        let (orders, wait) = self
            .answered
            .wait_timeout_while(lock(&self.orders), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        (!wait.timed_out()).then(|| read(&orders.answer))
    }

    pub(crate) fn standing_orders(&self) -> Standing {
        let mut orders = lock(&self.orders);
        Standing {
            asked: orders.asked,
            urgent: orders.asked > orders.answered,
            reopen: std::mem::take(&mut orders.reopen),
            closing: orders.closing,
        }
    }

    pub(crate) fn answer(&self, asked: u64, drained: bool, reopened: Option<io::Result<()>>) {
        let mut orders = lock(&self.orders);
        orders.answered = asked;
        orders.answer.drained = drained;
        if let Some(result) = reopened {
            orders.answer.reopen_error = result.err().map(|e| (e.kind(), e.to_string()));
        }
        self.answered.notify_all();
    }

    /// The writer is gone: later lines are dropped and counted, every order is answered.
    pub(crate) fn mark_ended(&self, drained: bool) {
        let left = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            std::mem::take(&mut queue.lines)
        };
        self.queue_full_count.fetch_add(left.len() as u64, Ordering::Relaxed);
        let mut orders = lock(&self.orders);
        orders.answered = u64::MAX;
        orders.answer.drained = drained && left.is_empty();
        orders.answer.reopen_error =
            Some((io::ErrorKind::NotConnected, "the recorder is closed".into()));
        self.answered.notify_all();
    }
}

impl Queue {
    fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq
    }
}

impl Running {
    fn is_due(&mut self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.span.started);
        let due = age >= self.next_open;
        while age >= self.next_open {
            self.next_open = self.next_open.saturating_mul(2).max(Duration::from_millis(1));
        }
        due
    }
}

impl RunningSpan {
    fn open_line(&self, now: Instant) -> OpenLine {
        let line = lock(&self.line);
        OpenLine {
            id: line.id.clone(),
            route: line.route.clone(),
            model: line.model.clone(),
            age_ms: now.saturating_duration_since(self.started).as_secs_f64() * 1000.0,
            inflight: line.inflight,
            headers_ms: line.headers_ms,
            ttft_ms: line.ttft_ms,
            ..OpenLine::default()
        }
    }
}

fn bound_strings(line: &mut Line) {
    match line {
        Line::Request(line) => {
            bound(&mut line.route);
            let known = [
                &mut line.id,
                &mut line.model,
                &mut line.error,
                &mut line.upstream,
                &mut line.requested_model,
                &mut line.finish,
                &mut line.trace_id,
                &mut line.client,
            ];
            known.into_iter().flatten().for_each(bound);
        }
        Line::Open(line) => {
            bound(&mut line.route);
            [&mut line.id, &mut line.model].into_iter().flatten().for_each(bound);
        }
        Line::Start(_) | Line::Stop(_) | Line::Dropped(_) | Line::Unknown { .. } => {}
    }
}

fn bound(text: &mut String) {
    if text.len() > QUEUED_STRING_BYTES {
        let boundary = (0..=QUEUED_STRING_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or(0));
        text.shrink_to_fit();
    }
}

fn base36(value: u64) -> String {
    let mut text = String::new();
    push_base36(&mut text, value);
    text
}

fn push_base36(text: &mut String, value: u64) {
    if value >= 36 {
        push_base36(text, value / 36);
    }
    text.push(char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[(value % 36) as usize]));
}
