//! A real llama.cpp server with a real model behind the real binary. Needs INFERWATCH_LLAMA_PYTHON and
//! INFERWATCH_LLAMA_MODEL, which `scripts/llama-venv.sh` prints and `make test` sets; without them the
//! tests are counted as ignored and say so.
#![expect(clippy::print_stderr, reason = "a test that cannot run says why")]

mod process;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;

use libtest_mimic::{Arguments, Trial};
use process::{Answer, Process, Proxy, eventually, post};
use serde_json::{Value, json};

/// Two cores: one model server at a time.
static BOX: Mutex<()> = Mutex::new(());

const TESTS: [(&str, fn()); 12] = [
    ("chat_says_what_the_server_says", chat_says_what_the_server_says),
    ("streams_are_timed", streams_are_timed),
    ("other_dialects_count_alike", other_dialects_count_alike),
    ("embeddings", embeddings),
    ("a_client_that_leaves_in_mid_stream_frees_the_slot", leaves_in_mid_stream),
    ("a_client_that_leaves_during_prefill_is_told_at_once", leaves_during_prefill),
    ("context_overflow_is_rejected", context_overflow_is_rejected),
    ("four_streams_on_two_slots_queue", four_streams_on_two_slots_queue),
    ("a_burst_gives_no_false_rate", a_burst_gives_no_false_rate),
    ("a_killed_server_cuts_and_comes_back", a_killed_server_cuts_and_comes_back),
    ("the_tokenizer_counts_what_nobody_counted", the_tokenizer_counts),
    ("counts_equal_those_of_llama_server", counts_equal_those_of_llama_server),
];

fn main() -> ExitCode {
    let missing = ["INFERWATCH_LLAMA_PYTHON", "INFERWATCH_LLAMA_MODEL"]
        .into_iter()
        .find(|name| std::env::var_os(name).is_none());
    if let Some(name) = missing {
        eprintln!("not run: real llama.cpp tests, {name} is not set (see scripts/llama-venv.sh)");
    }
    let trial = |(name, test): (&str, fn())| {
        let run = move || {
            let _one_at_a_time = BOX.lock();
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(missing.is_some())
    };
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, TESTS.into_iter().map(trial).collect()).exit_code()
}

fn env(name: &str) -> String {
    std::env::var(name).expect("main has looked")
}

struct Llama {
    process: Process,
    port: u16,
}

impl Llama {
    fn start(flags: &[&str]) -> Llama {
        Llama::start_on(0, flags)
    }

    fn start_on(port: u16, flags: &[&str]) -> Llama {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/llama-server.py");
        let mut command = Command::new(env("INFERWATCH_LLAMA_PYTHON"));
        command.arg(script).args(["--model", &env("INFERWATCH_LLAMA_MODEL")]);
        command.args(["--slots", "2", "--ctx", "2048", "--port", &port.to_string()]).args(flags);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("python");
        let stdout = child.stdout.take().expect("it is piped");
        let process = Process(child);
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said).expect("a line");
        let port = said.trim().strip_prefix("ready ").and_then(|port| port.parse().ok());
        Llama { process, port: port.unwrap_or_else(|| panic!("the server said {said:?}")) }
    }

    fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn behind(&self, flags: &[&str]) -> Proxy {
        Proxy::start(&self.addr(), flags)
    }

    /// Asks the server itself, not through the proxy.
    fn ask(&self, request: String) -> Answer {
        let addr = self.addr().parse().expect("an address");
        process::Client::connect(addr, request).answer()
    }

    fn busy_slots(&self) -> usize {
        let slots = self.ask(process::get("/slots")).json();
        let slots = slots.as_array().expect("slots");
        slots.iter().filter(|slot| slot["is_processing"] == true).count()
    }
}

fn chat(fields: Value) -> String {
    let mut body = json!({
        "messages": [{"role": "user", "content": "In one short sentence, what is the capital of France?"}],
        "temperature": 0, "seed": 1,
    });
    let (body_map, more) = (body.as_object_mut().expect("a map"), fields);
    body_map.extend(more.as_object().expect("a map").clone());
    post("/v1/chat/completions", &body.to_string())
}

