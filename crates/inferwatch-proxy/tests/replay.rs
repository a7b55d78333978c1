//! Every recording on real sockets, once direct and once through the proxy: the client cannot tell
//! the two apart, and the line says what the table of expected values says.

#![expect(clippy::unwrap_used, reason = "a test that cannot build its case has failed")]

mod observe_support;
mod world;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use inferwatch_lab::client::{Client, Response, Trouble};
use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::recording::{End, Recording};
use inferwatch_lab::script::Script;
use inferwatch_lab::transform;
use inferwatch_lab::wire::{Headers, RequestHead, ResponseHead, chunk};
use inferwatch_proxy::observe::BodyEnd;
use inferwatch_record::RequestLine;
use observe_support::{Answer, Exchange, differences, expectations, fields, load, timeless};
use serde_json::{Map, Value};
use world::World;

/// Answers up to this, head included, are cut and dripped.
const SHORT_BYTES: usize = 16 << 10;

/// Gaps of the recordings shrink by this, and none is longer than [`LONGEST_GAP`].
const SPEED: f64 = 50.0;
const LONGEST_GAP: Duration = Duration::from_millis(2);

/// What an upstream does with one request, and when its client leaves.
#[derive(Clone)]
struct Take {
    request: Vec<u8>,
    writes: Vec<(Duration, Bytes)>,
    /// The client leaves when it has so much of the body; the upstream would have gone on.
    leaves_after_bytes: Option<usize>,
}

impl Take {
    fn of(request: &[u8], wire: &[u8]) -> Take {
        let writes = vec![(Duration::ZERO, Bytes::copy_from_slice(wire))];
        Take { request: request.to_vec(), writes, leaves_after_bytes: None }
    }

    /// With its reads as they were, and its gaps shrunk.
    fn recorded(recording: &Recording) -> Take {
        let write = |(gap, bytes): (Duration, &[u8])| {
            (gap.div_f64(SPEED).min(LONGEST_GAP), Bytes::copy_from_slice(bytes))
        };
        let writes = recording.reads().into_iter().map(write).collect();
        let left = recording.end.1 == End::ClientAborted;
        let leaves_after_bytes = left.then(|| recording.body().map_or(0, |body| body.len()));
        Take { request: recording.request.clone(), writes, leaves_after_bytes }
    }

    fn script(&self) -> Script {
        let write = |script: Script, (gap, bytes): &(Duration, Bytes)| {
            let script = if gap.is_zero() { script } else { script.wait(*gap) };
            script.send(bytes.clone())
        };
        let script = self.writes.iter().fold(Script::new(), write);
        if self.leaves_after_bytes.is_some() { script.hang() } else { script.fin() }
    }

    fn method(&self) -> String {
        RequestHead::parse(&self.request).unwrap().unwrap().method
    }
}

/// An upstream that plays one take at a time, a proxy before it, and what its lines must say.
struct Stage {
    upstream: RawUpstream,
    world: World,
    take: Arc<Mutex<Take>>,
    expected: Vec<(String, Map<String, Value>)>,
}

impl Stage {
    async fn new() -> Stage {
        let take = Arc::new(Mutex::new(Take::of(b"", b"")));
        let now = take.clone();
        let upstream = RawUpstream::start(move |_| now.lock().unwrap().script()).unwrap();
        let world = World::before(&upstream).await;
        Stage { upstream, world, take, expected: Vec::new() }
    }

    async fn direct(&self, take: &Take) -> Result<Response, Trouble> {
        self.play(self.upstream.addr(), take).await
    }

    async fn proxied(
        &mut self,
        take: &Take,
        name: String,
        expected: Map<String, Value>,
    ) -> Result<Response, Trouble> {
        self.expected.push((name, expected));
        let response = self.play(self.world.addr, take).await;
        self.world.settled().await;
        response
    }

    async fn play(&self, addr: SocketAddr, take: &Take) -> Result<Response, Trouble> {
        *self.take.lock().unwrap() = take.clone();
        let request = self.upstream.requests().len();
        let mut client = Client::connect(addr).await?;
        client.send(&take.request).await?;
        let Some(bytes) = take.leaves_after_bytes else {
            return client.read_response(&take.method()).await;
        };
        if take.writes.is_empty() {
            self.upstream.request(request).await;
            return Err(Trouble::ClosedBeforeHead);
        }
        let response = read_some(&mut client, &take.method(), bytes).await;
        drop(client);
        let connection = self.upstream.request(request).await.connection;
        let told = self.upstream.peer_closed(connection);
        tokio::time::timeout(world::PATIENCE, told).await.expect("the upstream is told");
        response
    }

