//! Every recording of a real server, over real sockets, direct and through the proxy: the same head,
//! the same body, and the line that the recording calls for.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod observe_support;
mod world;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use inferwatch_lab::client::{Client, Response};
use inferwatch_lab::observed::Request;
use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::recording::{End, Recording};
use inferwatch_lab::script::Script;
use inferwatch_lab::transform;
use inferwatch_lab::wire::ResponseHead;
use inferwatch_record::{Outcome, RequestLine};
use observe_support::{differences, expectations, fields, timeless};
use world::{PATIENCE, World};

/// Answers are replayed this much faster than they came; what took minutes takes seconds.
const SPEED: f64 = 30.0;
/// No gap is longer.
const LONGEST_GAP: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Variant {
    AsItCame,
    OneByteAtATime,
    Crlf,
    NoFinalBlankLine,
    Gzip,
    /// FIN after so many bytes.
    Cut(usize),
    /// Everything, and the connection stays open.
    Open,
}

type Recordings = HashMap<String, Recording>;

fn recordings() -> Recordings {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let load = |(name, _): (String, _)| {
        let (folder, file) = name.split_once('/').unwrap();
        let recording = Recording::load(&root.join(folder), file).unwrap();
        (name, recording)
    };
    expectations().into_iter().map(load).collect()
}

/// Requests say in `x-request-id` which recording they want, and how.
fn name_of(recording: &str, variant: Variant, n: usize) -> String {
    format!("{recording}#{variant:?}#{n}")
}

fn upstream(wanted: Vec<(String, Variant)>) -> RawUpstream {
    let recordings = recordings();
    let keyed = |(name, variant): (String, Variant)| (name_of(&name, variant, 0), (name, variant));
    let wanted: HashMap<_, _> = wanted.into_iter().map(keyed).collect();
    let answer = move |request: &Request| {
        let id = request.head.headers.get("x-request-id").unwrap_or_default();
        let (id, _) = id.rsplit_once('#').unwrap_or_default();
        let (name, variant) = &wanted[&format!("{id}#0")];
        script(&recordings[name], *variant)
    };
    RawUpstream::start(answer).unwrap()
}

fn script(recording: &Recording, variant: Variant) -> Script {
    let whole = |bytes: Vec<u8>| Script::new().send(bytes).fin();
    match variant {
        Variant::AsItCame => as_it_came(recording).fin(),
        Variant::Open => as_it_came(recording).hang(),
        Variant::OneByteAtATime => {
            let bytes = transform::one_byte_at_a_time(&recording.response).into_iter();
            bytes.fold(Script::new(), Script::send).fin()
        }
        Variant::Crlf => whole(transform::crlf(recording).unwrap()),
        Variant::NoFinalBlankLine => whole(transform::without_final_blank_line(recording).unwrap()),
        Variant::Gzip => whole(transform::gzip(recording).unwrap()),
        Variant::Cut(at) => whole(transform::cut_at(&recording.response, at)),
    }
}

fn as_it_came(recording: &Recording) -> Script {
    recording.reads().into_iter().fold(Script::new(), |script, (gap, bytes)| {
        script.wait(gap.div_f64(SPEED).min(LONGEST_GAP)).send(bytes.to_vec())
    })
}

/// The recorded request with a name on it.
fn request(recording: &Recording, id: &str) -> Vec<u8> {
    let at = recording.request.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    let (first, rest) = recording.request.split_at(at);
    [first, format!("X-Request-Id: {id}\r\n").as_bytes(), rest].concat()
}

fn method(recording: &Recording) -> &str {
    let first = recording.request.split(|byte| *byte == b' ').next().unwrap();
    std::str::from_utf8(first).unwrap()
}

async fn ask(addr: SocketAddr, recording: &Recording, id: &str) -> Response {
    let mut client = Client::connect(addr).await.unwrap();
    client.send(&request(recording, id)).await.unwrap();
    let answer = client.read_response(method(recording));
    tokio::time::timeout(PATIENCE, answer).await.expect("an answer").unwrap()
}

