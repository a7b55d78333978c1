//! HTTP/1.1 on the wire: heads parsed without losing a byte, bodies unframed piece by piece.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt;

/// Most header fields that a head may have.
const MAX_HEADERS_COUNT: usize = 1024;

/// Header fields in the order in which they came, names as they were spelt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    fn of(parsed: &[httparse::Header<'_>]) -> Headers {
        Headers(parsed.iter().map(|h| (h.name.to_owned(), h.value.to_vec())).collect())
    }

    /// First value of `name` (any case), if it is UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(value).ok()
    }

    /// Whether a comma-separated `name` lists `token`, in any case.
    pub fn lists(&self, name: &str, token: &str) -> bool {
        let listed = |value: &str| value.split(',').any(|t| t.trim().eq_ignore_ascii_case(token));
        self.get(name).is_some_and(listed)
    }

    /// Every field: name as spelt, value as bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// `GET`, `POST`, ...
    pub method: String,
    /// Request target as sent, query included.
    pub target: String,
    /// Header fields.
    pub headers: Headers,
    /// The head as it stood on the wire, blank line included.
    pub bytes: Vec<u8>,
}

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Header fields.
    pub headers: Headers,
    /// The head as it stood on the wire, blank line included.
    pub bytes: Vec<u8>,
}

/// Bytes that are not HTTP/1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not HTTP/1.1: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

fn malformed(why: impl fmt::Display) -> Malformed {
    Malformed(why.to_string())
}

impl RequestHead {
    /// The head at the start of `bytes`; `None` while it is incomplete.
    ///
    /// # Errors
    /// The bytes cannot become a request head.
    pub fn parse(bytes: &[u8]) -> Result<Option<RequestHead>, Malformed> {
        let mut headers = vec![httparse::EMPTY_HEADER; MAX_HEADERS_COUNT];
        let mut parsed = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(malformed)? else {
            return Ok(None);
        };
        Ok(Some(RequestHead {
            method: parsed.method.unwrap_or_default().to_owned(),
            target: parsed.path.unwrap_or_default().to_owned(),
            headers: Headers::of(parsed.headers),
            bytes: bytes[..length].to_vec(),
        }))
    }

    /// How the body of this request is framed.
    pub fn body(&self) -> BodyReader {
        framing(&self.headers).unwrap_or(BodyReader::Length(0))
    }
}

impl ResponseHead {
    /// The head at the start of `bytes`; `None` while it is incomplete.
    ///
    /// # Errors
    /// The bytes cannot become a response head.
    pub fn parse(bytes: &[u8]) -> Result<Option<ResponseHead>, Malformed> {
        let mut headers = vec![httparse::EMPTY_HEADER; MAX_HEADERS_COUNT];
        let mut parsed = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = parsed.parse(bytes).map_err(malformed)? else {
            return Ok(None);
        };
        Ok(Some(ResponseHead {
            status: parsed.code.unwrap_or_default(),
            headers: Headers::of(parsed.headers),
            bytes: bytes[..length].to_vec(),
        }))
    }

    /// How the body that answers `method` is framed.
    pub fn body(&self, method: &str) -> BodyReader {
        let bodiless = method == "HEAD" || matches!(self.status, 100..=199 | 204 | 304);
        if bodiless {
            return BodyReader::Length(0);
        }
        framing(&self.headers).unwrap_or(BodyReader::ToEnd)
    }

    /// Whether another request may follow on the connection, as far as the head says.
    pub fn keeps_alive(&self) -> bool {
        !self.headers.lists("connection", "close") && framing(&self.headers).is_some()
    }
}

fn framing(headers: &Headers) -> Option<BodyReader> {
    if headers.lists("transfer-encoding", "chunked") {
        return Some(BodyReader::Chunked(Dechunker::default()));
    }
    headers.get("content-length")?.trim().parse().ok().map(BodyReader::Length)
}

