//! The real binary under pressure: memory that stays flat, too many clients, too few descriptors,
//! a log that blocks or fails, strangers' bytes in every field.

mod process;
#[path = "../../inferwatch-record/tests/strict/mod.rs"]
mod strict;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use inferwatch_lab::script::Script;
use process::{Client, Process, Proxy, eventually, get, post, rss_kib, upstream};
use serde_json::{Value, json};

/// What a body may cost in memory, as the budget says.
const FLAT_KIB: u64 = 2 * 1024;

fn ok() -> String {
    upstream(|_| Script::answer(200, "text/plain", b"hi"))
}

/// Reads an answer to its end and keeps none of it; gives its size on the wire.
fn drink(client: Client) -> u64 {
    let mut tcp = client.0;
    let mut buffer = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        match tcp.read(&mut buffer).expect("it reads") {
            0 => return total,
            n => total += n as u64,
        }
    }
}

/// The growth of the proxy's memory while `work` is done.
fn growth_kib(proxy: &Proxy, work: impl FnOnce()) -> u64 {
    let (before, _) = rss_kib(proxy.process.pid());
    work();
    let (_, highest) = rss_kib(proxy.process.pid());
    highest.saturating_sub(before)
}

#[test]
fn a_huge_embedding_answer_leaves_memory_flat() {
    const VECTOR: &str =
        "{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.0192084,-0.1200505]},";
    let head = "{\"model\":\"big\",\"object\":\"list\",\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7},\"data\":[";
    let tail = "null]}";
    let block: String = VECTOR.repeat((1 << 20) / VECTOR.len());
    let length = head.len() + 200 * block.len() + tail.len();
    let upstream = upstream(move |request| {
        if request.path() == "/small" {
            return Script::answer(200, "application/json", b"{}");
        }
        let http = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        let script = Script::new().send(http).send(head);
        let block = bytes::Bytes::from(block.clone());
        (0..200).fold(script, |script, _| script.send(block.clone())).send(tail)
    });
    let proxy = Proxy::start(&upstream, &[]);
    proxy.post("/small", "{}");
    let ask = post("/v1/embeddings", "{\"input\":[\"a\"]}");
    let grown = growth_kib(&proxy, || assert!(drink(proxy.client(ask)) > length as u64));
    assert!(grown <= FLAT_KIB, "{grown} KiB over 200 MB");
    let line = proxy.request(1);
    assert_eq!((&line["prompt_tokens"], &line["bytes_out"]), (&json!(7), &json!(length)));
    assert_eq!((&line["outcome"], &line["model"]), (&json!("ok"), &json!("big")));
}

#[test]
fn one_event_of_a_megabyte_leaves_memory_flat() {
    let upstream = upstream(|request| {
        let text =
            if request.path() == "/v1/chat/completions" { "x".repeat(1 << 20) } else { "x".into() };
        let data = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":3,\"completion_tokens\":2}}}}\n\ndata: [DONE]\n\n"
        );
        Script::answer(200, "text/event-stream", data.as_bytes())
    });
    let proxy = Proxy::start(&upstream, &[]);
    proxy.post("/v1/completions", "{}");
    let grown = growth_kib(&proxy, || {
        assert!(drink(proxy.client(post("/v1/chat/completions", "{}"))) > 1 << 20);
    });
    assert!(grown <= FLAT_KIB, "{grown} KiB over an event of 1 MB");
    let line = proxy.request(1);
    assert_eq!((&line["completion_tokens"], &line["outcome"]), (&json!(2), &json!("ok")), "{line}");
}

#[test]
fn a_huge_upload_passes_and_leaves_memory_flat() {
    const MIB: usize = 300;
    let proxy = Proxy::start(&ok(), &[]);
    proxy.post("/small", "{}");
    let grown = growth_kib(&proxy, || {
        let head = format!(
            "PUT /blob HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            MIB << 20
        );
        let mut client = proxy.client(head);
        let block = vec![b'x'; 1 << 20];
        for _ in 0..MIB {
            client.0.write_all(&block).expect("it takes the upload");
        }
        assert_eq!(client.answer().status, 200);
    });
    assert!(grown <= FLAT_KIB, "{grown} KiB over {MIB} MiB");
    assert_eq!(proxy.request(1)["bytes_in"], MIB << 20);
}

