//! The bounded queue between callers and the writer thread. Two buffers take turns: the writer
//! swaps its empty one in, so that nobody waits for more than a push.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::line::Line;
use crate::shared::lock;

/// A string in the queue is cut to this (above every cap of the writer, so that its `…` still
/// shows): a queue of hostile lines must not hold megabytes each.
const STRING_BYTES: usize = 1024;

pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    capacity_lines: usize,
    full_count: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<Line>,
    last_seq: u64,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(capacity_lines: usize) -> Queue {
        Queue { waiting: Mutex::default(), capacity_lines, full_count: AtomicU64::new(0) }
    }

    /// Numbers and queues a line; `true` if the queue has just become half full. A full queue drops
    /// this line, but its number is taken all the same.
    pub(crate) fn push(&self, mut line: Line) -> bool {
        bound_strings(&mut line);
        let mut waiting = lock(&self.waiting);
        *line.stamp_mut().1 = Some(waiting.take_seq());
        if waiting.closed || waiting.lines.len() >= self.capacity_lines {
            drop(waiting);
            self.full_count.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        waiting.lines.push_back(line);
        waiting.lines.len() == self.capacity_lines.div_ceil(2)
    }

    /// A number for a line that does not go through the queue.
    pub(crate) fn take_seq(&self) -> u64 {
        lock(&self.waiting).take_seq()
    }

    /// Swaps the queued lines for an empty buffer, which keeps both allocations in use.
    pub(crate) fn swap(&self, empty: &mut VecDeque<Line>) {
        std::mem::swap(&mut lock(&self.waiting).lines, empty);
    }

    /// Lines that found the queue full, or closed.
    pub(crate) fn full_count(&self) -> u64 {
        self.full_count.load(Ordering::Relaxed)
    }

    /// Drops and counts what waits and what is still to come; `true` if nothing waited.
    pub(crate) fn close(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.closed = true;
        let left = std::mem::take(&mut waiting.lines);
        drop(waiting);
        self.full_count.fetch_add(left.len() as u64, Ordering::Relaxed);
        left.is_empty()
    }
}

impl Waiting {
    fn take_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
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
    if text.len() > STRING_BYTES {
        let boundary = (0..=STRING_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(boundary.unwrap_or(0));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::RequestLine;

    #[test]
    fn a_megabyte_in_a_name_does_not_wait_in_the_queue() {
        let queue = Queue::new(8);
        let line = RequestLine {
            route: "é🦀".repeat(1 << 18),
            model: Some("a".repeat(1 << 20)),
            ..RequestLine::default()
        };
        queue.push(Line::Request(Box::new(line)));
        let mut lines = VecDeque::new();
        queue.swap(&mut lines);
        let Some(Line::Request(line)) = lines.pop_front() else { panic!("no line") };
        for text in [&line.route, line.model.as_ref().unwrap()] {
            assert!(text.capacity() <= STRING_BYTES, "{} bytes", text.capacity());
        }
    }

    #[test]
    fn a_full_queue_drops_the_new_line_and_takes_its_number() {
        let queue = Queue::new(4);
        let line = || Line::Request(Box::default());
        let half_full: Vec<bool> = (0..6).map(|_| queue.push(line())).collect();
        assert_eq!(half_full, [false, true, false, false, false, false]);
        assert_eq!(queue.full_count(), 2);
        let mut lines = VecDeque::new();
        queue.swap(&mut lines);
        lines.clear();
        queue.push(line());
        queue.swap(&mut lines);
        assert_eq!(lines.iter().map(Line::seq).collect::<Vec<_>>(), [Some(7)]);
        assert!(queue.close());
        queue.push(line());
        assert_eq!(queue.full_count(), 3);
    }
}
