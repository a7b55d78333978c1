//! The language of the tests with real processes: servers that end with the test, lines in a file,
//! and a client on a bare socket.
#![allow(dead_code, reason = "each test file speaks a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Long enough for any wait on a busy machine; a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A process that does not outlive its test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "kill {name}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end; gives the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Polls a condition that another process makes true.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(found) = holds() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// The resident memory of a process, KiB: now, and at its highest.
pub(crate) fn rss_kib(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect(name);
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// A scripted upstream on a thread of its own; it goes with the test's process.
pub(crate) fn upstream<H>(answer: H) -> String
where
    H: Fn(&inferwatch_lab::observed::Request) -> inferwatch_lab::script::Script
        + Send
        + Sync
        + 'static,
{
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let options = inferwatch_lab::raw::Options {
                keep_requests: false,
                keep_body_bytes: 1 << 20,
                ..Default::default()
            };
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            let upstream = inferwatch_lab::raw::RawUpstream::start_with(any, options, answer);
            let upstream = upstream.expect("a port");
            tell.send(upstream.addr().to_string()).expect("the test waits");
            std::future::pending::<()>().await;
        });
    });
    told.recv().expect("it started")
}

/// The real binary in front of an upstream, with its lines in a file.
pub(crate) struct Proxy {
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
    pub(crate) log: PathBuf,
}

impl Proxy {
    pub(crate) fn start(upstream: &str, flags: &[&str]) -> Proxy {
        Proxy::start_after(":", upstream, flags)
    }

    /// The same, after a line of shell in its process (`ulimit -n 64`).
    pub(crate) fn start_after(shell: &str, upstream: &str, flags: &[&str]) -> Proxy {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("inferwatch-lines-{}-{n}.jsonl", std::process::id());
        let log = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&log);
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_inferwatch"));
        command.args(["proxy", upstream, "--listen", "127.0.0.1:0", "--log"]).arg(&log).args(flags);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("it is piped");
        BufReader::new(stderr).read_line(&mut said).expect("it says where it listens");
        let addr = said.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let addr = addr.and_then(|addr| addr.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        Proxy { process: Process(child), addr, log }
    }

    /// The lines written so far; every one of them must be JSON.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).expect("the log");
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["kind"] == "request").collect()
    }

    /// Waits for the `n`-th request line (from 0).
    pub(crate) fn request(&self, n: usize) -> Value {
        eventually("a line", || self.requests().get(n).cloned())
    }

    /// Sends SIGTERM, checks a clean end, gives all lines.
    pub(crate) fn stop(mut self) -> Vec<Value> {
        self.process.signal("-TERM");
        assert_eq!(self.process.ended(), Some(0));
        self.lines()
    }

    pub(crate) fn client(&self, request: impl AsRef<[u8]>) -> Client {
        Client::connect(self.addr, request)
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.client(post(path, body)).answer()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.client(get(path)).answer()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n")
}

pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: box\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A whole answer, as far as it came.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// The `data:` documents of an event stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = String::from_utf8_lossy(&self.body);
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

/// A client on a bare socket.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(addr: SocketAddr, request: impl AsRef<[u8]>) -> Client {
        let mut tcp = TcpStream::connect(addr).expect("it connects");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        tcp.write_all(request.as_ref()).expect("it takes the request");
        Client(tcp)
    }

    /// Reads up to and including `mark`.
    pub(crate) fn until(&mut self, mark: &[u8]) -> Vec<u8> {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(mark) {
            self.0.read_exact(&mut byte).expect("the mark comes before the end");
            seen.push(byte[0]);
        }
        seen
    }

    /// Reads to the end and takes the framing off; a reset counts as the end.
    pub(crate) fn answer(mut self) -> Answer {
        let mut bytes = Vec::new();
        let _ = self.0.read_to_end(&mut bytes);
        let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Answer { status: 0, body: bytes };
        };
        let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
        let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        let body = bytes[at + 4..].to_vec();
        let chunked = head.contains("transfer-encoding: chunked");
        Answer { status, body: if chunked { dechunk(&body) } else { body } }
    }
}

fn dechunk(mut wire: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(at) = wire.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&wire[..at]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(0);
        let data = &wire[at + 2..];
        body.extend_from_slice(&data[..size.min(data.len())]);
        if size == 0 || data.len() < size + 2 {
            break;
        }
        wire = &data[size + 2..];
    }
    body
}
