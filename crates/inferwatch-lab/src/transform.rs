//! Other forms of a recorded response: the same message, cut, split or framed otherwise.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::recording::Recording;
use crate::wire::{BodyReader, LAST_CHUNK, Malformed, ResponseHead, chunk};

/// `bytes` in two pieces, the first of `at` bytes.
pub fn split_at(bytes: &[u8], at: usize) -> Vec<Bytes> {
    let (first, second) = bytes.split_at(at.min(bytes.len()));
    let pieces = [first, second].into_iter().filter(|piece| !piece.is_empty());
    pieces.map(Bytes::copy_from_slice).collect()
}

/// `bytes` one at a time.
pub fn one_byte_at_a_time(bytes: &[u8]) -> Vec<Bytes> {
    bytes.chunks(1).map(Bytes::copy_from_slice).collect()
}

/// The first `at` bytes.
pub fn cut_at(bytes: &[u8], at: usize) -> Vec<u8> {
    bytes[..at.min(bytes.len())].to_vec()
}

/// The response with CRLF for every LF of its body, in the same chunks.
///
/// # Errors
/// The recording holds no whole response.
pub fn crlf(recording: &Recording) -> Result<Vec<u8>, Malformed> {
    let message = Message::of(recording)?;
    let with_crlf = |part: &[u8]| {
        let lines = part.split(|byte| *byte == b'\n').collect::<Vec<_>>();
        lines.join(&b"\r\n"[..])
    };
    Ok(message.with(message.parts.iter().map(|part| with_crlf(part)).collect(), &[]))
}

/// The response without the blank line (SSE) or the line end (NDJSON) that ends its body.
///
/// # Errors
/// The recording holds no whole response.
pub fn without_final_blank_line(recording: &Recording) -> Result<Vec<u8>, Malformed> {
    let message = Message::of(recording)?;
    let mut parts = message.parts.clone();
    if let Some(last) = parts.last_mut() {
        last.pop_if(|byte| *byte == b'\n');
    }
    Ok(message.with(parts, &[]))
}

/// The response with its body compressed; what came in one chunk is flushed as one.
///
/// # Errors
/// The recording holds no whole response.
pub fn gzip(recording: &Recording) -> Result<Vec<u8>, Malformed> {
    let message = Message::of(recording)?;
    let parts = gzip_parts(&message.parts).map_err(|e| Malformed(e.to_string()))?;
    Ok(message.with(parts, &[("Content-Encoding", "gzip")]))
}

fn gzip_parts(parts: &[Vec<u8>]) -> std::io::Result<Vec<Vec<u8>>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut packed = Vec::new();
    for part in parts {
        encoder.write_all(part)?;
        encoder.flush()?;
        packed.push(std::mem::take(encoder.get_mut()));
    }
    packed.push(encoder.finish()?);
    Ok(packed)
}

/// A response taken apart: its body in the parts that the chunks were.
struct Message {
    head: ResponseHead,
    chunked: bool,
    parts: Vec<Vec<u8>>,
}

impl Message {
    fn of(recording: &Recording) -> Result<Message, Malformed> {
        let head = recording.head()?;
        let (body, reader) = recording.unframed()?;
        let BodyReader::Chunked(dechunker) = reader else {
            return Ok(Message { head, chunked: false, parts: vec![body] });
        };
        let mut rest = body.as_slice();
        let mut parts = Vec::new();
        for size in &dechunker.chunk_bytes {
            let size = usize::try_from(*size).unwrap_or(usize::MAX).min(rest.len());
            let (part, after) = rest.split_at(size);
            parts.push(part.to_vec());
            rest = after;
        }
        Ok(Message { head, chunked: true, parts })
    }

    fn with(&self, parts: Vec<Vec<u8>>, extra: &[(&str, &str)]) -> Vec<u8> {
        let body: Vec<u8> = if self.chunked {
            let framed = parts.iter().map(|part| chunk(part)).collect::<Vec<_>>().concat();
            [framed.as_slice(), LAST_CHUNK].concat()
        } else {
            parts.concat()
        };
        let mut bytes = self.head_with(body.len(), extra);
        bytes.extend_from_slice(&body);
        bytes
    }

    fn head_with(&self, body_bytes: usize, extra: &[(&str, &str)]) -> Vec<u8> {
        let length = body_bytes.to_string();
        let status_end = self.head.bytes.iter().position(|b| *b == b'\n').map_or(0, |at| at + 1);
        let mut out = self.head.bytes[..status_end].to_vec();
        let field = |name: &str, value: &[u8]| {
            let is_length = name.eq_ignore_ascii_case("content-length");
            let value = if is_length { length.as_bytes() } else { value };
            [name.as_bytes(), b": ", value, b"\r\n"].concat()
        };
        for (name, value) in self.head.headers.iter() {
            out.extend(field(name, value));
        }
        for (name, value) in extra {
            out.extend(field(name, value.as_bytes()));
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}
