//! Feeds exchanges to the observer: recordings with their real reads, or bodies that a test
//! made up.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its case has failed")]
#![allow(dead_code, reason = "every test binary uses its own part of this")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use inferwatch_proxy::observe::{BodyEnd, Observer, RequestHead};
use inferwatch_record::{Outcome, RequestLine};
use serde_json::{Map, Value, json};

/// What one read brought of a body, and when.
pub(crate) type Read = (Duration, Vec<u8>);

/// The head of an answer and its body.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) head_at: Duration,
    pub(crate) reads: Vec<Read>,
}

impl Answer {
    /// The whole body.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.reads.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The same answer, its body in one read per piece, all at the time of the last read.
    pub(crate) fn with_pieces<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Answer {
        let at = self.reads.last().map_or(self.head_at, |(at, _)| *at);
        let reads = pieces.into_iter().map(|piece| (at, piece.to_vec())).collect();
        Answer { reads, ..self.clone() }
    }

    /// Whether the answer is an event stream.
    pub(crate) fn is_event_stream(&self) -> bool {
        self.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream")
    }
}

/// One exchange with a model server.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) name: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) request_headers: HeaderMap,
    pub(crate) request_body: Vec<u8>,
    pub(crate) answer: Option<Answer>,
    pub(crate) how: BodyEnd,
    pub(crate) end: Duration,
}

impl Exchange {
    /// A posted JSON body and its answer of one read, after 10 ms, ended after 100 ms.
    pub(crate) fn post(path: &str, request: &str, content_type: &str, answer: &str) -> Exchange {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
        let at = Duration::from_millis(10);
        Exchange {
            name: path.to_owned(),
            method: Method::POST,
            path: path.to_owned(),
            request_headers: HeaderMap::new(),
            request_body: request.as_bytes().to_vec(),
            answer: Some(Answer {
                status: StatusCode::OK,
                headers,
                head_at: at,
                reads: vec![(at, answer.as_bytes().to_vec())],
            }),
            how: BodyEnd::Complete,
            end: Duration::from_millis(100),
        }
    }

    /// The same with another status.
    pub(crate) fn status(mut self, status: u16) -> Exchange {
        if let Some(answer) = &mut self.answer {
            answer.status = StatusCode::from_u16(status).unwrap();
        }
        self
    }

    /// The same with one more header on the answer.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Exchange {
        if let Some(answer) = &mut self.answer {
            answer.headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        self
    }

    /// The same with another end.
    pub(crate) fn how(mut self, how: BodyEnd) -> Exchange {
        self.how = how;
        self
    }

    /// An observer that has seen everything but the end.
    pub(crate) fn observer(&self, keep_text: bool) -> Observer {
        let head =
            RequestHead { method: &self.method, path: &self.path, headers: &self.request_headers };
        let mut observer = Observer::new(&head, keep_text);
        observer.request_chunk(&self.request_body);
        observer.request_end(Duration::ZERO);
        if let Some(answer) = &self.answer {
            observer.response_head(answer.status, &answer.headers, answer.head_at);
            for (at, bytes) in &answer.reads {
                observer.response_chunk(bytes, *at);
            }
        }
        observer
    }

    /// What the line says, by field name, absent fields left out.
    pub(crate) fn observed(&self) -> Map<String, Value> {
        let mut line = RequestLine::default();
        let outcome = self.observer(false).conclude(self.how, self.end, &mut line);
        fields(&line, outcome)
    }
}

