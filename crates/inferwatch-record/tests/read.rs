//! The reader takes what is good and says what is wrong with the rest.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::io::{self, BufReader, ErrorKind, Read};

use inferwatch_record::{BadLine, Line, Outcome, RequestLine, parse_line, read_lines};

fn request(text: &str) -> RequestLine {
    match parse_line(text.as_bytes()) {
        Ok(Line::Request(line)) => *line,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_home_made_line_is_a_request() {
    let line = request(r#"{"route":"/generate","total_ms":81.5}"#);
    assert_eq!((line.route.as_str(), line.total_ms, line.ts_unix_ms), ("/generate", 81.5, None));
    let line = request(
        r#" { "total_ms": 12, "extra": {"deep": [1, {"er": null}]}, "kind": null, "status": 200.0,
            "prompt_tokens": 12.0, "generate_ms": 7, "route": "/a\/b", "model": null,
            "ts": "2026-11-30T16:02:11.1234567+02:00", "outcome": "a_later_word" } "#,
    );
    assert_eq!((line.route.as_str(), line.total_ms), ("/a/b", 12.0));
    assert_eq!((line.status, line.prompt_tokens), (Some(200), Some(12)));
    assert_eq!((line.generate_ms, line.model), (Some(7.0), None));
    assert_eq!((line.ts_unix_ms, line.outcome), (Some(1_796_047_331_123), None));
}

#[test]
fn a_later_kind_is_not_a_bad_line() {
    let text = r#"{"ts":"2026-11-30T14:02:11.123Z","kind":"host","seq":4,"cores":4,"x":[1]}"#;
    let kind = "host".to_owned();
    let expected = Line::Unknown { ts_unix_ms: Some(1_796_047_331_123), seq: Some(4), kind };
    assert_eq!(parse_line(text.as_bytes()), Ok(expected));
}

#[test]
fn a_bad_line_names_its_fault() {
    let with = |field: &str| format!(r#"{{"route":"/g","total_ms":1,{field}}}"#).into_bytes();
    for (bytes, reason) in [
        (with(r#""status":"200""#), "`status`: a string where a whole number belongs"),
        (with(r#""status":70000"#), "`status`: 70000 is no HTTP status"),
        (with(r#""prompt_tokens":12.5"#), "`prompt_tokens`: not a whole number"),
        (with(r#""prompt_tokens":-1"#), "`prompt_tokens`: not a whole number"),
        (with(r#""encode_ms":-1"#), "`encode_ms`: negative"),
        (with(r#""encode_ms":true"#), "`encode_ms`: a boolean where a number belongs"),
        (with(r#""model":7"#), "`model`: a number where a string belongs"),
        (with(r#""model":{"a":1}"#), "`model`: a nested value where a string belongs"),
        (with(r#""stream":"yes""#), "`stream`: a string where a boolean belongs"),
        (with(r#""kind":1"#), "`kind`: a number where a string belongs"),
        (with(r#""outcome":1"#), "`outcome`: a number where a string belongs"),
        (with(r#""ts":1796047331"#), "`ts`: a number where a string belongs"),
        (with(r#""ts":"2026-11-30T14:02:11""#), "`ts`: no time zone"),
        (with(r#""bytes_in":1e999"#), "not JSON"),
        (b"{\"kind\":\"request\",\"total_ms\":1}".to_vec(), "`route`: missing"),
        (b"{\"kind\":\"request\",\"route\":\"/\"}".to_vec(), "`total_ms`: missing"),
        (b"{\"kind\":\"open\",\"route\":\"/\"}".to_vec(), "`age_ms`: missing"),
        (b"{\"kind\":\"start\",\"version\":\"1\",\"pid\":5000000000}".to_vec(), "`pid`: too large"),
        (b"{\"kind\":\"dropped\"}".to_vec(), "`dropped_count`: missing"),
        (b"{\"kind\":\"stop\"}".to_vec(), "`reason`: missing"),
        (b"{\"message\":\"hello\"}".to_vec(), "no `kind`"),
        (b"{\"ts\":\"2026-11-30T14:02:11.123Z\",\"kind\":\"requ".to_vec(), "torn"),
        (b"{}{}".to_vec(), "not JSON at byte 3"),
        (b"[1,2]".to_vec(), "not a JSON object"),
        (b"\"{}\"".to_vec(), "not a JSON object"),
        (b"Nov 30 14:02:11 box app[1]: hello".to_vec(), "not JSON at byte"),
        (b"\0\0\0\0".to_vec(), "not JSON at byte 1"),
        (b"{\"route\":\"\xff\"}".to_vec(), "not UTF-8 at byte 10"),
        (b"{\"route\":\"\\ud800\",\"total_ms\":1}".to_vec(), "not JSON at byte"),
        ("[".repeat(60_000).into_bytes(), "not"),
        (format!("{{\"a\":{}", "[".repeat(60_000)).into_bytes(), "torn"),
    ] {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let got = parse_line(&bytes).expect_err(&text);
        assert!(got.contains(reason), "{text}: expected {reason:?}, got {got:?}");
    }
}

/// `/a` for a good line, `3: reason` for a bad one.
fn shapes(input: impl io::BufRead) -> Vec<String> {
    let shape = |item: Result<Line, BadLine>| match item {
        Ok(Line::Request(line)) => line.route,
        Ok(other) => format!("{other:?}"),
        Err(bad) => format!("{}: {}", bad.number, bad.reason.split(':').next().unwrap()),
    };
    read_lines(input).map(shape).collect()
}

const A: &str = r#"{"route":"/a","total_ms":1}"#;
const B: &str = r#"{"route":"/b","total_ms":2}"#;

#[test]
fn bad_lines_leave_their_neighbours_alone() {
    let long =
        |length: usize| format!("{}{}", &A[..A.len() - 1], " ".repeat(length - A.len())) + "}";
    let exact = long(64 * 1024);
    let over = long(64 * 1024 + 1);
    for (text, expected) in [
        (String::new(), &[][..]),
        ("\n\r\n  \n".into(), &[]),
        (A.into(), &["/a"]),
        (format!("{A}\r\n{B}\r\n"), &["/a", "/b"]),
        (format!("\u{feff}{A}\n{B}"), &["/a", "/b"]),
        (format!("{A}\n\n\u{feff}{B}\n"), &["/a", "3: not JSON at byte 1"]),
        (format!("{{\"rou\n{A}\n{B}"), &["1: torn", "/a", "/b"]),
        (format!("{A}{B}\n{B}\n"), &["1: not JSON at byte 28", "/b"]),
        (format!("{exact}\n{B}\n"), &["/a", "/b"]),
        (format!("{over}\n{B}\n"), &["1: longer than 65536 bytes", "/b"]),
        (format!("{B}\n{over}"), &["/b", "2: longer than 65536 bytes"]),
    ] {
        let start: String = text.chars().take(60).collect();
        for buffer_bytes in [1, 7, 64, 8192, 1 << 20] {
            let input = BufReader::with_capacity(buffer_bytes, text.as_bytes());
            assert_eq!(shapes(input), expected, "{start}, {buffer_bytes} bytes at a time");
        }
    }
}

/// Yields some text, is interrupted now and then, and fails for good.
struct Failing<'a>(&'a [u8], bool);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(ErrorKind::Interrupted.into());
        }
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is gone")),
            count => Ok(count),
        }
    }
}

#[test]
fn a_read_error_ends_the_lines_and_is_said() {
    let text = format!("{A}\n{B}");
    let failing = BufReader::with_capacity(8, Failing(text.as_bytes(), false));
    assert_eq!(shapes(failing), ["/a", "2: reading failed"]);
}

/// 256 MiB without a newline.
#[test]
fn an_endless_line_is_skipped_in_bounded_memory() {
    let endless = io::repeat(b'x').take(1 << 28).chain("\n".as_bytes()).chain(A.as_bytes());
    let input = BufReader::with_capacity(1 << 16, endless);
    assert_eq!(shapes(input), ["1: longer than 65536 bytes", "/a"]);
}

#[test]
fn outcomes_are_read() {
    let line = request(r#"{"route":"/g","total_ms":1,"outcome":"upstream_killed"}"#);
    assert_eq!(line.outcome, Some(Outcome::UpstreamKilled));
}
