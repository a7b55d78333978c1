//! The writer thread: wakes by time, formats, writes whole lines, counts what it loses, and keeps
//! trying a sink that fails. Nothing that happens here reaches a caller.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::line::{DroppedLine, Line};
use crate::shared::{Shared, unix_ms};
use crate::sink::Sink;
use crate::write::{LINE_BYTES, format_line};

/// Upper bound of one write(2): the capacity of a pipe on Linux.
const CHUNK_BYTES: usize = 64 * 1024;
/// How stale a line may get; a wake costs some microseconds, 40 of them a second are nothing.
const WRITE_EVERY: Duration = Duration::from_millis(25);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

pub(crate) struct Writer {
    shared: Arc<Shared>,
    sink: Sink,
    taken: VecDeque<Line>,
    buffer: Vec<u8>,
    reported: Losses,
    last_error: Option<String>,
    backoff: Duration,
    retry_at: Option<Instant>,
    open_lines_every: Duration,
    open_lines_at: Instant,
    /// Lines in the write that is under way.
    at_stake_count: u64,
    ended_well: bool,
}

/// Lines lost since the start, by reason.
#[derive(Clone, Copy, Default, PartialEq)]
struct Losses {
    queue_full_count: u64,
    write_failed_count: u64,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, sink: Sink, open_after: Duration) -> Writer {
        Writer {
            shared,
            sink,
            taken: VecDeque::new(),
            buffer: Vec::with_capacity(CHUNK_BYTES),
            reported: Losses::default(),
            last_error: None,
            backoff: FIRST_BACKOFF,
            retry_at: None,
            // A tenth of the threshold is precise enough; the table is scanned under its lock.
            open_lines_every: open_after / 10,
            open_lines_at: Instant::now(),
            at_stake_count: 0,
            ended_well: false,
        }
    }

    /// Runs until a close is asked for.
    pub(crate) fn run(mut self) {
        loop {
            let now = Instant::now();
            let standing = self.shared.orders.standing();
            let reopened = standing.reopen.then(|| self.reopen());
            self.send_open_lines(now);
            let may_try = standing.urgent || self.retry_at.is_none_or(|at| now >= at);
            let drained = may_try && self.drain();
            if standing.closing {
                self.ended_well = drained;
                return;
            }
            if standing.urgent {
                self.shared.orders.answer(standing.asked, drained, reopened);
            }
            thread::park_timeout(WRITE_EVERY);
        }
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.sink.reopen()?;
        self.retry_at = None;
        self.backoff = FIRST_BACKOFF;
        Ok(())
    }

    fn send_open_lines(&mut self, now: Instant) {
        if now >= self.open_lines_at {
            self.open_lines_at = now + self.open_lines_every;
            for line in self.shared.running.due(now) {
                self.shared.send(Line::Open(Box::new(line)));
            }
        }
    }

    /// Writes all that is queued; `false` if the sink failed on the way. The losses go first and
    /// alone: on a sink that still fails they are all that an attempt puts at stake.
    fn drain(&mut self) -> bool {
        loop {
            if !self.report_losses() {
                return false;
            }
            if self.taken.is_empty() {
                self.shared.queue.swap(&mut self.taken);
                if self.taken.is_empty() {
                    return true;
                }
            }
            if !self.write_chunk() {
                return false;
            }
        }
    }

    fn report_losses(&mut self) -> bool {
        let losses = self.losses();
        if losses == self.reported {
            return true;
        }
        self.buffer.clear();
        format_line(&Line::Dropped(Box::new(self.dropped_line(losses))), &mut self.buffer);
        let written = self.write_buffer().is_ok();
        if written {
            self.reported = losses;
            self.last_error = None;
        }
        written
    }

    fn losses(&self) -> Losses {
        Losses {
            queue_full_count: self.shared.queue.full_count(),
            write_failed_count: self.shared.write_failed_count.load(Ordering::Relaxed),
        }
    }

    fn dropped_line(&self, losses: Losses) -> DroppedLine {
        let queue_full_count = losses.queue_full_count - self.reported.queue_full_count;
        let write_failed_count = losses.write_failed_count - self.reported.write_failed_count;
        DroppedLine {
            ts_unix_ms: Some(unix_ms(std::time::SystemTime::now())),
            seq: Some(self.shared.queue.take_seq()),
            dropped_count: queue_full_count + write_failed_count,
            queue_full_count,
            write_failed_count,
            error: self.last_error.clone(),
        }
    }

    fn write_chunk(&mut self) -> bool {
        self.buffer.clear();
        while self.buffer.len() + LINE_BYTES <= CHUNK_BYTES {
            let Some(line) = self.taken.pop_front() else { break };
            format_line(&line, &mut self.buffer);
            self.at_stake_count += 1;
        }
        let result = self.write_buffer();
        let lines_count = std::mem::take(&mut self.at_stake_count);
        let Err(written_bytes) = result else { return true };
        let whole_count =
            self.buffer[..written_bytes].iter().filter(|byte| **byte == b'\n').count();
        self.count_write_failed(lines_count - whole_count as u64);
        false
    }

    fn count_write_failed(&self, lines_count: u64) {
        self.shared.write_failed_count.fetch_add(lines_count, Ordering::Relaxed);
    }

    /// Writes the buffer; on an error backs off and says how many bytes got out.
    fn write_buffer(&mut self) -> Result<(), usize> {
        let Err(broken) = self.sink.write_lines(&self.buffer) else {
            self.retry_at = None;
            self.backoff = FIRST_BACKOFF;
            return Ok(());
        };
        self.last_error = Some(broken.error.to_string());
        self.retry_at = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(LONGEST_BACKOFF);
        Err(broken.written_bytes)
    }
}

/// Also runs when a sink panics, which ends the thread and nothing else.
impl Drop for Writer {
    fn drop(&mut self) {
        self.count_write_failed(self.at_stake_count + self.taken.len() as u64);
        self.shared.mark_ended(self.ended_well);
    }
}