    /// Compares the lines with what they must say.
    async fn check(self) {
        let lines = self.world.requests().await;
        assert_eq!(lines.len(), self.expected.len());
        let wrong: Vec<String> = lines
            .iter()
            .zip(self.expected)
            .map(|(line, (name, expected))| (faults(line, &expected), name))
            .filter(|(faults, _)| !faults.is_empty())
            .map(|(faults, name)| format!("{name}:\n  {}", faults.join("\n  ")))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// The head and the first `bytes` of the body.
async fn read_some(client: &mut Client, method: &str, bytes: usize) -> Result<Response, Trouble> {
    let head = client.read_head().await?;
    let mut body = Vec::new();
    let mut reader = client.body(&head, method);
    while body.len() < bytes {
        body.extend(reader.next_piece().await?.expect("the body is not at its end"));
    }
    Ok(Response { head, body, body_on_wire: Vec::new(), trailers: Vec::new(), trouble: None })
}

/// Where a line differs from what it must say, times apart. `true` for an error stands for words of the
/// proxy's own: that an answer broke off is not in its bytes.
fn faults(line: &RequestLine, expected: &Map<String, Value>) -> Vec<String> {
    let mut said = timeless(fields(line, line.outcome));
    said.insert("status".to_owned(), line.status.into());
    if expected.get("error") == Some(&true.into()) {
        said.entry("error").and_modify(|words| *words = true.into());
    }
    differences(&said, expected)
}

/// What the line of `exchange` must say when its client stays, apart from times.
fn expected(exchange: &Exchange, table: Map<String, Value>) -> Map<String, Value> {
    let mut expected = timeless(table);
    if exchange.how == BodyEnd::Cut || expected["outcome"] == "truncated" {
        expected.entry("error").or_insert(true.into());
    }
    let status = exchange.answer.as_ref().map(|answer| answer.status.as_u16());
    expected.insert("status".to_owned(), status.into());
    expected
}

/// The same when the client leaves.
fn left(exchange: &Exchange, table: Map<String, Value>) -> Map<String, Value> {
    let waiting = exchange.answer.is_none();
    let outcome = if waiting { "client_closed_waiting" } else { "client_closed" };
    let mut expected = timeless(table);
    expected.insert("outcome".to_owned(), outcome.into());
    expected.insert("status".to_owned(), 499.into());
    expected
}

fn recording(name: &str) -> Recording {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    Recording::load(&folder, name).unwrap()
}

fn all() -> impl Iterator<Item = (Recording, Exchange, Map<String, Value>)> {
    expectations().into_iter().map(|(name, table)| (recording(&name), load(&name), table))
}

/// Those that came whole. The contended ones are the same bodies again.
fn whole() -> impl Iterator<Item = (Recording, Exchange, Map<String, Value>)> {
    all().filter(|(recording, exchange, _)| {
        exchange.how == BodyEnd::Complete && !recording.name.contains("contended")
    })
}

fn short() -> impl Iterator<Item = (Recording, Exchange, Map<String, Value>)> {
    whole().filter(|(recording, ..)| recording.response.len() <= SHORT_BYTES)
}

/// Headers that pass from end to end, in their order and case.
fn end_to_end(headers: &Headers) -> Vec<(String, Vec<u8>)> {
    let of_one_hop = |name: &str| ["connection", "keep-alive"].contains(&name);
    let headers = headers.iter().filter(|(name, _)| !of_one_hop(&name.to_lowercase()));
    headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn start_line(head: &ResponseHead) -> String {
    String::from_utf8_lossy(&head.bytes).lines().next().unwrap_or_default().to_owned()
}

fn assert_same(name: &str, direct: &Response, proxied: &Response) {
    assert_eq!(start_line(&proxied.head), start_line(&direct.head), "{name}");
    assert_eq!(end_to_end(&proxied.head.headers), end_to_end(&direct.head.headers), "{name}");
    assert!(proxied.body == direct.body, "{name}: the bodies differ");
    assert_eq!(proxied.trailers, direct.trailers, "{name}");
    assert_eq!(proxied.trouble.is_some(), direct.trouble.is_some(), "{name}");
}

#[tokio::test]
async fn nobody_can_tell_that_there_is_a_proxy() {
    let mut stage = Stage::new().await;
    for (recording, exchange, table) in all() {
        let name = recording.name.clone();
        let take = Take::recorded(&recording);
        let gone = take.leaves_after_bytes.is_some();
        let expected = if gone { left(&exchange, table) } else { expected(&exchange, table) };
        let direct = stage.direct(&take).await;
        let proxied = stage.proxied(&take, name.clone(), expected).await;
        match (direct, proxied) {
            (Ok(direct), Ok(proxied)) => assert_same(&name, &direct, &proxied),
            (Err(_), Err(_)) if gone => {}
            (direct, proxied) => panic!("{name}: {direct:?}, {proxied:?}"),
        }
    }
    let requests = stage.upstream.requests();
    for pair in requests.chunks(2) {
        let [direct, proxied] = pair else { panic!("an odd number of requests") };
        assert_eq!(proxied.head.method, direct.head.method);
        assert_eq!(proxied.head.target, direct.head.target);
        assert_eq!(end_to_end(&proxied.head.headers), end_to_end(&direct.head.headers));
        assert!(proxied.body == direct.body, "{}: the bodies differ", direct.head.target);
    }
    stage.check().await;
}

/// Plays another form of each recording: the line says the same, sizes apart.
async fn plays(form: fn(&Recording, &Exchange) -> Option<Take>) {
    let mut stage = Stage::new().await;
    for (recording, exchange, table) in whole() {
        let Some(take) = form(&recording, &exchange) else { continue };
        let direct = stage.direct(&take).await.unwrap();
        let mut expected = expected(&exchange, table);
        expected.insert("bytes_out".to_owned(), direct.body.len().into());
        let proxied = stage.proxied(&take, recording.name.clone(), expected).await.unwrap();
        assert_same(&recording.name, &direct, &proxied);
    }
    assert!(stage.expected.len() > 5, "hardly any recording has this form");
    stage.check().await;
}

fn is_stream(exchange: &Exchange) -> bool {
    exchange.answer.as_ref().is_some_and(Answer::is_event_stream)
}

/// The answer's bytes in pieces of `size`, each in a write of its own.
fn in_pieces(recording: &Recording, wire: &[u8], size: usize) -> Take {
    let write = |piece| (Duration::ZERO, Bytes::copy_from_slice(piece));
    Take { writes: wire.chunks(size).map(write).collect(), ..Take::of(&recording.request, b"") }
}

#[tokio::test]
async fn one_byte_at_a_time() {
    plays(|recording, _| {
        let wire = &recording.response;
        (wire.len() <= SHORT_BYTES).then(|| in_pieces(recording, wire, 1))
    })
    .await;
}

#[tokio::test]
async fn with_crlf() {
    plays(|recording, exchange| {
        let wire = transform::crlf(recording).unwrap();
        is_stream(exchange).then(|| in_pieces(recording, &wire, 97))
    })
    .await;
}

#[tokio::test]
async fn without_the_final_blank_line() {
    plays(|recording, exchange| {
        let wire = transform::without_final_blank_line(recording).unwrap();
        is_stream(exchange).then(|| Take::of(&recording.request, &wire))
    })
    .await;
}

#[tokio::test]
async fn packed() {
    plays(|recording, exchange| {
        let body = exchange.answer.as_ref().map_or(0, |answer| answer.body().len());
        let wire = transform::gzip(recording).unwrap();
        (body > 0).then(|| in_pieces(recording, &wire, 97))
    })
    .await;
}

/// The exchange as the pure observer sees it when the body ends after `bytes`.
fn ended_after(exchange: &Exchange, bytes: usize, how: BodyEnd) -> Exchange {
    let answer = exchange.answer.as_ref().unwrap();
    let body = answer.body();
    let answer = answer.with_pieces([&body[..bytes]]);
    Exchange { answer: Some(answer), ..exchange.clone() }.how(how)
}

/// A line for an answer that never had a whole head.
fn unanswered(exchange: &Exchange) -> Map<String, Value> {
    let whole = Exchange { answer: None, ..exchange.clone() }.how(BodyEnd::Abandoned);
    let mut expected = timeless(whole.observed());
    expected.insert("outcome".to_owned(), "upstream_error".into());
    expected.insert("error".to_owned(), true.into());
    expected.insert("status".to_owned(), 502.into());
    expected
}

#[tokio::test]
async fn cut_in_many_places() {
    let mut stage = Stage::new().await;
    for (recording, exchange, _) in short() {
        let wire = &recording.response;
        let head_bytes = recording.head().unwrap().bytes.len();
        let tenths = (0..10).map(|tenth| wire.len() * tenth / 10);
        for cut in tenths.chain([head_bytes - 1, head_bytes, wire.len() - 1]) {
            let name = format!("{} cut at {cut}", recording.name);
            let take = Take::of(&recording.request, &wire[..cut]);
            if cut < head_bytes {
                let answer = stage.proxied(&take, name.clone(), unanswered(&exchange)).await;
                assert_eq!(answer.unwrap().head.status, 502, "{name}");
                continue;
            }
            let direct = stage.direct(&take).await.unwrap();
            let how = if direct.trouble.is_some() { BodyEnd::Cut } else { BodyEnd::Complete };
            let seen = ended_after(&exchange, direct.body.len(), how);
            let expected = expected(&seen, seen.observed());
            let proxied = stage.proxied(&take, name.clone(), expected).await.unwrap();
            assert_same(&name, &direct, &proxied);
        }
    }
    stage.check().await;
}

#[tokio::test]
async fn the_client_leaves_after_any_event() {
    let mut stage = Stage::new().await;
    for (recording, exchange, _) in short().filter(|(_, exchange, _)| is_stream(exchange)) {
        let body = exchange.answer.as_ref().unwrap().body();
        let head = recording.head().unwrap().bytes;
        let ends = (2..=body.len()).filter(|end| body[..*end].ends_with(b"\n\n"));
        for end in std::iter::once(0).chain(ends) {
            let name = format!("{} left after {end}", recording.name);
            let wire = [&head[..], &chunk(&body[..end])].concat();
            let mut take = Take::of(&recording.request, &wire);
            take.leaves_after_bytes = Some(end);
            let seen = ended_after(&exchange, end, BodyEnd::Abandoned);
            let expected = left(&seen, seen.observed());
            stage.proxied(&take, name, expected).await.unwrap();
        }
    }
    stage.check().await;
}