/// Takes a body out of its framing, piece by piece.
#[derive(Debug)]
pub enum BodyReader {
    /// This many bytes are still to come.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Dechunker),
    /// Whatever comes until the connection ends.
    ToEnd,
}

impl BodyReader {
    /// Takes what belongs to the body from the start of `wire`, appends the payload to `body` and
    /// says how many wire bytes were taken.
    ///
    /// # Errors
    /// The chunked coding is broken.
    pub fn feed(&mut self, wire: &[u8], body: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self {
            BodyReader::Length(left) => {
                let taken = wire.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                body.extend_from_slice(&wire[..taken]);
                *left -= taken as u64;
                Ok(taken)
            }
            BodyReader::Chunked(dechunker) => dechunker.feed(wire, body),
            BodyReader::ToEnd => {
                body.extend_from_slice(wire);
                Ok(wire.len())
            }
        }
    }

    /// Whether the framing says that the body is complete.
    pub fn is_done(&self) -> bool {
        match self {
            BodyReader::Length(left) => *left == 0,
            BodyReader::Chunked(dechunker) => dechunker.is_done(),
            BodyReader::ToEnd => false,
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    AfterData,
    Trailer,
    Done,
}

/// Decoder of the chunked transfer coding that remembers where the chunks ended.
#[derive(Debug, Default)]
pub struct Dechunker {
    state: ChunkState,
    line: Vec<u8>,
    /// Size of each chunk that has begun, in bytes, the last (empty) one excluded.
    pub chunk_bytes: Vec<u64>,
    /// Trailer lines, without their line ends.
    pub trailers: Vec<String>,
}

impl Dechunker {
    /// See [`BodyReader::feed`].
    ///
    /// # Errors
    /// A chunk size is no hexadecimal number, or a chunk does not end in a line end.
    pub fn feed(&mut self, wire: &[u8], body: &mut Vec<u8>) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < wire.len() && self.state != ChunkState::Done {
            match self.state {
                ChunkState::Data(left) => {
                    let take = (wire.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
                    body.extend_from_slice(&wire[at..at + take]);
                    at += take;
                    let left = left - take as u64;
                    self.state =
                        if left == 0 { ChunkState::AfterData } else { ChunkState::Data(left) };
                }
                _ => {
                    self.byte(wire[at])?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    fn byte(&mut self, byte: u8) -> Result<(), Malformed> {
        if byte != b'\n' {
            self.line.push(byte);
            return if self.line.len() > 8192 { Err(malformed("endless line")) } else { Ok(()) };
        }
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
        self.state = match self.state {
            ChunkState::Size => self.size(&line)?,
            ChunkState::AfterData if line.is_empty() => ChunkState::Size,
            ChunkState::AfterData => return Err(malformed("no line end after a chunk")),
            _ if line.is_empty() => ChunkState::Done,
            state => {
                self.trailers.push(line);
                state
            }
        };
        Ok(())
    }

    fn size(&mut self, line: &str) -> Result<ChunkState, Malformed> {
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16)
            .map_err(|_| malformed(format_args!("chunk size {digits:?}")))?;
        if size == 0 {
            return Ok(ChunkState::Trailer);
        }
        self.chunk_bytes.push(size);
        Ok(ChunkState::Data(size))
    }

    /// Whether the last chunk and its trailers have come.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }
}

/// The last chunk, without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// One chunk of the chunked transfer coding; nothing for no data (that would end the body).
pub fn chunk(data: &[u8]) -> Vec<u8> {
    if data.is_empty() {
        return Vec::new();
    }
    let mut framed = format!("{:x}\r\n", data.len()).into_bytes();
    framed.extend_from_slice(data);
    framed.extend_from_slice(b"\r\n");
    framed
}

/// A response head; `headers` in the order given.
pub fn response_head(status: u16, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(status));
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// A request with `Host` and `Content-Length` (the latter only if there is a body).
pub fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: lab\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        413 => "Payload Too Large",
        422 => "Unprocessable Entity",
        424 => "Failed Dependency",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