/// The fields of a line that the observer fills.
pub(crate) fn fields(line: &RequestLine, outcome: Option<Outcome>) -> Map<String, Value> {
    let all = json!({
        "outcome": outcome.map(Outcome::as_str),
        "model": line.model,
        "requested_model": line.requested_model,
        "prompt_tokens": line.prompt_tokens,
        "completion_tokens": line.completion_tokens,
        "completion_tokens_partial": line.completion_tokens_partial,
        "cached_tokens": line.cached_tokens,
        "cache_hit": line.cache_hit,
        "tokens_src": line.tokens_src.map(|src| src.as_str()),
        "est_prompt_tokens": line.est_prompt_tokens,
        "stream": line.stream,
        "finish": line.finish,
        "batch": line.batch,
        "error": line.error,
        "parse": line.parse.map(|trouble| trouble.as_str()),
        "coalesced": line.coalesced,
        "encode_ms": line.encode_ms,
        "retrieve_ms": line.retrieve_ms,
        "rerank_ms": line.rerank_ms,
        "generate_ms": line.generate_ms,
        "queue_ms": line.queue_ms,
        "load_ms": line.load_ms,
        "headers_ms": line.headers_ms,
        "prefill_ms": line.prefill_ms,
        "ttft_ms": line.ttft_ms,
        "decode_tokens_per_s": line.decode_tokens_per_s,
        "bytes_in": line.bytes_in,
        "bytes_out": line.bytes_out,
    });
    let Value::Object(all) = all else { return Map::new() };
    all.into_iter().filter(|(_, value)| !value.is_null()).collect()
}

/// Fields that depend on how the body was cut into reads.
pub(crate) const READ_DEPENDENT: [&str; 6] =
    ["ttft_ms", "coalesced", "queue_ms", "prefill_ms", "decode_tokens_per_s", "generate_ms"];

/// The fields that do not depend on how the body was cut into reads.
pub(crate) fn timeless(mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.retain(|name, _| !name.ends_with("_ms") && !READ_DEPENDENT.contains(&name.as_str()));
    fields
}

/// Where two lines differ, numbers compared as far as a line shows them.
pub(crate) fn differences(
    found: &Map<String, Value>,
    expected: &Map<String, Value>,
) -> Vec<String> {
    let names = found.keys().chain(expected.keys().filter(|name| !found.contains_key(*name)));
    let differ = |name: &&String| !same(found.get(*name), expected.get(*name));
    names
        .filter(differ)
        .map(|name| format!("{name}: {:?}, expected {:?}", found.get(name), expected.get(name)))
        .collect()
}

fn same(found: Option<&Value>, expected: Option<&Value>) -> bool {
    match (found.and_then(Value::as_f64), expected.and_then(Value::as_f64)) {
        (Some(found), Some(expected)) => (found - expected).abs() < 0.002,
        _ => found == expected,
    }
}

/// Content types.
pub(crate) const EVENTS: &str = "text/event-stream";
pub(crate) const LINES: &str = "application/x-ndjson";
pub(crate) const JSON: &str = "application/json";

/// Checks the named fields; `null` stands for an absent one.
#[track_caller]
pub(crate) fn check(exchange: &Exchange, expected: Value) {
    let Value::Object(expected) = expected else { panic!("not an object") };
    let found = exchange.observed();
    let found: Map<_, _> =
        found.into_iter().filter(|(name, _)| expected.contains_key(name)).collect();
    let expected: Map<_, _> = expected.into_iter().filter(|(_, value)| !value.is_null()).collect();
    let differences = differences(&found, &expected);
    assert!(differences.is_empty(), "{}: {differences:#?}", exchange.name);
}

