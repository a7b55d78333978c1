//! Heads and body framings at every split point, and what must be refused.

use inferwatch_lab::wire::{BodyReader, Dechunker, RequestHead, ResponseHead, chunk, request};

const CHUNKED: &[u8] = b"5\r\nhello\r\n1;ext=\"x\"\r\n \r\n5\nworld\n0\r\nX-Sum: 1\r\n\r\nNEXT";

#[test]
fn a_chunked_body_reads_the_same_at_every_split_point() {
    for split in 0..=CHUNKED.len() {
        let (mut dechunker, mut body, mut taken) = (Dechunker::default(), Vec::new(), 0);
        for piece in [&CHUNKED[..split], &CHUNKED[split..]] {
            taken += dechunker.feed(piece, &mut body).unwrap();
        }
        assert_eq!(body, b"hello world", "{split}");
        assert_eq!(CHUNKED.len() - taken, 4, "what follows the body stays, {split}");
        assert_eq!(dechunker.chunk_bytes, [5, 1, 5]);
        assert_eq!(dechunker.trailers, ["X-Sum: 1"]);
    }
}

#[test]
fn broken_chunked_bodies_are_refused_or_stay_open() {
    let endless = [b'1'; 9000];
    for (wire, expected) in [
        (&b"zz\r\n"[..], Err(())),
        (b"-1\r\n", Err(())),
        (b"\r\n", Err(())),
        (b"10000000000000000\r\n", Err(())),
        (b"1\r\nabc\r\n", Err(())),
        (&endless, Err(())),
        (b"1\r\na\r\n", Ok(false)),
        (b"0\r\n", Ok(false)),
        (b"0\r\n\r\n", Ok(true)),
        (b"", Ok(false)),
    ] {
        let mut dechunker = Dechunker::default();
        let fed = dechunker.feed(wire, &mut Vec::new()).map_err(drop);
        assert_eq!(fed.map(|_| dechunker.is_done()), expected, "{:?}", wire.escape_ascii());
    }
}

#[test]
fn no_chunk_ends_a_body_by_being_empty() {
    assert_eq!(chunk(b""), b"");
    assert_eq!(chunk(&[b'x'; 16]), b"10\r\nxxxxxxxxxxxxxxxx\r\n");
}

#[test]
fn framings_of_answers() {
    for (head, method, expected) in [
        ("200 OK\r\nContent-Length: 3", "GET", "length 3"),
        ("200 OK\r\nContent-Length: 3", "HEAD", "length 0"),
        ("204 No Content", "GET", "length 0"),
        ("304 Not Modified\r\nContent-Length: 9", "GET", "length 0"),
        ("200 OK\r\ntransfer-encoding: Chunked\r\nContent-Length: 3", "GET", "chunked"),
        ("200 OK", "GET", "to end"),
        ("200 OK\r\nContent-Length: x", "GET", "to end"),
    ] {
        let head = ResponseHead::parse(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes());
        let framing = match head.unwrap().unwrap().body(method) {
            BodyReader::Length(n) => format!("length {n}"),
            BodyReader::Chunked(_) => "chunked".to_owned(),
            BodyReader::ToEnd => "to end".to_owned(),
        };
        assert_eq!(framing, expected, "{method}");
    }
}

#[test]
fn a_request_head_keeps_its_bytes_and_needs_its_blank_line() {
    let bytes = request("POST", "/a?b", &[("X-Odd", "\u{e9}"), ("x-empty", "")], b"{}");
    let head = RequestHead::parse(&bytes).unwrap().unwrap();
    assert_eq!((head.method.as_str(), head.target.as_str()), ("POST", "/a?b"));
    assert_eq!(head.headers.get("X-EMPTY"), Some(""));
    assert_eq!([&head.bytes, &b"{}"[..]].concat(), bytes);
    for cut in 0..head.bytes.len() {
        assert_eq!(RequestHead::parse(&bytes[..cut]), Ok(None), "{cut}");
    }
    for bad in [&b"GET\r\n\r\n"[..], b"\x00\x01 / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
        assert!(RequestHead::parse(bad).is_err(), "{:?}", bad.escape_ascii());
    }
}
