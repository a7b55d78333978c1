//! The observer over every recording: the line holds what the recording says, however its body
//! is cut, and wherever it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot build its case has failed")]

mod observe_support;

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::HeaderValue;
use inferwatch_proxy::observe::{BodyEnd, Observer, RequestHead, route};
use observe_support::{
    Answer, Exchange, all_recordings, differences, expectations, load, timeless,
};
use serde_json::{Map, Value};

/// Bodies up to this are cut at every byte.
const SHORT_BYTES: usize = 4096;

fn with_answer(exchange: &Exchange, answer: Answer) -> Exchange {
    Exchange { answer: Some(answer), ..exchange.clone() }
}

/// What a line says apart from times and bytes.
fn said(exchange: &Exchange) -> Map<String, Value> {
    let mut fields = timeless(exchange.observed());
    fields.remove("bytes_out");
    fields
}

/// Checks that a variant of a recording says the same, times apart.
fn check_same(variant: &Exchange, expected: &Map<String, Value>, what: &str) {
    let differences = differences(&said(variant), expected);
    assert!(differences.is_empty(), "{}, {what}: {differences:#?}", variant.name);
}

fn answers() -> impl Iterator<Item = (Exchange, Answer)> {
    all_recordings().filter_map(|exchange| exchange.answer.clone().map(|answer| (exchange, answer)))
}

/// Recordings short enough to be cut at every byte. The contended ones are the same bodies again.
fn short_answers() -> impl Iterator<Item = (Exchange, Answer)> {
    answers().filter(|(exchange, answer)| {
        !exchange.name.contains("contended") && answer.body().len() <= SHORT_BYTES
    })
}