/// An event stream out of its data.
pub(crate) fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// The same, each event in a read of its own, 10 ms apart, the first at 10 ms.
pub(crate) fn timed(mut exchange: Exchange, pieces: &[&str]) -> Exchange {
    let at = |index: usize| Duration::from_millis(10 * (index as u64 + 1));
    let read = |(index, piece): (usize, &&str)| (at(index), piece.as_bytes().to_vec());
    let reads = pieces.iter().enumerate().map(read).collect();
    exchange.answer = exchange.answer.map(|answer| Answer { reads, ..answer });
    exchange
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

/// What the lines of all recordings must hold, by name.
pub(crate) fn expectations() -> Vec<(String, Map<String, Value>)> {
    let text = std::fs::read_to_string(recordings().join("expected.jsonl")).unwrap();
    let parse = |line: &str| {
        let mut fields: Map<String, Value> = serde_json::from_str(line).unwrap();
        let name = fields.remove("name").unwrap();
        (name.as_str().unwrap().to_owned(), fields)
    };
    text.lines().map(parse).collect()
}

/// All recordings.
pub(crate) fn all_recordings() -> impl Iterator<Item = Exchange> {
    expectations().into_iter().map(|(name, _)| load(&name))
}

/// One recording.
pub(crate) fn load(name: &str) -> Exchange {
    let file = |end: &str| std::fs::read(recordings().join(format!("{name}.{end}"))).unwrap();
    let request = file("request.http");
    let (first, request_headers, body_at) = parse_head(&request).unwrap();
    let mut words = first.split(' ');
    let method = words.next().unwrap().parse().unwrap();
    let target = words.next().unwrap();
    let marks: Vec<Value> = String::from_utf8(file("times.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (answer, complete) = answer(&file("response.http"), &marks);
    let aborted = marks.iter().any(|mark| mark.get("client_aborted").is_some());
    Exchange {
        name: name.to_owned(),
        method,
        path: target.split('?').next().unwrap().to_owned(),
        request_headers,
        request_body: request.get(body_at..).unwrap().to_vec(),
        answer,
        how: match (aborted, complete) {
            (true, _) => BodyEnd::Abandoned,
            (false, true) => BodyEnd::Complete,
            (false, false) => BodyEnd::Cut,
        },
        end: time_of(marks.last().unwrap()),
    }
}

fn time_of(mark: &Value) -> Duration {
    Duration::from_secs_f64(mark.get("t_ms").and_then(Value::as_f64).unwrap() / 1000.0)
}

/// First line, headers and length of a head.
fn parse_head(bytes: &[u8]) -> Option<(String, HeaderMap, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut lines = text.split("\r\n");
    let first = lines.next()?.to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value.trim()).ok()?))
    };
    Some((first, lines.filter_map(header).collect(), end + 4))
}

fn answer(raw: &[u8], marks: &[Value]) -> (Option<Answer>, bool) {
    let Some((first, headers, head_bytes)) = parse_head(raw) else { return (None, false) };
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked");
    let length = headers.get("content-length").map(|length| length.to_str().unwrap());
    let mut body = Dechunker::new(chunked);
    let mut head_at = None;
    let mut reads = Vec::new();
    let mut from = 0;
    for mark in marks.iter().filter(|mark| mark.get("bytes").is_some()) {
        let to = from + usize::try_from(mark.get("bytes").unwrap().as_u64().unwrap()).unwrap();
        if to >= head_bytes {
            head_at.get_or_insert(time_of(mark));
            let bytes = body.feed(raw.get(from.max(head_bytes)..to).unwrap());
            if !bytes.is_empty() {
                reads.push((time_of(mark), bytes));
            }
        }
        from = to;
    }
    let body_bytes: usize = reads.iter().map(|(_, bytes)| bytes.len()).sum();
    let complete = match length {
        Some(length) => length.parse() == Ok(body_bytes),
        None => body.ended,
    };
    (Some(Answer { status, headers, head_at: head_at.unwrap(), reads }), complete)
}

/// Takes the chunked framing off a body that comes in pieces.
struct Dechunker {
    chunked: bool,
    size_line: Vec<u8>,
    left: usize,
    ended: bool,
}

impl Dechunker {
    fn new(chunked: bool) -> Dechunker {
        Dechunker { chunked, size_line: Vec::new(), left: 0, ended: false }
    }

    fn feed(&mut self, raw: &[u8]) -> Vec<u8> {
        if !self.chunked {
            return raw.to_vec();
        }
        raw.iter().filter(|&&byte| self.is_data(byte)).copied().collect()
    }

    fn is_data(&mut self, byte: u8) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        match byte {
            b'\n' if !self.size_line.is_empty() => {
                let size = std::str::from_utf8(&self.size_line).unwrap();
                self.left = usize::from_str_radix(size, 16).unwrap();
                self.ended |= self.left == 0;
                self.size_line.clear();
            }
            b'\n' | b'\r' => {}
            _ => self.size_line.push(byte),
        }
        false
    }
}
