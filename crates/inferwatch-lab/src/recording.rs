//! A recorded exchange with a real server: the bytes on the wire and when each read came.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::wire::{BodyReader, Malformed, ResponseHead};

/// How a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server closed.
    Eof,
    /// The recorder's client closed.
    ClientAborted,
}

/// One read of the recorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Since the request was sent.
    pub at: Duration,
    /// How much it gave.
    pub bytes: usize,
}

/// A recorded exchange.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Its file name without the extensions.
    pub name: String,
    /// The request as it was sent.
    pub request: Vec<u8>,
    /// The whole response as it came.
    pub response: Vec<u8>,
    /// The boundaries of the reads; together they are as long as `response`.
    pub reads: Vec<Read>,
    /// How it ended, and when.
    pub end: (Duration, End),
}

#[derive(Deserialize)]
struct TimesLine {
    t_ms: f64,
    bytes: Option<usize>,
    #[serde(default)]
    client_aborted: bool,
}

fn bad(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Recording {
    /// Reads `NAME.request.http`, `NAME.response.http` and `NAME.times.jsonl` in `dir`.
    ///
    /// # Errors
    /// A file is missing or does not fit the others; the message names it.
    pub fn load(dir: &Path, name: &str) -> io::Result<Recording> {
        let file = |extension: &str| {
            let path = dir.join(format!("{name}.{extension}"));
            fs::read(&path)
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
        };
        let (request, response) = (file("request.http")?, file("response.http")?);
        let (reads, end) =
            times(&file("times.jsonl")?).map_err(|e| bad(format_args!("{name}: {e}")))?;
        let bytes: usize = reads.iter().map(|read| read.bytes).sum();
        if bytes != response.len() {
            let length = response.len();
            return Err(bad(format_args!(
                "{name}: reads of {bytes} bytes, a response of {length}"
            )));
        }
        Ok(Recording { name: name.to_owned(), request, response, reads, end })
    }

    /// Names of all recordings in `dir`, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".response.http").map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// The response's head.
    ///
    /// # Errors
    /// The response has no complete head (its client left before).
    pub fn head(&self) -> Result<ResponseHead, Malformed> {
        let head = ResponseHead::parse(&self.response)?;
        head.ok_or_else(|| Malformed(format!("{}: no complete head", self.name)))
    }

    /// The response's body out of its framing, as far as it came.
    ///
    /// # Errors
    /// See [`Recording::head`]; or the chunked coding is broken.
    pub fn body(&self) -> Result<Vec<u8>, Malformed> {
        Ok(self.unframed()?.0)
    }

    pub(crate) fn unframed(&self) -> Result<(Vec<u8>, BodyReader), Malformed> {
        let head = self.head()?;
        let method = self.request.split(|byte| *byte == b' ').next().unwrap_or_default();
        let mut reader = head.body(&String::from_utf8_lossy(method));
        let mut body = Vec::new();
        reader.feed(&self.response[head.bytes.len()..], &mut body)?;
        Ok((body, reader))
    }

    /// The bytes of each read with the gap before it (the first since the request).
    pub fn reads(&self) -> Vec<(Duration, &[u8])> {
        let (mut at, mut offset) = (Duration::ZERO, 0);
        let piece = |read: &Read| {
            let gap = read.at.saturating_sub(at);
            let bytes = &self.response[offset..offset + read.bytes];
            (at, offset) = (read.at, offset + read.bytes);
            (gap, bytes)
        };
        self.reads.iter().map(piece).collect()
    }
}

type Times = (Vec<Read>, (Duration, End));

fn times(text: &[u8]) -> Result<Times, String> {
    let (mut reads, mut end) = (Vec::new(), None);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let line: TimesLine = serde_json::from_slice(line).map_err(|e| e.to_string())?;
        let at = Duration::try_from_secs_f64(line.t_ms / 1000.0).map_err(|e| e.to_string())?;
        match line.bytes {
            Some(bytes) => reads.push(Read { at, bytes }),
            None if line.client_aborted => end = Some((at, End::ClientAborted)),
            None => end = Some((at, End::Eof)),
        }
    }
    Ok((reads, end.ok_or("no end in the times")?))
}
