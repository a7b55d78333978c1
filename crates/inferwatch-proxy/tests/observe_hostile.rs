//! Bodies made to hurt: whatever comes, the observer does not panic, does not invent numbers, and
//! does not let text through at length.

mod observe_support;

use inferwatch_proxy::observe::BodyEnd;
use observe_support::{EVENTS, Exchange, JSON, check};
use serde_json::{Value, json};

fn answer(body: &str) -> Exchange {
    Exchange::post("/v1/chat/completions", "{}", JSON, body)
}

/// An answer whose body is no text.
fn bytes(content_type: &str, body: &[u8]) -> Exchange {
    let mut exchange = Exchange::post("/v1/chat/completions", "{}", content_type, "");
    if let Some(answer) = &mut exchange.answer {
        answer.reads = vec![(answer.head_at, body.to_vec())];
    }
    exchange
}

#[test]
fn numbers_that_are_no_counts_are_not_believed() {
    let tokens = |number: &str, expected: Option<u64>| {
        let body = format!(r#"{{"usage":{{"prompt_tokens":{number},"completion_tokens":3}}}}"#);
        check(&answer(&body), json!({"prompt_tokens": expected, "completion_tokens": 3}));
    };
    tokens("12", Some(12));
    tokens("12.0", Some(12));
    tokens("1.2e1", Some(12));
    tokens("-5", None);
    tokens("1e999", None);
    tokens("0.5", None);
    tokens("99999999999999999999", None);
    tokens(&"9".repeat(100_000), None);
    tokens("\"12\"", None);
    tokens("true", None);
    tokens("null", None);
    tokens("[12]", None);
    tokens("{\"prompt_tokens\":12}", None);
}

#[test]
fn times_that_cannot_be_are_not_believed() {
    let timed = |number: &str| {
        let body = format!(r#"{{"timings":{{"prompt_ms":{number},"predicted_ms":{number}}}}}"#);
        let expected = json!({"prefill_ms": null, "queue_ms": null, "decode_tokens_per_s": null});
        check(&answer(&body), expected);
    };
    timed("-1");
    timed("1e999");
    timed("\"1\"");
    timed("0");
}

#[test]
fn what_is_no_json_gives_up() {
    let broken = [
        "{]",
        "[}",
        "{\"a\" 1}",
        "{\"a\":}",
        "{,}",
        "{\"model\":\"\\x\"}",
        "{\"model\":\"\\u12g4\"}",
        "{\"usage\":{\"prompt_tokens\":1-2}}",
        "{\"choices\":tru}",
        "{}{}",
        "{} x",
        "\u{feff}{}",
        "\0",
    ];
    for body in broken {
        check(&answer(body), json!({"parse": "gave_up", "prompt_tokens": null}));
    }
}

#[test]
fn what_ends_early_is_cut_and_not_broken() {
    for body in [
        "{",
        "{\"model\":\"a",
        "{\"model\":\"\\",
        "{\"model\":\"\\u00",
        "[1,2",
        "tru",
        "{\"x\":[[[",
    ] {
        let cut = answer(body).how(BodyEnd::Cut);
        check(&cut, json!({"parse": null, "outcome": "truncated", "model": null}));
    }
}

#[test]
fn nesting_is_survived_at_any_depth() {
    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(200_000), close.repeat(200_000));
        let usage = r#""usage":{"prompt_tokens":7}"#;
        for key in ["choices", "skipped", "message"] {
            let body = format!("{{\"{key}\":{open}1{close},{usage}}}");
            check(&answer(&body), json!({"prompt_tokens": 7, "parse": null, "outcome": "ok"}));
        }
    };
    deep("[", "]");
    deep("{\"choices\":", "}");
    deep("[{\"delta\":", "}]");
}

