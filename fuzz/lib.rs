//! What the fuzz targets share: where the input is cut, and which answer it is.
//!
//! An input is a line of text (two hexadecimal digits for the length of every piece but the last)
//! and after the newline the body. An empty first line, as seeds have it, cuts at every byte.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use inferwatch_proxy::observe::{BodyEnd, Observer, RequestHead};
use inferwatch_record::RequestLine;

/// The body of an input, and the pieces that its first line cuts it into.
pub fn cut(input: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let newline = input.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    let (lengths, body) = input.split_at(newline);
    let body = body.get(1..).unwrap_or_default();
    if lengths.is_empty() {
        return (body, body.chunks(1).collect());
    }
    let mut pieces = Vec::new();
    let mut rest = body;
    for length in lengths.chunks(2) {
        let digits = std::str::from_utf8(length).unwrap_or_default();
        let length = usize::from_str_radix(digits, 16).unwrap_or(1).min(rest.len());
        let (piece, after) = rest.split_at(length);
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    (body, pieces)
}

/// What a line says of an exchange whose answer came in these pieces, all at once.
pub fn observe(path: &str, content_type: &str, coding: &str, pieces: &[&[u8]]) -> String {
    let none = HeaderMap::new();
    let head = RequestHead { method: &Method::POST, path, headers: &none };
    let mut headers = HeaderMap::new();
    let value = |text: &str| HeaderValue::from_str(text).expect("a header value");
    headers.insert("content-type", value(content_type));
    headers.insert("content-encoding", value(coding));
    let mut observer = Observer::new(&head, true);
    observer.request_chunk(br#"{"model":"m","prompt":"hello"}"#);
    let at = Duration::from_millis(5);
    observer.response_head(StatusCode::OK, &headers, at);
    for piece in pieces {
        observer.response_chunk(piece, at);
    }
    let mut line = RequestLine::default();
    let outcome = observer.conclude(BodyEnd::Complete, at, &mut line);
    // Tokens share a read or not as the pieces have it.
    line.coalesced = None;
    line.decode_tokens_per_s = None;
    line.queue_ms = None;
    format!("{outcome:?} {line:?} {:?}", observer.take_text())
}