/// What a head says to the other end, not only to the next hop.
fn end_to_end(head: &ResponseHead) -> Vec<(String, Vec<u8>)> {
    let hop = ["connection", "keep-alive", "transfer-encoding"];
    let headers = head.headers.iter().filter(|(name, _)| !hop.contains(&&*name.to_lowercase()));
    headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Asks direct and through the proxy; gives the lines by request.
async fn compare(wanted: Vec<(String, Variant)>) -> HashMap<String, RequestLine> {
    let recordings = recordings();
    let upstream = upstream(wanted.clone());
    let world = World::before(&upstream).await;
    for (name, variant) in wanted {
        let recording = &recordings[&name];
        let id = name_of(&name, variant, 1);
        let direct = ask(upstream.addr(), recording, &id).await;
        let ours = ask(world.addr, recording, &id).await;
        assert_eq!(ours.head.status, direct.head.status, "{id}");
        assert_eq!(end_to_end(&ours.head), end_to_end(&direct.head), "{id}");
        assert!(ours.body == direct.body, "{id}: the bodies differ");
        assert_eq!(ours.trouble.is_some(), direct.trouble.is_some(), "{id}");
    }
    let lines = world.requests().await;
    lines.into_iter().map(|line| (line.id.clone().unwrap(), line)).collect()
}

fn complete() -> Vec<String> {
    let complete = |(_, recording): &(String, Recording)| {
        recording.end.1 == End::Eof && !recording.request.is_empty()
    };
    let mut names: Vec<_> =
        recordings().into_iter().filter(complete).map(|(name, _)| name).collect();
    names.sort();
    names
}

/// Complete recordings of at most `bytes`, whose answer ends as it should.
fn short(bytes: usize) -> Vec<String> {
    let recordings = recordings();
    let fits =
        |name: &String| recordings[name].response.len() <= bytes && recordings[name].body().is_ok();
    complete().into_iter().filter(fits).collect()
}

fn is_stream(recording: &Recording) -> bool {
    recording.response.windows(17).any(|part| part == b"text/event-stream")
}

/// The lines hold what the recordings call for, times apart.
fn check_lines(lines: &HashMap<String, RequestLine>, wanted: &[(String, Variant)]) {
    let expected: HashMap<_, _> = expectations().into_iter().collect();
    for (name, variant) in wanted {
        let id = name_of(name, *variant, 1);
        let line = lines.get(&id).unwrap_or_else(|| panic!("no line for {id}: {:?}", lines.keys()));
        let mut found = timeless(fields(line, line.outcome));
        let mut expected = timeless(expected[name].clone());
        if *variant != Variant::AsItCame {
            // Its size is another one.
            found.remove("bytes_out");
            expected.remove("bytes_out");
        }
        if !expected.contains_key("error") {
            // Why an answer broke off is told by the socket, not by the bytes.
            found.remove("error");
        }
        let differences = differences(&found, &expected);
        assert!(differences.is_empty(), "{name} {variant:?}: {differences:#?}");
    }
}

async fn hold(names: Vec<String>, variant: Variant) {
    let wanted: Vec<_> = names.into_iter().map(|name| (name, variant)).collect();
    assert!(wanted.len() > 10, "hardly any recording: {}", wanted.len());
    let lines = compare(wanted.clone()).await;
    check_lines(&lines, &wanted);
}

#[tokio::test]
async fn every_recording_passes_unchanged() {
    hold(complete(), Variant::AsItCame).await;
}

#[tokio::test]
async fn one_byte_at_a_time() {
    hold(short(2048), Variant::OneByteAtATime).await;
}

#[tokio::test]
async fn packed() {
    hold(short(1 << 20), Variant::Gzip).await;
}

#[tokio::test]
async fn other_line_ends() {
    let recordings = recordings();
    let streams = short(1 << 20).into_iter().filter(|name| is_stream(&recordings[name]));
    let streams: Vec<_> = streams.collect();
    hold(streams.clone(), Variant::Crlf).await;
    hold(streams, Variant::NoFinalBlankLine).await;
}

/// The observer's own tests cut at every byte; here sockets do, at some.
#[tokio::test]
async fn cut_anywhere() {
    let recordings = recordings();
    let cuts = |name: &String| {
        let response = &recordings[name].response;
        let head = response.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let step = (response.len() - head) / 7 + 1;
        let cuts = (head..response.len()).step_by(step);
        cuts.map(|at| (name.clone(), Variant::Cut(at))).collect::<Vec<_>>()
    };
    let wanted: Vec<_> = short(3000).iter().flat_map(cuts).collect();
    let lines = compare(wanted).await;
    for (name, line) in lines {
        // A complete stream may lose its last chunk without losing a word.
        let whole = line.outcome == Some(Outcome::Ok) && line.finish.is_some();
        let fair = whole || line.outcome == Some(Outcome::Truncated);
        let refused = line.status.is_some_and(|status| status >= 400);
        assert!(fair || refused, "{name}: {line:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_after_each_event() {
    let recordings = recordings();
    let streams = short(6000).into_iter().filter(|name| is_stream(&recordings[name]));
    let streams: Vec<_> = streams.take(6).collect();
    let upstream = upstream(streams.iter().map(|name| (name.clone(), Variant::Open)).collect());
    let world = World::before(&upstream).await;
    let mut asked = 0;
    for name in &streams {
        let recording = &recordings[name];
        let events = recording.body().unwrap().windows(2).filter(|two| *two == b"\n\n").count();
        for leave_after in 1..events {
            let mut client = Client::connect(world.addr).await.unwrap();
            let id = name_of(name, Variant::Open, leave_after);
            client.send(&request(recording, &id)).await.unwrap();
            let head = client.read_head().await.unwrap();
            let mut body = client.body(&head, "POST");
            for _ in 0..leave_after {
                body.next_event().await.unwrap();
            }
            client.close();
            let told = upstream.peer_closed(asked);
            tokio::time::timeout(PATIENCE, told).await.expect("the upstream is told");
            asked += 1;
        }
    }
    let lines = world.requests().await;
    assert_eq!(lines.len(), asked);
    assert!(asked > 20, "hardly any events: {asked}");
    let left = |line: &RequestLine| line.outcome == Some(Outcome::ClientClosed);
    // The whole stream is there, chunk for chunk: a client may leave when all has been sent.
    assert!(lines.iter().all(|line| left(line) || line.outcome == Some(Outcome::Ok)), "{lines:?}");
    assert!(lines.iter().filter(|line| left(line)).count() * 2 > asked, "{lines:?}");
}
