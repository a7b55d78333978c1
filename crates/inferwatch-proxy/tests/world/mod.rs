//! The language of these tests: a proxy in this process, a raw client, and the lines afterwards.
#![allow(dead_code, reason = "each test file speaks a part of it")]

use std::io::{self, BufReader, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use inferwatch_lab::raw::RawUpstream;
use inferwatch_proxy::{Config, Limits, OnAbort, Proxy, Served};
use inferwatch_record::{Line, Options, Recorder, RequestLine, read_lines};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Long enough for any wait on a busy machine; a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A running proxy.
pub(crate) struct World {
    pub(crate) addr: SocketAddr,
    pub(crate) recorder: Recorder,
    log: Shared,
    stops: mpsc::Sender<&'static str>,
    serving: JoinHandle<Served>,
}

pub(crate) fn config(upstream: SocketAddr) -> Config {
    Config {
        listen: "127.0.0.1:0".into(),
        upstream: upstream.to_string().parse().unwrap(),
        on_abort: OnAbort::Cancel,
        drain_timeout: PATIENCE,
        limits: None,
        max_tokens: None,
        count_tokens: None,
    }
}

pub(crate) fn limits(
    max_inflight: usize,
    max_queue: usize,
    queue_timeout: Duration,
) -> Option<Limits> {
    Some(Limits { max_inflight, max_queue, queue_timeout })
}

impl World {
    /// A proxy with nothing special, in front of `upstream`.
    pub(crate) async fn before(upstream: &RawUpstream) -> World {
        World::with(config(upstream.addr())).await
    }

    pub(crate) async fn with(config: Config) -> World {
        World::with_options(config, Options::default()).await
    }

    pub(crate) async fn with_options(config: Config, options: Options) -> World {
        let log = Shared::default();
        let recorder = options.to_writer(log.clone()).unwrap();
        let proxy = Proxy::bind(config, recorder.clone()).await.unwrap();
        let addr = proxy.local_addr().unwrap();
        let (stops, told) = mpsc::channel(2);
        let serving = tokio::spawn(proxy.run(told));
        World { addr, recorder, log, stops, serving }
    }

    /// Asks the proxy to stop (twice: to stop now).
    pub(crate) async fn tell_to_stop(&self) {
        self.stops.send("test").await.unwrap();
    }

    /// Stops the proxy and reads its lines.
    pub(crate) async fn lines(self) -> Vec<Line> {
        self.end().await.1
    }

    pub(crate) async fn end(self) -> (Served, Vec<Line>) {
        let _ = self.stops.send("test").await;
        let served =
            tokio::time::timeout(PATIENCE, self.serving).await.expect("it drains").unwrap();
        assert_eq!(self.recorder.inflight(), 0);
        assert!(self.recorder.close(PATIENCE), "lines were not written");
        let bytes = self.log.0.lock().unwrap().clone();
        let lines = read_lines(BufReader::new(&bytes[..])).collect::<Result<_, _>>().unwrap();
        (served, lines)
    }

    /// Stops the proxy and reads its `request` lines.
    pub(crate) async fn requests(self) -> Vec<RequestLine> {
        let lines = self.lines().await;
        let request = |line| match line {
            Line::Request(request) => Some(*request),
            _ => None,
        };
        lines.into_iter().filter_map(request).collect()
    }

    /// The only `request` line.
    pub(crate) async fn request(self) -> RequestLine {
        let mut lines = self.requests().await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    /// Waits until no request is in flight.
    pub(crate) async fn settled(&self) {
        eventually("no request in flight", || self.recorder.inflight() == 0).await;
    }

    /// A client that has sent `bytes`.
    pub(crate) async fn client(&self, bytes: impl AsRef<[u8]>) -> Client {
        Client::connect(self.addr, bytes).await
    }

    /// Sends one request, reads all until the proxy closes.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.client(bytes).await.rest().await
    }
}

/// Polls a condition that another task makes true.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A client on a bare socket.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn connect(addr: SocketAddr, bytes: impl AsRef<[u8]>) -> Client {
        let mut client = Client(TcpStream::connect(addr).await.unwrap());
        client.send(bytes).await;
        client
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads up to and including `mark`.
    pub(crate) async fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        let mut seen = Vec::new();
        let read = async {
            while !seen.ends_with(mark) {
                seen.push(self.0.read_u8().await.expect("the mark comes before the end"));
            }
        };
        let done = tokio::time::timeout(PATIENCE, read).await;
        assert!(done.is_ok(), "{:?} never came", mark.escape_ascii().to_string());
        seen
    }

    /// Reads to the end; a reset counts as the end.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        let mut seen = Vec::new();
        let read = self.0.read_to_end(&mut seen);
        let _ = tokio::time::timeout(PATIENCE, read).await.expect("the connection ends");
        seen
    }
}

/// A GET that asks to close afterwards.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
}

/// A POST of JSON that asks to close afterwards.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: box\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Splits a raw answer into its head (lower-cased status line and headers as sent) and its body.
pub(crate) fn split(answer: &[u8]) -> (String, &[u8]) {
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    (String::from_utf8(answer[..at].to_vec()).unwrap(), &answer[at..])
}
