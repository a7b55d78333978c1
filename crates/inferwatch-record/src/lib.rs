//! One honest JSON line per inference request: the line types, a writer that never blocks its
//! caller, and a tolerant reader. The wire contract is SCHEMA.md in the project's root.
//!
//! A service holds one [`Recorder`]. Each request gets a [`Span`], which becomes exactly one
//! `request` line however the request ends. A reader of lines uses [`read_lines`].
//!
//! Numbers carry their unit in their name: `_ms` milliseconds, `_mb` MiB, `_tokens`, `_bytes`,
//! `_per_s`, `_count`. What is not known is `None`, never 0.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! use inferwatch_record::{Line, Outcome, Recorder, read_lines};
//! use std::time::Duration;
//!
//! let (reader, writer) = std::io::pipe()?;
//! let recorder = Recorder::to_writer(writer)?;
//! let mut span = recorder.span("/generate");
//! span.tokens(21, 96);
//! span.end(Outcome::Ok, 200);
//! recorder.close(Duration::from_secs(1));
//!
//! let line = read_lines(std::io::BufReader::new(reader)).next();
//! let Some(Ok(Line::Request(line))) = line else { panic!("no request line") };
//! assert_eq!((line.completion_tokens, line.status), (Some(96), Some(200)));
//! assert_eq!(line.encode_ms, None);
//! # Ok(())
//! # }
//! ```
//!
//! # Rejected
//!
//! * `tracing` with a JSON layer: it formats on the caller's thread, its non-blocking writer too, and
//!   costs it ten times as much per line (`benches/overhead.rs`).
//! * serde on the write path: twice the cost, and the wire would follow the struct.
//! * A channel that wakes its reader for each line: the wake costs the caller more than all the
//!   rest. The writer wakes by time; only a queue that is half full wakes it early. A std bounded
//!   channel that is polled costs more than the locked queue, and takes its memory up front.
//! * A ring that overwrites old lines: what was there before the trouble is worth most.

mod escape;
mod line;
mod orders;
mod queue;
mod read;
mod recorder;
mod running;
mod shared;
mod sink;
mod span;
mod timestamp;
mod words;
mod write;
mod writer;

pub use line::{DroppedLine, Line, OpenLine, RequestLine, StartLine, StopLine};
pub use read::{BadLine, parse_line, read_lines};
pub use recorder::{Options, Recorder};
pub use span::{Span, Stage};
pub use words::{Outcome, ParseTrouble, TokensSrc};
pub use write::format_line;