fn story(tokens: u64) -> String {
    chat(json!({
        "messages": [{"role": "user", "content": "Write a very long story about the sea."}],
        "max_tokens": tokens, "stream": true, "ignore_eos": true, "cache_prompt": false,
    }))
}

fn long_prompt(words: usize) -> String {
    post(
        "/completion",
        &json!({"prompt": "alpha beta ".repeat(words), "n_predict": 4, "stream": true}).to_string(),
    )
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// `a` is `b` within a share of `b`.
#[track_caller]
fn close(a: f64, b: f64, share: f64, what: &str) {
    assert!((a - b).abs() <= share * b.abs(), "{what}: {a} is not {b}");
}

fn chat_says_what_the_server_says() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    for cached in [false, true] {
        let answer = proxy.client(chat(json!({"max_tokens": 24}))).answer().json();
        let line = proxy.request(usize::from(cached));
        let usage = &answer["usage"];
        assert_eq!(line["prompt_tokens"], usage["prompt_tokens"]);
        assert_eq!(line["completion_tokens"], usage["completion_tokens"]);
        assert_eq!(line["cached_tokens"], usage["prompt_tokens_details"]["cached_tokens"]);
        assert_eq!(line["cache_hit"], cached);
        assert_eq!(line["model"], answer["model"]);
        assert_eq!(
            (&line["finish"], &line["outcome"], &line["status"]),
            (&json!("stop"), &json!("ok"), &json!(200))
        );
        let timings = &answer["timings"];
        let work_ms = number(&timings["prompt_ms"]) + number(&timings["predicted_ms"]);
        close(number(&line["generate_ms"]), work_ms, 0.01, "generate_ms");
        assert!(number(&line["total_ms"]) >= work_ms);
    }
}

fn streams_are_timed() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let answer = proxy.client(story(40)).answer();
    let line = proxy.request(0);
    let timings = answer.events().iter().find_map(|event| event.get("timings").cloned());
    let timings = timings.expect("llama.cpp ends a stream with timings");
    assert_eq!(line["completion_tokens"], timings["predicted_n"]);
    let prompt = number(&timings["cache_n"]) + number(&timings["prompt_n"]);
    close(number(&line["prompt_tokens"]), prompt, 0.0, "prompt_tokens");
    assert_eq!(
        (&line["tokens_src"], &line["stream"], &line["finish"]),
        (&json!("timings"), &json!(true), &json!("length"))
    );
    let (ttft, total) = (number(&line["ttft_ms"]), number(&line["total_ms"]));
    assert!(number(&line["headers_ms"]) <= ttft && ttft <= total, "{line}");
    assert!(
        ttft >= number(&timings["prompt_ms"]),
        "the first token comes after the prompt: {line}"
    );
    let rate = 39.0 / number(&timings["predicted_ms"]) * 1e3;
    close(number(&line["decode_tokens_per_s"]), rate, 0.5, "decode_tokens_per_s");
}

fn other_dialects_count_alike() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    // Always the same answer: llama.cpp counts no prompt for Anthropic if it begins with an emoji.
    let text = "In one short sentence, what is the capital of France?";
    let messages = json!([{"role": "user", "content": text}]);
    let openai = json!({"messages": messages, "max_tokens": 6, "temperature": 0});
    let anthropic = json!({"model": "m", "messages": messages, "max_tokens": 6, "temperature": 0});
    let responses = json!({"model": "m", "input": text, "max_output_tokens": 6, "temperature": 0});
    let mut asked = Vec::new();
    for stream in [false, true] {
        let bodies = [
            ("/v1/chat/completions", &openai),
            ("/v1/messages", &anthropic),
            ("/v1/responses", &responses),
        ];
        for (path, body) in bodies {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            assert_eq!(proxy.post(path, &body.to_string()).status, 200);
            asked.push((path, stream));
        }
    }
    for (n, (path, stream)) in asked.into_iter().enumerate() {
        let line = proxy.request(n);
        assert_eq!((&line["route"], &line["stream"]), (&json!(path), &json!(stream)));
        assert_eq!(line["outcome"], "ok", "{line}");
        assert_eq!(line["prompt_tokens"], proxy.request(0)["prompt_tokens"], "{line}");
        assert!(number(&line["completion_tokens"]) <= 6.0, "{line}");
    }
}