/// This process holds the clients.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).expect("up to the hard limit");
}

#[test]
fn idle_and_slow_clients_hold_nobody_up() {
    raise_open_files();
    let proxy = Proxy::start(&ok(), &[]);
    let idle: Vec<Client> = (0..2000)
        .map(|_| {
            let mut client = proxy.client("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
            client.until(b"\r\n\r\nhi");
            client
        })
        .collect();
    let slow: Vec<Client> = (0..200).map(|_| proxy.client("GET /slow HTTP/1.1\r\nHo")).collect();
    for _ in 0..20 {
        assert_eq!(proxy.get("/now").status, 200);
    }
    // The idle ones are still welcome.
    let mut last = idle.into_iter().next_back().expect("one");
    last.0.write_all(get("/again").as_bytes()).expect("it is open");
    assert_eq!(last.answer().status, 200);
    drop(slow);
    let lines = proxy.stop();
    let count = |route: &str| lines.iter().filter(|line| line["route"] == route).count();
    assert_eq!((count("/idle"), count("/now"), count("/again"), count("/slow")), (2000, 20, 1, 0));
}

#[test]
fn a_proxy_short_of_descriptors_recovers() {
    let proxy = Proxy::start_after("ulimit -n 40", &ok(), &[]);
    let crowd: Vec<TcpStream> =
        (0..100).filter_map(|_| TcpStream::connect(proxy.addr).ok()).collect();
    for mut client in &crowd {
        let _ = client.write_all(b"GET /crowd HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    // Some are answered, some are told that there is no way up, some wait in the backlog.
    eventually("the crowd is served or refused", || (!proxy.requests().is_empty()).then_some(()));
    drop(crowd);
    eventually("it serves again", || (proxy.get("/after").status == 200).then_some(()));
    let lines = proxy.stop();
    let fair = ["ok", "connect_failed", "client_closed", "client_closed_waiting"];
    let requests = lines.iter().filter(|line| line["kind"] == "request");
    for line in requests {
        assert!(fair.iter().any(|outcome| line["outcome"] == *outcome), "{line}");
    }
}

/// A proxy whose lines go to its stdout.
fn to_stdout(upstream: &str, stdout: Stdio) -> (Process, std::net::SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_inferwatch"));
    command
        .args(["proxy", upstream, "--listen", "127.0.0.1:0"])
        .stdout(stdout)
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut said = String::new();
    let stderr = child.stderr.take().expect("it is piped");
    BufReader::new(stderr).read_line(&mut said).expect("it says where it listens");
    let addr = said.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
    (Process(child), addr.and_then(|addr| addr.parse().ok()).expect("an address"))
}

/// Sends `batches` of fifty requests down one connection and reads all the answers.
fn pipeline(addr: std::net::SocketAddr, batches: usize) {
    let mut client = Client::connect(addr, "");
    let fifty = "GET /p HTTP/1.1\r\nHost: h\r\n\r\n".repeat(50);
    for _ in 0..batches {
        client.0.write_all(fifty.as_bytes()).expect("it takes them");
        for _ in 0..50 {
            client.until(b"\r\n\r\nhi");
        }
    }
}

#[test]
fn a_log_that_blocks_costs_lines_and_nothing_else() {
    let (mut process, addr) = to_stdout(&ok(), Stdio::piped());
    // More than the pipe, the queue and the writer's hands hold together.
    let requests = 500 * 50;
    pipeline(addr, 500);
    let mut stdout = process.0.stdout.take().expect("it is piped");
    process.signal("-TERM");
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("UTF-8");
    assert_eq!(process.ended(), Some(0));
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let written = lines.iter().filter(|line| line["kind"] == "request").count() as u64;
    let dropped: u64 = lines.iter().filter_map(|line| line["dropped_count"].as_u64()).sum();
    assert!(dropped > 0, "nothing was dropped: the test is too small");
    let other = lines.iter().filter(|line| line["kind"] == "stop").count() as u64;
    // A stop line may be among the dropped.
    assert!(
        written + dropped == requests || written + dropped + other == requests + 1,
        "{written} + {dropped}"
    );
}

#[test]
fn a_log_that_fails_costs_nothing() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let (mut process, addr) = to_stdout(&ok(), Stdio::from(full));
    pipeline(addr, 4);
    process.signal("-TERM");
    assert_eq!(process.ended(), Some(0));

    let (mut process, addr) = to_stdout(&ok(), Stdio::piped());
    drop(process.0.stdout.take());
    pipeline(addr, 4);
    process.signal("-TERM");
    assert_eq!(process.ended(), Some(0));
}

#[test]
fn hangup_reopens_the_log() {
    let proxy = Proxy::start(&ok(), &[]);
    let (log, rotated) = (proxy.log.clone(), proxy.log.with_extension("1"));
    let has = |path: &Path, route: &str| {
        std::fs::read_to_string(path).is_ok_and(|text| text.contains(route))
    };
    proxy.get("/before");
    eventually("the first line", || has(&log, "/before").then_some(()));
    std::fs::rename(&log, &rotated).expect("it is renamed");
    proxy.process.signal("-HUP");
    eventually("a new file", || log.exists().then_some(()));
    proxy.get("/after");
    eventually("the second line", || has(&log, "/after").then_some(()));
    assert!(!has(&rotated, "/after"));
    std::fs::remove_file(rotated).expect("it is there");
}

#[test]
fn a_second_signal_cuts() {
    let upstream = upstream(|_| Script::new().hang());
    let mut proxy = Proxy::start(&upstream, &[]);
    let client = proxy.client(get("/hang"));
    eventually("it is sent", || (proxy.lines().len() == 1).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(100));
    proxy.process.signal("-TERM");
    eventually("no new clients", || TcpStream::connect(proxy.addr).is_err().then_some(()));
    proxy.process.signal("-INT");
    assert_eq!(proxy.process.ended(), Some(0));
    drop(client);
    let lines = proxy.lines();
    let line = |kind: &str| lines.iter().find(|line| line["kind"] == kind).expect("a line");
    assert_eq!(line("request")["outcome"], "timeout");
    assert_eq!(
        (&line("stop")["unfinished_count"], &line("stop")["reason"]),
        (&json!(1), &json!("SIGTERM"))
    );
}

#[test]
fn strangers_bytes_break_no_line() {
    let model = "m\\\"\\n{\\u0000}\u{2028}\u{feff}".to_owned() + &"M".repeat(1 << 20);
    let answer = format!(
        "{{\"model\":\"{model}\",\"error\":{{\"message\":\"a\\r\\n{{\\\"kind\\\":\\\"request\\\"}}\\u0007\",\"type\":\"\\ud800\"}}}}"
    );
    let upstream = upstream(move |_| Script::answer(400, "application/json", answer.as_bytes()));
    let proxy = Proxy::start(&upstream, &[]);
    let body = format!("{{\"model\":\"\\u0000\\\"\\n{}\"}}", "é".repeat(500_000));
    let asked: [Vec<u8>; 4] = [
        post("/v1/chat/completions", &body).into(),
        get("/%22%0a%7b%7d?secret=%22x%22").into(),
        format!("GET /{} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Request-Id: a\"b\\\t{}\r\n\r\n", "p".repeat(5000), "i".repeat(9000)).into(),
        b"GET /bytes HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Request-Id: \xff\xfe\xc3\r\ntraceparent: 00-\"-\xff\r\n\r\n".to_vec(),
    ];
    for request in &asked {
        assert_eq!(proxy.client(request).answer().status, 400);
    }
    eventually("their lines", || (proxy.requests().len() == asked.len()).then_some(()));
    let text = std::fs::read(&proxy.log).expect("the log");
    strict::decode_all(&text).expect("lines as SCHEMA.md has them");
    assert!(!String::from_utf8_lossy(&text).contains("secret"), "a query got into the log");
    assert_eq!(proxy.request(1)["route"], "/%22%0a%7b%7d");
}