#[test]
fn long_keys_and_strings_pass() {
    let long = "k".repeat(10 << 20);
    let body = format!(r#"{{"{long}":1,"model":"{long}","usage":{{"prompt_tokens":7}}}}"#);
    check(&answer(&body), json!({"prompt_tokens": 7, "model": "k".repeat(256)}));
    let key = format!(r#"{{"usage{}":{{"prompt_tokens":7}}}}"#, "\\u0000".repeat(1000));
    check(&answer(&key), json!({"prompt_tokens": null, "parse": null}));
    let escaped = r#"{"\u0075sage":{"prompt\u005ftokens":7}}"#;
    check(&answer(escaped), json!({"prompt_tokens": 7}));
}

#[test]
fn strings_that_are_no_text_stay_harmless() {
    let model = |bytes_in_string: &[u8], expected: Option<&str>| {
        let body = [b"{\"model\":\"", bytes_in_string, b"\"}"].concat();
        check(&bytes(JSON, &body), json!({"model": expected, "parse": null}));
    };
    model(b"a\xffb", Some("a\u{fffd}b"));
    let long = [b"\xff".as_slice(), "y".repeat(300).as_bytes()].concat();
    model(&long, Some(&format!("\u{fffd}{}", "y".repeat(255))));
    model(b"a\0b\nc", Some("a\0b\nc"));
    model(b"\\ud83d\\ude00", Some("\u{1f600}"));
    model(b"\\ud83d", Some("\u{fffd}"));
    model(b"\\ude00x", Some("\u{fffd}x"));
    model(b"\\ud83d\\ud83d\\ude00", Some("\u{fffd}\u{1f600}"));
    model(b"", None);
    model("ä".repeat(200).as_bytes(), Some(&"ä".repeat(128)));
    model("€".repeat(200).as_bytes(), Some(&"€".repeat(85)));
}

#[test]
fn the_last_of_two_equal_keys_counts() {
    let body =
        r#"{"model":"a","usage":{"prompt_tokens":1},"model":"b","usage":{"prompt_tokens":2}}"#;
    check(&answer(body), json!({"model": "b", "prompt_tokens": 2}));
}

#[test]
fn an_echoed_prompt_does_not_get_into_the_log_at_length() {
    let prompt = "my secret prompt ".repeat(100);
    let body = format!(r#"{{"error":{{"type":"bad","message":"cannot read: {prompt}"}}}}"#);
    let found = answer(&body).status(400).observed();
    let error = found.get("error").and_then(Value::as_str).unwrap();
    assert!(error.len() <= 200, "{error}");
    let body = format!(r#"{{"error":{{"message":"parse error; last read: '{prompt}'"}}}}"#);
    check(&answer(&body).status(400), json!({"error": "parse error;"}));
}

#[test]
fn event_streams_of_garbage_do_no_harm() {
    let streams: [&[u8]; 9] = [
        b"\xef\xbb",
        b"\xef\xbb\xbf\xef\xbb\xbfdata: {}\n\n",
        b"data",
        b"data: [DONE",
        b":\r\r\r\n\n\r",
        b"data: [DON\n\n",
        b"error:\n\nerror: \n\n",
        b"event: error\ndata:\n\n",
        b"{\n{\n{\n",
    ];
    for stream in streams {
        for how in [BodyEnd::Complete, BodyEnd::Cut, BodyEnd::Abandoned] {
            let found = bytes(EVENTS, stream).how(how).observed();
            assert_eq!(found.get("prompt_tokens"), None);
            let claims_ok = found.get("outcome") == Some(&json!("ok"));
            assert!(!claims_ok || how == BodyEnd::Complete);
        }
    }
}

#[test]
fn hostile_requests_are_survived() {
    let batch = |request: &str, expected: Value| {
        let exchange = Exchange::post("/v1/embeddings", request, JSON, "{}");
        check(&exchange, expected);
    };
    batch(r#"{"input":[]}"#, json!({"batch": 0, "est_prompt_tokens": null}));
    batch(r#"{"input":[1,2,3]}"#, json!({"batch": 1}));
    batch(r#"{"input":[[1,2],[3]]}"#, json!({"batch": 2}));
    batch(r#"{"input":null}"#, json!({"batch": null}));
    batch(r#"{"input":{"x":1}}"#, json!({"batch": null}));
    batch("", json!({"batch": null, "requested_model": null}));
    batch(&format!(r#"{{"input":[{}1]}}"#, "1,".repeat(1_000_000)), json!({"batch": 1}));
    let deep = format!(r#"{{"input":{}"x"{}}}"#, "[".repeat(1000), "]".repeat(1000));
    batch(&deep, json!({"batch": 1, "parse": null}));
    let n = r#"{"n":1e300,"input":"abcd"}"#;
    batch(n, json!({"batch": 1, "est_prompt_tokens": 1}));
}

#[test]
fn a_packed_bomb_is_given_up_and_the_numbers_before_it_stay() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(br#"{"usage":{"prompt_tokens":7},"data":""#).unwrap();
    let piece = vec![b' '; 1 << 20];
    (0..70).for_each(|_| encoder.write_all(&piece).unwrap());
    let packed = encoder.finish().unwrap();
    let bomb = bytes(JSON, &packed).header("content-encoding", "gzip");
    check(&bomb, json!({"parse": "encoded", "prompt_tokens": 7, "outcome": "ok"}));
}