fn embeddings() {
    let llama = Llama::start(&["--embeddings"]);
    let proxy = llama.behind(&[]);
    let body = json!({"input": ["one", "two words", "three of them"], "model": "mine"});
    let answer = proxy.post("/v1/embeddings", &body.to_string()).json();
    let line = proxy.request(0);
    assert_eq!(line["prompt_tokens"], answer["usage"]["prompt_tokens"]);
    assert_eq!((&line["batch"], &line["completion_tokens"]), (&json!(3), &Value::Null));
    assert!(number(&line["encode_ms"]) > 0.0 && line["generate_ms"].is_null(), "{line}");
}

fn leaves_in_mid_stream() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let mut client = proxy.client(story(900));
    client.until(b"\"content\":\"");
    assert_eq!(llama.busy_slots(), 1);
    drop(client);
    let line = proxy.request(0);
    assert_eq!((&line["outcome"], &line["status"]), (&json!("client_closed"), &json!(499)));
    eventually("the slot is idle", || (llama.busy_slots() == 0).then_some(()));
}

/// Connections of this machine to `port` that the connecting side holds open.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp");
    let to = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row[2].ends_with(&to) && row[3] == "01").count()
}

fn leaves_during_prefill() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let mut client = proxy.client(long_prompt(450));
    client.until(b"\r\n\r\n");
    eventually("the prompt is being evaluated", || (llama.busy_slots() == 1).then_some(()));
    assert_eq!(connections_to(llama.port), 1);
    drop(client);
    eventually("our connection is closed", || (connections_to(llama.port) == 0).then_some(()));
    let line = proxy.request(0);
    assert_eq!(
        (&line["outcome"], &line["ttft_ms"]),
        (&json!("client_closed"), &Value::Null),
        "{line}"
    );
}

fn context_overflow_is_rejected() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let answer = proxy.client(long_prompt(2000)).answer();
    assert_eq!(answer.status, 400);
    let line = proxy.request(0);
    assert_eq!((&line["outcome"], &line["status"]), (&json!("rejected"), &json!(400)));
    let (error, said) = (line["error"].as_str().expect("an error"), &answer.json()["error"]);
    for key in ["n_prompt_tokens", "n_ctx"] {
        assert!(error.contains(&format!("{key}={}", said[key])), "{key} is not in {error}");
    }
}

fn four_streams_on_two_slots_queue() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..4).map(|_| scope.spawn(|| proxy.client(story(60)).answer())).collect();
        clients.into_iter().map(|client| client.join().expect("an answer")).collect()
    });
    assert!(answers.iter().all(|answer| answer.status == 200));
    let mut lines: Vec<_> = (0..4).map(|n| proxy.request(n)).collect();
    lines.sort_by(|a, b| number(&a["queue_ms"]).total_cmp(&number(&b["queue_ms"])));
    for line in &lines {
        // What is left of the total when the server's own work is taken away is the wait.
        let waited_ms = number(&line["total_ms"]) - number(&line["generate_ms"]);
        let apart = (number(&line["queue_ms"]) - waited_ms).abs();
        assert!(apart <= 0.1 * number(&line["total_ms"]), "{line}");
    }
    let (first, third) = (&lines[0], &lines[2]);
    assert!(number(&third["queue_ms"]) > 0.5 * number(&first["generate_ms"]), "{first} {third}");
    assert!(number(&lines[1]["queue_ms"]) < 0.5 * number(&third["queue_ms"]), "{lines:?}");
    let most = lines.iter().map(|line| number(&line["inflight"])).fold(0.0, f64::max);
    close(most, 4.0, 0.0, "inflight");
}

fn a_burst_gives_no_false_rate() {
    let llama = Llama::start(&[]);
    let proxy = llama.behind(&[]);
    let mut client = proxy.client(story(40));
    client.until(b"\r\n\r\n");
    // Events pile up in the socket while the proxy stands still, and come in one read.
    proxy.process.signal("-STOP");
    eventually("the server is done", || (llama.busy_slots() == 0).then_some(()));
    proxy.process.signal("-CONT");
    client.answer();
    let line = proxy.request(0);
    assert_eq!(line["coalesced"], true, "{line}");
    let server_ms = number(&line["generate_ms"]) - number(&line["prefill_ms"]);
    close(
        number(&line["decode_tokens_per_s"]),
        39.0 / server_ms * 1e3,
        0.02,
        "the server's own time",
    );
}

