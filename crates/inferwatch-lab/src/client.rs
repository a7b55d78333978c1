//! A raw HTTP/1.1 client: sends exact bytes, reads exact bytes, and leaves when it likes.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sse::Framing;
use crate::wire::{BodyReader, Malformed, ResponseHead};

const MAX_HEAD_BYTES: usize = 1 << 20;
/// Room for a read: what has come is not to be cut by it.
const READ_BYTES: usize = 64 << 10;

/// What kept a client from its answer.
#[derive(Debug)]
pub enum Trouble {
    /// No connection.
    Connect(io::Error),
    /// The connection was reset, or failed otherwise.
    Reset(io::Error),
    /// The server closed before a whole head came.
    ClosedBeforeHead,
    /// The server closed inside the body.
    Cut,
    /// What came is not HTTP/1.1.
    Malformed(Malformed),
    /// As much came as this client wanted to live for ([`Client::stop_after`]).
    Stopped,
}

impl Trouble {
    /// One word for a table of errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Trouble::Connect(_) => "connect",
            Trouble::Reset(_) => "reset",
            Trouble::ClosedBeforeHead => "closed_before_head",
            Trouble::Cut => "cut",
            Trouble::Malformed(_) => "malformed",
            Trouble::Stopped => "stopped",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Connect(e) => write!(f, "no connection: {e}"),
            Trouble::Reset(e) => write!(f, "the connection failed: {e}"),
            Trouble::ClosedBeforeHead => f.write_str("the server closed before its head was whole"),
            Trouble::Cut => f.write_str("the server closed inside the body"),
            Trouble::Malformed(e) => e.fmt(f),
            Trouble::Stopped => f.write_str("this client has had its bytes"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<Malformed> for Trouble {
    fn from(malformed: Malformed) -> Trouble {
        Trouble::Malformed(malformed)
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Response {
    /// Its head.
    pub head: ResponseHead,
    /// Its body without the framing.
    pub body: Vec<u8>,
    /// Its body as it stood on the wire.
    pub body_on_wire: Vec<u8>,
    /// Trailer lines.
    pub trailers: Vec<String>,
    /// `None` if it came whole, else what ended it.
    pub trouble: Option<Trouble>,
}

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    received_bytes: u64,
    stop_at_bytes: u64,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`Trouble::Connect`].
    pub async fn connect(addr: SocketAddr) -> Result<Client, Trouble> {
        let stream = TcpStream::connect(addr).await.map_err(Trouble::Connect)?;
        stream.set_nodelay(true).map_err(Trouble::Connect)?;
        Ok(Client { stream, buffer: Vec::new(), received_bytes: 0, stop_at_bytes: u64::MAX })
    }

    /// Sends these bytes as they are.
    ///
    /// # Errors
    /// [`Trouble::Reset`].
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.stream.write_all(bytes).await.map_err(Trouble::Reset)
    }

    /// Says that nothing more will be sent (FIN), and goes on reading.
    ///
    /// # Errors
    /// [`Trouble::Reset`].
    pub async fn half_close(&mut self) -> Result<(), Trouble> {
        self.stream.shutdown().await.map_err(Trouble::Reset)
    }

    /// Closes in good order (unless unread bytes are left: then the kernel resets).
    pub fn close(self) {}

    /// Closes with RST.
    pub fn reset(self) {
        // Failure means that the server has closed already.
        let _ = self.stream.set_zero_linger();
    }

    /// Bytes received over the life of the connection.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Reads this many bytes more and then none: every later read is [`Trouble::Stopped`].
    pub fn stop_after(&mut self, bytes: u64) {
        self.stop_at_bytes = self.received_bytes.saturating_add(bytes);
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The socket has none any more.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    async fn read_more(&mut self) -> Result<usize, Trouble> {
        self.buffer.reserve(READ_BYTES);
        let room = self.stop_at_bytes - self.received_bytes;
        if room == 0 {
            return Err(Trouble::Stopped);
        }
        let mut limited = (&mut self.stream).take(room);
        let read = limited.read_buf(&mut self.buffer).await.map_err(Trouble::Reset)?;
        self.received_bytes += read as u64;
        Ok(read)
    }

    /// Reads one response head, an interim one (`100 Continue`) too.
    ///
    /// # Errors
    /// The server closed, or it is no head.
    pub async fn read_head(&mut self) -> Result<ResponseHead, Trouble> {
        loop {
            if let Some(head) = ResponseHead::parse(&self.buffer)? {
                self.buffer.drain(..head.bytes.len());
                return Ok(head);
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(Malformed("endless head".to_owned()).into());
            }
            if self.read_more().await? == 0 {
                return Err(Trouble::ClosedBeforeHead);
            }
        }
    }

    /// Reads the body of `head`, the answer to a request of this method, piece by piece.
    pub fn body(&mut self, head: &ResponseHead, method: &str) -> Body<'_> {
        let framing = head.headers.get("content-type").and_then(Framing::of);
        let reader = head.body(method);
        Body { client: self, reader, framing, pending: Vec::new(), wire: None }
    }

    /// Reads a whole answer; a body that does not come whole is kept as far as it came.
    ///
    /// # Errors
    /// There is no head.
    pub async fn read_response(&mut self, method: &str) -> Result<Response, Trouble> {
        let head = self.read_head().await?;
        let mut body = self.body(&head, method);
        body.wire = Some(Vec::new());
        let mut payload = Vec::new();
        let trouble = loop {
            match body.next_piece().await {
                Ok(Some(piece)) => payload.extend(piece),
                Ok(None) => break None,
                Err(trouble) => break Some(trouble),
            }
        };
        let trailers = match &mut body.reader {
            BodyReader::Chunked(dechunker) => std::mem::take(&mut dechunker.trailers),
            _ => Vec::new(),
        };
        let body_on_wire = body.wire.unwrap_or_default();
        Ok(Response { head, body: payload, body_on_wire, trailers, trouble })
    }

    /// Everything until the server closes, as it stood on the wire.
    pub async fn read_to_end(&mut self) -> (Vec<u8>, Option<Trouble>) {
        let trouble = loop {
            match self.read_more().await {
                Ok(0) => break None,
                Ok(_) => {}
                Err(trouble) => break Some(trouble),
            }
        };
        (std::mem::take(&mut self.buffer), trouble)
    }

    /// The next bytes that come, in one read; empty if the server closed.
    ///
    /// # Errors
    /// [`Trouble::Reset`].
    pub async fn read_some(&mut self) -> Result<Vec<u8>, Trouble> {
        if self.buffer.is_empty() {
            self.read_more().await?;
        }
        Ok(std::mem::take(&mut self.buffer))
    }
}

/// Sends one request on a new connection and reads the answer.
///
/// # Errors
/// There is no head.
pub async fn exchange(addr: SocketAddr, request: &[u8]) -> Result<Response, Trouble> {
    let mut client = Client::connect(addr).await?;
    client.send(request).await?;
    let method = request.split(|byte| *byte == b' ').next().unwrap_or_default();
    client.read_response(&String::from_utf8_lossy(method)).await
}

/// One event of a stream (or line of NDJSON).
#[derive(Debug, Clone)]
pub struct Event {
    /// Its bytes, its end included if it has one.
    pub bytes: Vec<u8>,
    /// When the read that completed it returned.
    pub at: Instant,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body<'c> {
    client: &'c mut Client,
    reader: BodyReader,
    framing: Option<Framing>,
    pending: Vec<u8>,
    wire: Option<Vec<u8>>,
}

impl Body<'_> {
    /// Whether it is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.framing.is_some()
    }

    /// Bytes received so far over the life of the connection.
    pub fn received_bytes(&self) -> u64 {
        self.client.received_bytes
    }

    /// The next payload; `None` when the body is complete.
    ///
    /// # Errors
    /// The body does not come whole.
    pub async fn next_piece(&mut self) -> Result<Option<Vec<u8>>, Trouble> {
        loop {
            if self.reader.is_done() {
                return Ok(None);
            }
            if self.client.buffer.is_empty() && self.client.read_more().await? == 0 {
                let complete = matches!(self.reader, BodyReader::ToEnd);
                return if complete { Ok(None) } else { Err(Trouble::Cut) };
            }
            let mut payload = Vec::new();
            let taken = self.reader.feed(&self.client.buffer, &mut payload)?;
            if let Some(wire) = &mut self.wire {
                wire.extend_from_slice(&self.client.buffer[..taken]);
            }
            self.client.buffer.drain(..taken);
            if !payload.is_empty() {
                return Ok(Some(payload));
            }
        }
    }

    /// The next event; what is left at the end of the body counts as one.
    ///
    /// # Errors
    /// The body does not come whole.
    pub async fn next_event(&mut self) -> Result<Option<Event>, Trouble> {
        let framing = self.framing.unwrap_or(Framing::Sse);
        let mut at = Instant::now();
        loop {
            if let Some(length) = framing.first_event_bytes(&self.pending) {
                let rest = self.pending.split_off(length);
                return Ok(Some(Event { bytes: std::mem::replace(&mut self.pending, rest), at }));
            }
            match self.next_piece().await? {
                Some(piece) => self.pending.extend(piece),
                None if self.pending.is_empty() => return Ok(None),
                None => {
                    return Ok(Some(Event { bytes: std::mem::take(&mut self.pending), at }));
                }
            }
            at = Instant::now();
        }
    }
}
