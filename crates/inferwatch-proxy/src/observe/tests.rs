//! Unit tests of the observer that look inside: what it holds.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::*;

/// The bound on one observer, heap included.
const MAX_BYTES: usize = 64 << 10;

fn observer(headers: &HeaderMap) -> Observer {
    let head = RequestHead { method: &Method::POST, path: "/v1/embeddings", headers };
    Observer::new(&head, true)
}

fn answer_headers(coding: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("content-encoding", HeaderValue::from_static(coding));
    headers
}

fn held_bytes(observer: &Observer) -> usize {
    size_of::<Observer>() + observer.heap_bytes()
}

/// Feeds a request with this much text, then an answer that fills every string, and checks the
/// bound after every piece.
fn check_bound(text_bytes: usize, coding: &'static str) {
    let long = "w".repeat(1000);
    let words = ["model", "id", "object", "type", "stop_type", "stop_reason", "status", "code"];
    let words = words.map(|key| format!("\"{key}\":\"{long}\"")).join(",");
    let body = format!(
        "{{{words},\"message\":\"{long}\",\"choices\":[{{\"finish_reason\":\"{long}\"}}],\"error\":{{\"type\":\"{long}\",\"message\":\"{long}\"}}}}"
    );
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(body.as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let body = if coding == "gzip" { packed } else { body.into_bytes() };
    let mut observer = observer(&HeaderMap::new());
    let text = format!("{{\"model\":\"{long}\",\"input\":\"{}\"}}", "x".repeat(text_bytes));
    for piece in text.as_bytes().chunks(700) {
        observer.request_chunk(piece);
        assert!(held_bytes(&observer) <= MAX_BYTES, "{}", held_bytes(&observer));
    }
    observer.response_head(StatusCode::OK, &answer_headers(coding), Duration::ZERO);
    for piece in body.chunks(100) {
        observer.response_chunk(piece, Duration::ZERO);
        assert!(held_bytes(&observer) <= MAX_BYTES, "{}", held_bytes(&observer));
    }
    let mut line = RequestLine::default();
    observer.conclude(BodyEnd::Complete, Duration::ZERO, &mut line);
    assert_eq!(line.model.map(|model| model.len()), Some(256));
}

#[test]
fn an_observer_holds_at_most_64_kib() {
    for text_bytes in [0, 1000, 12_000, 13_000, 20_000, 30_000, 40_000, 40_960, 50_000, 1 << 20] {
        check_bound(text_bytes, "identity");
        check_bound(text_bytes, "gzip");
    }
}

#[test]
fn text_that_fits_is_kept_to_the_last_byte() {
    let kept = |text_bytes: usize| {
        let mut observer = observer(&HeaderMap::new());
        let text = format!("{{\"input\":\"{}\"}}", "x".repeat(text_bytes));
        text.as_bytes().chunks(999).for_each(|piece| observer.request_chunk(piece));
        observer.take_text().map(|text| text.len())
    };
    let max = request::MAX_KEPT_BYTES;
    assert_eq!(kept(max), Some(max));
    assert_eq!(kept(max + 1), None);
}

#[test]
fn the_model_is_known_while_the_exchange_runs() {
    let mut observer = observer(&HeaderMap::new());
    assert_eq!((observer.model(), observer.kind()), (None, RouteKind::Embed));
    observer.request_chunk(b"{\"model\":\"asked\",");
    assert_eq!(observer.model(), Some("asked"));
    observer.response_head(StatusCode::OK, &answer_headers(""), Duration::ZERO);
    observer.response_chunk(b"{\"model\":\"served\"", Duration::ZERO);
    assert_eq!(observer.model(), Some("served"));
    assert_eq!(observer.first_token_at(), None);
}

#[test]
fn a_route_that_is_not_posted_to_does_no_work_and_an_upgrade_is_not_looked_into() {
    let check = |method: Method, path, upgrade: bool, expected| {
        let mut headers = HeaderMap::new();
        if upgrade {
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
        }
        let head = RequestHead { method: &method, path, headers: &headers };
        assert_eq!(Observer::new(&head, false).kind(), expected, "{method} {path}");
    };
    check(Method::POST, "/v1/chat/completions", false, RouteKind::Chat);
    check(Method::OPTIONS, "/v1/chat/completions", false, RouteKind::NoModelWork);
    check(Method::GET, "/v1/responses", false, RouteKind::NoModelWork);
    check(Method::POST, "/v1/chat/completions", true, RouteKind::Opaque);
    check(Method::GET, "/nope", false, RouteKind::Unknown);
    check(Method::CONNECT, "/", false, RouteKind::Opaque);
}