fn a_killed_server_cuts_and_comes_back() {
    let mut llama = Llama::start(&[]);
    let port = llama.port;
    let proxy = llama.behind(&[]);
    let mut client = proxy.client(story(900));
    client.until(b"\"content\":\"");
    llama.process.signal("-KILL");
    let rest = client.answer();
    assert!(!String::from_utf8_lossy(&rest.body).contains("[DONE]"));
    let line = proxy.request(0);
    assert_eq!(
        (&line["outcome"], &line["upstream_status"]),
        (&json!("truncated"), &json!(200)),
        "{line}"
    );
    llama.process.ended();

    assert_eq!(proxy.client(chat(json!({}))).answer().status, 502);
    let line = proxy.request(1);
    assert_eq!(
        (&line["outcome"], &line["status"]),
        (&json!("connect_failed"), &json!(502)),
        "{line}"
    );

    let _back = Llama::start_on(port, &[]);
    assert_eq!(proxy.client(chat(json!({"max_tokens": 4}))).answer().status, 200);
    assert_eq!(proxy.request(2)["outcome"], "ok");
    let lines = proxy.stop();
    assert_eq!(lines.last().map(|line| line["requests_count"].clone()), Some(json!(3)));
}

fn the_tokenizer_counts() {
    let llama = Llama::start(&[]);
    let model = env("INFERWATCH_LLAMA_MODEL");
    let proxy = llama.behind(&["--tokenizer", &model]);
    let text = "Count these: naïve café, 12345, <|im_start|>, 東京.";
    let messages = json!([{"role": "user", "content": text}]);
    let fields =
        json!({"messages": messages, "max_tokens": 900, "stream": true, "ignore_eos": true});
    let mut client = proxy.client(chat(fields));
    client.until(b"\"content\":\"");
    drop(client);
    let line = proxy.request(0);
    assert_eq!(
        (&line["outcome"], &line["tokens_src"]),
        (&json!("client_closed"), &json!("tokenizer")),
        "{line}"
    );
    let asked = json!({"content": text, "parse_special": true});
    let tokens = llama.ask(post("/tokenize", &asked.to_string())).json()["tokens"].clone();
    assert_eq!(line["prompt_tokens"], tokens.as_array().expect("tokens").len());
    assert!(line.get("est_prompt_tokens").is_none(), "{line}");
}

/// The ids that llama-server gives for the same texts (see tests/fixtures/README.md).
const GOLDEN: &str = include_str!("fixtures/tokens-smollm2.json");

fn counts_equal_those_of_llama_server() {
    let upstream = counting_nothing();
    let model = env("INFERWATCH_LLAMA_MODEL");
    let proxy = Proxy::start(&upstream, &["--tokenizer", &model]);
    let golden: Vec<Value> = serde_json::from_str(GOLDEN).expect("JSON");
    let golden: Vec<_> = golden.iter().filter(|case| case["text"] != "").collect();
    assert!(golden.len() > 100);
    for (n, case) in golden.into_iter().enumerate() {
        proxy.post("/completion", &json!({"prompt": case["text"]}).to_string());
        let ids = case["ids"].as_array().expect("ids");
        assert_eq!(proxy.request(n)["prompt_tokens"], ids.len(), "{}", case["text"]);
    }
}

/// An upstream that answers everything and reports no tokens.
fn counting_nothing() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(&client));
        }
    });
    addr
}

fn answer_all(client: &std::net::TcpStream) -> Option<()> {
    let mut reader = BufReader::new(client);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let lower = line.to_lowercase();
            length = lower
                .strip_prefix("content-length: ")
                .map_or(length, |n| n.trim().parse().unwrap_or(0));
            if line == "\r\n" {
                break;
            }
        }
        std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).ok()?;
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"content\":\"x\"}";
        (&*client).write_all(answer.as_bytes()).ok()?;
    }
}
