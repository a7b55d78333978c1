//! The spans that have not ended: how many, since when, and which of them are due for an `open`
//! line.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use crate::line::{OpenLine, RequestLine};
use crate::shared::{lock, unix_ms};

/// The table is the truth about `inflight`: no counter can drift from it.
pub(crate) struct RunningSpans {
    table: Mutex<BTreeMap<u64, Entry>>,
    next_key: AtomicU64,
    open_after: Duration,
    id_prefix: String,
}

/// A span that has not ended, as its caller and the writer share it.
pub(crate) struct RunningSpan {
    pub(crate) started: Instant,
    pub(crate) line: Mutex<RequestLine>,
}

struct Entry {
    span: Arc<RunningSpan>,
    next_open: Duration,
}

impl RunningSpans {
    pub(crate) fn new(open_after: Duration) -> RunningSpans {
        let process_ms = base36(unix_ms(SystemTime::now()));
        let pid = base36(u64::from(std::process::id()));
        RunningSpans {
            table: Mutex::default(),
            next_key: AtomicU64::new(1),
            open_after,
            id_prefix: format!("{process_ms}.{pid}."),
        }
    }

    /// Begins a span; those that now run are its `inflight`. The key ends it.
    pub(crate) fn enter(&self, route: String, started: Instant) -> (u64, Arc<RunningSpan>) {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let line = RequestLine { route, id: Some(self.id(key)), ..RequestLine::default() };
        let span = Arc::new(RunningSpan { started, line: Mutex::new(line) });
        let mut table = lock(&self.table);
        table.insert(key, Entry { span: span.clone(), next_open: self.open_after });
        lock(&span.line).inflight = Some(table.len() as u64);
        drop(table);
        (key, span)
    }

    pub(crate) fn leave(&self, key: u64) {
        lock(&self.table).remove(&key);
    }

    pub(crate) fn count(&self) -> u64 {
        lock(&self.table).len() as u64
    }

    /// An `open` line for each span whose age has reached its next threshold.
    pub(crate) fn due(&self, now: Instant) -> Vec<OpenLine> {
        let due: Vec<Arc<RunningSpan>> = lock(&self.table)
            .values_mut()
            .filter_map(|entry| entry.is_due(now).then(|| entry.span.clone()))
            .collect();
        due.iter().map(|span| span.open_line(now)).collect()
    }

    fn id(&self, key: u64) -> String {
        let mut id = String::with_capacity(self.id_prefix.len() + 4);
        id.push_str(&self.id_prefix);
        push_base36(&mut id, key);
        id
    }
}

impl Entry {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base36_is_what_it_says() {
        for (value, text) in [(0, "0"), (35, "z"), (36, "10"), (u64::MAX, "3w5e11264sgsf")] {
            assert_eq!(base36(value), text);
        }
    }

    #[test]
    fn ages_double() {
        let spans = RunningSpans::new(Duration::from_secs(10));
        let started = Instant::now();
        let (key, _span) = spans.enter("/generate".into(), started);
        let due_at = |second| !spans.due(started + Duration::from_secs(second)).is_empty();
        let seconds: Vec<u64> = (0..200).filter(|second| due_at(*second)).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160]);
        spans.leave(key);
        assert!(!due_at(10_000));
    }
}