#[test]
fn the_line_holds_what_the_recording_says() {
    let wrong: Vec<String> = expectations()
        .into_iter()
        .map(|(name, expected)| (differences(&load(&name).observed(), &expected), name))
        .filter(|(differences, _)| !differences.is_empty())
        .map(|(differences, name)| format!("{name}:\n  {}", differences.join("\n  ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn two_pieces_say_the_same_wherever_the_cut_is() {
    for (exchange, answer) in short_answers() {
        let (body, expected) = (answer.body(), said(&exchange));
        for cut in 0..body.len() {
            let (one, two) = body.split_at(cut);
            let variant = with_answer(&exchange, answer.with_pieces([one, two]));
            check_same(&variant, &expected, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn one_byte_at_a_time_says_the_same() {
    for (exchange, answer) in answers() {
        let (body, expected) = (answer.body(), said(&exchange));
        let variant = with_answer(&exchange, answer.with_pieces(body.chunks(1)));
        check_same(&variant, &expected, "byte by byte");
    }
}

#[test]
fn a_request_one_byte_at_a_time_says_the_same() {
    for exchange in all_recordings() {
        let head = RequestHead {
            method: &exchange.method,
            path: &exchange.path,
            headers: &exchange.request_headers,
        };
        let mut whole = Observer::new(&head, true);
        let mut bytes = Observer::new(&head, true);
        whole.request_chunk(&exchange.request_body);
        exchange.request_body.chunks(1).for_each(|byte| bytes.request_chunk(byte));
        assert_eq!(bytes.model(), whole.model(), "{}", exchange.name);
        assert_eq!(bytes.take_text(), whole.take_text(), "{}", exchange.name);
    }
}

#[test]
fn other_line_ends_and_a_missing_blank_line_say_the_same() {
    for (exchange, answer) in answers().filter(|(_, answer)| answer.is_event_stream()) {
        let (body, expected) = (String::from_utf8(answer.body()).unwrap(), said(&exchange));
        for end in ["\r\n", "\r"] {
            let other = body.replace('\n', end);
            let variant = with_answer(&exchange, answer.with_pieces([other.as_bytes()]));
            check_same(&variant, &expected, &format!("{end:?}"));
            let variant = with_answer(&exchange, answer.with_pieces(other.as_bytes().chunks(1)));
            check_same(&variant, &expected, &format!("{end:?} byte by byte"));
        }
        let bare = with_answer(&exchange, answer.with_pieces([body.trim_end().as_bytes()]));
        check_same(&bare, &expected, "without the last blank line");
        let marked = format!("\u{feff}{}", body.replace("data: ", "data:"));
        let variant = with_answer(&exchange, answer.with_pieces(marked.as_bytes().chunks(1)));
        check_same(&variant, &expected, "with a BOM and without spaces");
    }
}

fn packed(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = Compression::fast();
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
    }
}

#[test]
fn a_packed_body_says_the_same() {
    for (exchange, mut answer) in answers() {
        let (body, expected) = (answer.body(), said(&exchange));
        for coding in ["gzip", "deflate", "raw"] {
            let packed = packed(coding, &body);
            let name = if coding == "raw" { "deflate" } else { coding };
            answer.headers.insert("content-encoding", HeaderValue::from_static(name));
            for (what, pieces) in [("whole", packed.len().max(1)), ("byte by byte", 1)] {
                let variant = with_answer(&exchange, answer.with_pieces(packed.chunks(pieces)));
                check_same(&variant, &expected, &format!("{coding} {what}"));
            }
        }
    }
}

/// Where the event ends that says that nothing is missing; found in the text of the body.
fn end_mark(answer: &Answer, body: &str) -> Option<usize> {
    if !answer.is_event_stream() {
        return Some(body.trim_end().len());
    }
    let marks = [
        "\"finish_reason\":\"",
        "data: [DONE]",
        "\"type\":\"message_stop\"",
        "\"type\":\"response.completed\"",
        "\"stop\":true",
    ];
    let mark = marks.iter().filter_map(|mark| body.find(mark)).min()?;
    let line = body.get(mark..)?;
    Some(mark + line.find('\n').unwrap_or(line.len()))
}

#[test]
fn a_body_cut_anywhere_is_truncated_until_its_end_mark() {
    for (exchange, answer) in
        short_answers().filter(|(_, answer)| answer.status == http::StatusCode::OK)
    {
        let body = answer.body();
        let text = std::str::from_utf8(&body).unwrap();
        let looked_into =
            exchange.method == http::Method::POST && route(&exchange.path).0.is_model_work();
        let end = end_mark(&answer, text).filter(|_| looked_into).unwrap_or(usize::MAX);
        for cut in 0..=body.len() {
            let piece = body.get(..cut).unwrap();
            let variant = with_answer(&exchange, answer.with_pieces([piece])).how(BodyEnd::Cut);
            let expected = if cut >= end { "ok" } else { "truncated" };
            let found = variant.observed();
            let outcome = found.get("outcome").and_then(|outcome| outcome.as_str());
            assert_eq!(outcome, Some(expected), "{} cut at {cut}", exchange.name);
            assert_eq!(found.get("parse"), None, "{} cut at {cut}", exchange.name);
        }
    }
}

#[test]
fn a_client_that_leaves_has_no_outcome_and_loses_nothing_that_came() {
    for (exchange, answer) in answers().filter(|(_, answer)| answer.is_event_stream()) {
        for seen in 0..=answer.reads.len() {
            let reads = answer.reads.get(..seen).unwrap().to_vec();
            let last = reads.last().map_or(answer.head_at, |(at, _)| *at);
            let bytes_out: usize = reads.iter().map(|(_, bytes)| bytes.len()).sum();
            let mut variant = with_answer(&exchange, Answer { reads, ..answer.clone() });
            variant.end = last;
            let found = variant.how(BodyEnd::Abandoned).observed();
            assert_eq!(found.get("outcome"), None, "{}", exchange.name);
            assert_eq!(found.get("parse"), None, "{}", exchange.name);
            assert_eq!(found.get("bytes_out"), Some(&bytes_out.into()), "{}", exchange.name);
        }
    }
}
