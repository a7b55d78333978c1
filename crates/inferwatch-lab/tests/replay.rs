//! Recordings come back byte for byte, with their read boundaries; their other forms say the same.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use inferwatch_lab::client::{Client, exchange};
use inferwatch_lab::recording::{End, Recording};
use inferwatch_lab::replay::{HEADER, Replay, pieces};
use inferwatch_lab::transform;
use inferwatch_lab::wire::{ResponseHead, request};

const STREAM: &str = "33-completion-native-stream";

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings")
}

fn load(name: &str) -> Recording {
    Recording::load(&dir(), name).unwrap()
}

fn loopback() -> std::net::SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[tokio::test]
async fn every_recording_comes_back_byte_for_byte() {
    let upstream = Replay::load(&dir(), 0.0).unwrap().serve(loopback()).unwrap();
    let names = Recording::names(&dir()).unwrap();
    assert_eq!(names.len(), 4);
    for name in names {
        let recording = load(&name);
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(&request("POST", "/any", &[(HEADER, &name)], b"{}")).await.unwrap();
        let mut got = Vec::new();
        while got.len() < recording.response.len() {
            got.extend(client.read_some().await.unwrap());
        }
        assert_eq!(got, recording.response, "{name}");
        if recording.end.1 == End::Eof {
            assert_eq!(client.read_some().await.unwrap(), b"", "{name}: closed");
        } else {
            let silence = tokio::time::timeout(Duration::from_millis(50), client.read_some());
            assert!(silence.await.is_err(), "{name}: left to its client");
        }
    }
}

#[tokio::test]
async fn read_boundaries_are_kept() {
    let upstream = Replay::load(&dir(), 0.05).unwrap().serve(loopback()).unwrap();
    let recording = load(STREAM);
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    client.send(&request("GET", "/", &[(HEADER, STREAM)], b"")).await.unwrap();
    for (index, (_, bytes)) in recording.reads().into_iter().enumerate().take(4) {
        assert_eq!(client.read_some().await.unwrap(), bytes, "read {index}");
    }
}

#[tokio::test]
async fn connections_can_be_answered_in_turn() {
    let names = vec!["10-chat-nonstream".to_owned(), "no such".to_owned()];
    let replay = Replay::load(&dir(), 0.0).unwrap().by_connection(names);
    let upstream = replay.serve(loopback()).unwrap();
    let get = request("GET", "/", &[], b"");
    for status in [200, 404, 404] {
        assert_eq!(exchange(upstream.addr(), &get).await.unwrap().head.status, status);
    }
}

#[test]
fn a_recording_can_be_looked_into() {
    let stream = load(STREAM);
    assert_eq!(stream.head().unwrap().headers.get("access-control-allow-origin"), Some(""));
    assert_eq!(stream.reads().len(), 13);
    assert_eq!(stream.reads().iter().map(|(_, b)| b.len()).sum::<usize>(), stream.response.len());
    let body = String::from_utf8(stream.body().unwrap()).unwrap();
    assert!(body.starts_with("data: {") && body.ends_with("}\n\n"), "{body}");
    assert_eq!(load("10-chat-nonstream").body().unwrap().len(), 635);
    assert_eq!(load("81-abort-midstream-client-closes").end.1, End::ClientAborted);
}

#[test]
fn broken_recordings_are_refused_by_name() {
    let dir = std::env::temp_dir().join(format!("lab-recordings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (times, says) in [
        ("{\"t_ms\":1,\"bytes\":2}\n{\"t_ms\":1,\"eof\":true}\n", "reads of 2 bytes"),
        ("{\"t_ms\":1,\"bytes\":3}\n", "no end"),
        ("{\"t_ms\":-1,\"bytes\":3}\n{\"t_ms\":1,\"eof\":true}\n", "negative"),
        ("{\"t_ms\"", "EOF"),
    ] {
        for (extension, text) in
            [("request.http", "GET"), ("response.http", "abc"), ("times.jsonl", times)]
        {
            std::fs::write(dir.join(format!("x.{extension}")), text).unwrap();
        }
        let error = Recording::load(&dir, "x").unwrap_err().to_string();
        assert!(error.starts_with("x: ") && error.contains(says), "{error}");
    }
    assert!(Recording::load(&dir, "y").unwrap_err().to_string().contains("y.request.http"));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Serves `response` as it is and gives the payload of its body back.
async fn payload(response: &[u8]) -> (ResponseHead, Vec<u8>) {
    let whole = vec![bytes::Bytes::copy_from_slice(response)];
    let upstream =
        inferwatch_lab::raw::RawUpstream::start(move |_| pieces(whole.clone(), Duration::ZERO));
    let got = exchange(upstream.unwrap().addr(), &request("GET", "/", &[], b"")).await.unwrap();
    assert!(got.trouble.is_none(), "{:?}", got.trouble);
    (got.head, got.body)
}

#[tokio::test]
async fn other_forms_are_whole_messages_that_say_the_same() {
    for name in [STREAM, "53-anthropic-stream", "10-chat-nonstream"] {
        let recording = load(name);
        let body = recording.body().unwrap();
        let text = String::from_utf8(body.clone()).unwrap();

        let (_, crlf) = payload(&transform::crlf(&recording).unwrap()).await;
        assert_eq!(String::from_utf8(crlf).unwrap(), text.replace('\n', "\r\n"), "{name}");

        let (_, open) = payload(&transform::without_final_blank_line(&recording).unwrap()).await;
        assert_eq!(open, text.strip_suffix('\n').unwrap_or(&text).as_bytes(), "{name}");

        let (head, packed) = payload(&transform::gzip(&recording).unwrap()).await;
        assert_eq!(head.headers.get("content-encoding"), Some("gzip"));
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, body, "{name}");
    }
}

#[test]
fn pieces_and_cuts() {
    for (at, expected) in [(0, &["abc"][..]), (1, &["a", "bc"]), (3, &["abc"]), (9, &["abc"])] {
        assert_eq!(transform::split_at(b"abc", at), expected, "{at}");
    }
    assert_eq!(transform::one_byte_at_a_time(b"abc"), ["a", "b", "c"]);
    assert_eq!(transform::cut_at(b"abc", 2), b"ab");
    assert_eq!(transform::cut_at(b"abc", 9), b"abc");
}
