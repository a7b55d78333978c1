//! Reads lines back, tolerantly: good lines and bad ones with their number and reason, bounded
//! memory, and nothing good lost because of something bad beside it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod fields;
mod line_of;

use std::fmt;
use std::io::{BufRead, ErrorKind};

use crate::line::Line;

/// A longer line is reported as bad and skipped without being held in memory.
const LONGEST_BYTES: usize = 64 * 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// A line that could not be read. The lines around it are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadLine {
    /// Which line of the input, counted from 1.
    pub number: u64,
    /// What is wrong with it, in a few words.
    pub reason: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.number, self.reason)
    }
}

impl std::error::Error for BadLine {}

/// Reads every line of `input`, in order. Empty lines are skipped. A read error comes as the last
/// item, a [`BadLine`] too: what was read before it stands.
///
/// ```
/// let text = "{\"route\":\"/generate\",\"total_ms\":81.5}\n{\"torn\n";
/// let items: Vec<_> = inferwatch_record::read_lines(text.as_bytes()).collect();
/// assert!(matches!(&items[0], Ok(inferwatch_record::Line::Request(line)) if line.total_ms == 81.5));
/// assert_eq!(items[1].as_ref().unwrap_err().number, 2);
/// ```
pub fn read_lines(input: impl BufRead) -> impl Iterator<Item = Result<Line, BadLine>> {
    Lines { input, number: 0, line: Vec::new(), failed: false }
}

/// Reads one line, with or without its line end.
///
/// # Errors
///
/// A few words on what is wrong, with the field named where one is at fault.
pub fn parse_line(bytes: &[u8]) -> Result<Line, String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("not UTF-8 at byte {}", error.valid_up_to()))?;
    line_of::line_of(fields::fields(text)?)
}

struct Lines<R> {
    input: R,
    number: u64,
    line: Vec<u8>,
    failed: bool,
}

/// What one look for a line brought.
enum Found {
    Whole,
    TooLong,
    End,
}

impl<R: BufRead> Lines<R> {
    /// Reads up to the next newline into `self.line`, holding at most `LONGEST_BYTES` of it.
    fn next_line(&mut self) -> std::io::Result<Found> {
        self.line.clear();
        let mut length_bytes = 0;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..newline.unwrap_or(chunk.len())];
            let room = LONGEST_BYTES - self.line.len();
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            length_bytes += part.len();
            let at_end = chunk.is_empty();
            let used = part.len() + usize::from(newline.is_some());
            self.input.consume(used);
            if newline.is_some() || at_end {
                return Ok(match length_bytes {
                    0 if at_end => Found::End,
                    length if length > LONGEST_BYTES => Found::TooLong,
                    _ => Found::Whole,
                });
            }
        }
    }

    fn bad(&self, reason: String) -> Option<Result<Line, BadLine>> {
        Some(Err(BadLine { number: self.number, reason }))
    }

    fn content(&self) -> &[u8] {
        let line = match self.number {
            1 => self.line.strip_prefix(BOM).unwrap_or(&self.line),
            _ => &self.line,
        };
        line.trim_ascii()
    }
}

impl<R: BufRead> Iterator for Lines<R> {
    type Item = Result<Line, BadLine>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            self.number += 1;
            match self.next_line() {
                Ok(Found::End) => return None,
                Ok(Found::TooLong) => {
                    return self.bad(format!("longer than {LONGEST_BYTES} bytes"));
                }
                Ok(Found::Whole) if self.content().is_empty() => {}
                Ok(Found::Whole) => match parse_line(self.content()) {
                    Ok(line) => return Some(Ok(line)),
                    Err(reason) => return self.bad(reason),
                },
                Err(error) => {
                    self.failed = true;
                    return self.bad(format!("reading failed: {error}"));
                }
            }
        }
        None
    }
}
