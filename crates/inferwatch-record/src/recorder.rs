//! The handle that callers hold: sending a line costs them a short lock, and never a wait for the
//! sink. The thread behind it is in `writer.rs`.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::orders::Order;
use crate::shared::Shared;
use crate::sink::Sink;
use crate::span::Span;
use crate::writer::Writer;

/// How long dropping the last handle may wait for the sink.
const LAST_HANDLE_WAIT: Duration = Duration::from_millis(500);

/// Settings of a [`Recorder`].
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use std::time::Duration;
/// let recorder = inferwatch_record::Options::default()
///     .queue_lines(1024)
///     .open_after(Duration::from_secs(30))
///     .to_writer(std::io::sink())?;
/// # recorder.close(Duration::from_secs(1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    queue_lines: usize,
    open_after: Duration,
}

impl Default for Options {
    /// 8,192 lines; `open` lines after 10 s.
    fn default() -> Options {
        Options { queue_lines: 8192, open_after: Duration::from_secs(10) }
    }
}

impl Options {
    /// How many lines may wait for the writer; a line beyond that is dropped and counted. While
    /// the sink stands still, the writer holds up to as many again.
    pub fn queue_lines(mut self, lines: usize) -> Options {
        self.queue_lines = lines.max(1);
        self
    }

    /// The age at which a running request gets its first `open` line; the next come at twice the
    /// age, and so on.
    pub fn open_after(mut self, age: Duration) -> Options {
        self.open_after = age;
        self
    }

    /// See [`Recorder::to_stdout`].
    ///
    /// # Errors
    ///
    /// No descriptor or no thread to be had.
    pub fn to_stdout(self) -> io::Result<Recorder> {
        Recorder::start(Sink::stdout()?, self)
    }

    /// See [`Recorder::to_file`].
    ///
    /// # Errors
    ///
    /// The file cannot be opened for appending, or no thread can be had.
    pub fn to_file(self, path: impl AsRef<Path>) -> io::Result<Recorder> {
        Recorder::start(Sink::file(path.as_ref())?, self)
    }

    /// See [`Recorder::to_writer`].
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn to_writer(self, out: impl Write + Send + 'static) -> io::Result<Recorder> {
        Recorder::start(Sink::writer(Box::new(out)), self)
    }
}

/// Takes lines and has them written by a thread of its own. Clones are cheap and share everything.
///
/// Whatever the sink does (blocks, fills up, goes away), sending a line neither waits nor fails: a
/// line that cannot be kept is counted, and a `dropped` line says so as soon as the sink takes
/// lines again. Lines are on their way within 25 ms. Dropping the last handle, those inside spans
/// included, waits up to 500 ms for what is queued; [`Recorder::close`] says whether all got out.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// use inferwatch_record::{Outcome, Recorder};
/// use std::time::Duration;
///
/// let recorder = Recorder::to_stdout()?;
/// let mut span = recorder.span("/generate");
/// span.tokens(21, 96);
/// span.end(Outcome::Ok, 200);
/// assert!(recorder.close(Duration::from_secs(1)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder {
    handle: Arc<Handle>,
}

/// Ends the writer when the last clone goes.
struct Handle {
    shared: Arc<Shared>,
}

impl Recorder {
    /// Writes to stdout, which journald or a container runtime reads. The descriptor's flags are
    /// left alone: it is shared with others.
    ///
    /// # Errors
    ///
    /// No descriptor or no thread to be had.
    pub fn to_stdout() -> io::Result<Recorder> {
        Options::default().to_stdout()
    }

    /// Appends to the file at `path`, which is made if it is not there.
    ///
    /// # Errors
    ///
    /// The file cannot be opened for appending, or no thread can be had.
    pub fn to_file(path: impl AsRef<Path>) -> io::Result<Recorder> {
        Options::default().to_file(path)
    }

    /// Writes to anything; each call of `write` gets whole lines, at most 64 KiB of them.
    ///
    /// # Errors
    ///
    /// No thread can be had.
    pub fn to_writer(out: impl Write + Send + 'static) -> io::Result<Recorder> {
        Options::default().to_writer(out)
    }

    fn start(sink: Sink, options: Options) -> io::Result<Recorder> {
        let shared = Arc::new(Shared::new(options.queue_lines, options.open_after));
        let writer = Writer::new(shared.clone(), sink, options.open_after);
        let thread =
            thread::Builder::new().name("line-writer".into()).spawn(move || writer.run())?;
        shared.set_writer(thread.thread().clone());
        Ok(Recorder { handle: Arc::new(Handle { shared }) })
    }

    /// Sends a line. Its `seq` is set here, and its `ts_unix_ms` if it is `None`.
    pub fn send(&self, line: Line) {
        self.shared().send(line);
    }

    /// Begins a request that started now.
    pub fn span(&self, route: impl Into<String>) -> Span {
        self.span_at(route, Instant::now())
    }

    /// Begins a request that started at `started`, such as when its first byte came.
    pub fn span_at(&self, route: impl Into<String>, started: Instant) -> Span {
        Span::begin(self.clone(), route.into(), started)
    }

    /// Spans that have begun and not ended.
    pub fn inflight(&self) -> u64 {
        self.shared().running.count()
    }

    /// Lines lost so far: the queue was full, or a write failed.
    pub fn dropped_count(&self) -> u64 {
        self.shared().dropped_count()
    }

    /// Waits until every line sent before is written. `false` if that did not happen within
    /// `timeout`, or the sink fails.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.order(Order::Flush, timeout)
    }

    /// Writes what can be written within `timeout` and ends the writer; lines sent later are
    /// dropped and counted. `false` if something was left behind: a sink that stands still does
    /// not hold up the end of the process.
    pub fn close(&self, timeout: Duration) -> bool {
        self.order(Order::Close, timeout)
    }

    fn order(&self, order: Order, timeout: Duration) -> bool {
        let number = self.shared().ask(order);
        self.shared().orders.wait(number, timeout, |answer| answer.drained).unwrap_or(false)
    }

    /// Opens the file of [`Recorder::to_file`] anew, after a log rotation. Other sinks stay as
    /// they are.
    ///
    /// # Errors
    ///
    /// What opening failed with: the old file stays in use. `TimedOut` if the writer, held up by
    /// the old file, did not come to it within `timeout`; it will as soon as it can.
    pub fn reopen(&self, timeout: Duration) -> io::Result<()> {
        let number = self.shared().ask(Order::Reopen);
        match self.shared().orders.wait(number, timeout, |answer| answer.reopen_error.clone()) {
            Some(Some((kind, reason))) => Err(io::Error::new(kind, reason)),
            Some(None) => Ok(()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("inflight", &self.inflight())
            .field("dropped_count", &self.dropped_count())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let number = self.shared.ask(Order::Close);
        self.shared.orders.wait(number, LAST_HANDLE_WAIT, |_| ());
    }
}
