//! The odd shapes of answers that have bitten other observers, built by hand.

mod observe_support;

use inferwatch_proxy::observe::BodyEnd;
use observe_support::{EVENTS, Exchange, JSON, LINES, check, events, timed};
use serde_json::json;

fn chat(content_type: &str, answer: &str) -> Exchange {
    let request = r#"{"model":"m","messages":[{"role":"user","content":"12345678"}]}"#;
    Exchange::post("/v1/chat/completions", request, content_type, answer)
}

const TEXT: &str = r#"{"choices":[{"index":0,"finish_reason":null,"delta":{"content":"a"}}]}"#;
const FINISH: &str = r#"{"choices":[{"index":0,"finish_reason":"stop","delta":{}}]}"#;

#[test]
fn a_stream_is_whole_when_its_end_mark_came() {
    let ended = |data: &[&str]| chat(EVENTS, &events(data));
    check(&ended(&[TEXT, FINISH, "[DONE]"]), json!({"outcome": "ok", "finish": "stop"}));
    check(&ended(&[TEXT, FINISH]), json!({"outcome": "ok"}));
    check(&ended(&[TEXT, "[DONE]"]), json!({"outcome": "ok", "finish": null}));
    check(&ended(&[TEXT]), json!({"outcome": "truncated"}));
    check(&ended(&[]), json!({"outcome": "truncated"}));
    check(&ended(&[TEXT, FINISH]).how(BodyEnd::Cut), json!({"outcome": "ok"}));
    check(&ended(&[TEXT]).how(BodyEnd::Cut), json!({"outcome": "truncated"}));
    check(&ended(&[TEXT]).how(BodyEnd::Abandoned), json!({"outcome": null}));
}

#[test]
fn two_choices_need_two_ends() {
    let request = r#"{"n":2,"messages":[]}"#;
    let two = |answer: &str| Exchange::post("/v1/chat/completions", request, EVENTS, answer);
    let cut = two(&events(&[TEXT, FINISH])).how(BodyEnd::Cut);
    check(&cut, json!({"outcome": "truncated"}));
    let whole = two(&events(&[TEXT, FINISH, FINISH])).how(BodyEnd::Cut);
    check(&whole, json!({"outcome": "ok", "completion_tokens_partial": null}));
}

#[test]
fn errors_under_a_good_status_are_seen() {
    let said = json!({"outcome": "error_in_stream", "error": "server_error: boom"});
    let error = r#"{"error":{"code":500,"message":"boom","type":"server_error"}}"#;
    check(&chat(EVENTS, &events(&[TEXT, error])), said.clone());
    let old = r#"{"code":500,"message":"boom","type":"server_error"}"#;
    let line = format!("data: {TEXT}\n\nerror: {old}\n\n");
    check(&chat(EVENTS, &line), said.clone());
    check(&chat(EVENTS, &format!("data: {TEXT}\n\n{error}\n")), said.clone());
    check(&chat(EVENTS, error), said.clone());
    check(&chat(JSON, error), said);
    let vllm = r#"{"object":"error","message":"boom","type":"BadRequestError","code":400}"#;
    check(&chat(EVENTS, &events(&[vllm])), json!({"error": "BadRequestError: boom"}));
    let nothing = chat(JSON, r#"{"error":null,"choices":[]}"#);
    check(&nothing, json!({"outcome": "ok", "error": null}));
}

#[test]
fn errors_of_every_dialect_are_put_into_words() {
    let words = |body: &str, status, outcome: &str, words: Option<&str>| {
        let exchange = chat(JSON, body).status(status);
        check(&exchange, json!({"outcome": outcome, "error": words, "generate_ms": null}));
    };
    words(r#"{"error":"no such model"}"#, 404, "rejected", Some("no such model"));
    words(
        r#"{"error":"full","error_type":"Overloaded"}"#,
        429,
        "rejected",
        Some("Overloaded: full"),
    );
    words(r#"{"message":"bad","code":"424","type":"Backend"}"#, 424, "rejected", Some("424: bad"));
    words(r#"{"detail":"Not found"}"#, 404, "rejected", Some("Not found"));
    words(r#"{"detail":[{"loc":["x"],"msg":"missing"}]}"#, 422, "rejected", Some("missing"));
    let anthropic = r#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#;
    words(anthropic, 529, "upstream_error", Some("overloaded_error: later"));
    words("", 502, "upstream_error", None);
    words("<html>", 502, "upstream_error", None);
    let cut = r#"{"error":{"type":"t","message":"m"},"more":"#;
    words(cut, 500, "upstream_error", Some("t: m"));
}

#[test]
fn the_last_usage_that_says_something_counts() {
    let with = |usage: &str| format!(r#"{{"choices":null,"usage":{usage}}}"#);
    let one = with(r#"{"prompt_tokens":5,"completion_tokens":1}"#);
    let two = with(r#"{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":null}"#);
    let null = with("null");
    let body = events(&[&one, TEXT, &two, FINISH, &null, "[DONE]"]);
    let expected = json!({
        "prompt_tokens": 5, "completion_tokens": 2, "cache_hit": null, "tokens_src": "usage",
        "outcome": "ok",
    });
    check(&chat(EVENTS, &body), expected);
    let zeros = with(r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#);
    let ollama = events(&[&zeros, TEXT, &two, FINISH]);
    check(&chat(EVENTS, &ollama), json!({"prompt_tokens": 5, "completion_tokens": 2}));
    let nothing = json!({
        "prompt_tokens": null, "completion_tokens": null, "est_prompt_tokens": 2,
        "tokens_src": "bytes/4",
    });
    check(&chat(EVENTS, &events(&[&zeros, TEXT, FINISH])), nothing);
}

#[test]
fn the_first_token_is_not_the_first_event() {
    let role = r#"{"choices":[{"delta":{"role":"assistant","content":""}}],"prompt_progress":{"total":9}}"#;
    let head = events(&[role]);
    let first = |delta: &str| {
        let event = events(&[&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#)]);
        check(&timed(chat(EVENTS, ""), &[&head, ": ping\n\n", &event]), json!({"ttft_ms": 30}));
    };
    first(r#"{"content":"a"}"#);
    first(r#"{"content":"\u0041"}"#);
    first(r#"{"reasoning_content":"a"}"#);
    first(r#"{"reasoning":"a"}"#);
    first(r#"{"tool_calls":[{"index":0,"function":{"arguments":""}}]}"#);
    let none = |delta: &str| {
        let event = events(&[&format!(r#"{{"choices":[{{"delta":{delta}}}]}}"#)]);
        check(&timed(chat(EVENTS, ""), &[&head, &event]), json!({"ttft_ms": null}));
    };
    none(r#"{"content":null}"#);
    none(r#"{"content":""}"#);
    none(r#"{"tool_calls":[]}"#);
    none("{}");
}

#[test]
fn decode_rate_needs_reads_that_tell_tokens_apart() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#;
    let text = events(&[TEXT]);
    let end = events(&[usage, "[DONE]"]);
    // 10, 20, 30 ms: two tokens after the first in 20 ms.
    let spaced = timed(chat(EVENTS, ""), &[&text, &text, &text, &end]);
    check(&spaced, json!({"decode_tokens_per_s": 100, "coalesced": null, "ttft_ms": 10}));
    let burst = timed(chat(EVENTS, ""), &[&text.repeat(3), &end]);
    check(&burst, json!({"decode_tokens_per_s": null, "coalesced": true}));
    // The end-of-sequence token is counted, never shown, and comes with the finish reason.
    let finish = events(&[FINISH]);
    let stopped = timed(chat(EVENTS, ""), &[&text, &text, &finish, &end]);
    check(&stopped, json!({"decode_tokens_per_s": 100}));
    let single = usage.replace("\"completion_tokens\":3", "\"completion_tokens\":1");
    let single = timed(chat(EVENTS, ""), &[&text, &events(&[&single])]);
    check(&single, json!({"decode_tokens_per_s": null, "completion_tokens": 1}));
}

#[test]
fn queue_and_prefill_come_from_the_head_of_a_llama_cpp_stream() {
    let mut waited = timed(chat(EVENTS, ""), &["", ": \n\n", &events(&[TEXT])]);
    waited = waited.header("server", "llama.cpp").how(BodyEnd::Abandoned);
    let expected = json!({"queue_ms": 10, "prefill_ms": 20, "ttft_ms": 30, "generate_ms": 90});
    check(&waited, expected);
    let elsewhere = timed(chat(EVENTS, ""), &["", "", &events(&[TEXT])]);
    check(&elsewhere, json!({"queue_ms": null, "prefill_ms": null, "generate_ms": 100}));
}

#[test]
fn stages_of_ones_own_service_come_from_server_timing() {
    let own = |status| {
        Exchange::post("/ask", r#"{"q":"x"}"#, JSON, r#"{"answer":"y"}"#)
            .status(status)
            .header("server-timing", "encode;dur=12.3, retrieve;dur=4.5")
            .header("server-timing", "rerank;dur=30")
    };
    let expected = json!({
        "outcome": "ok", "encode_ms": 12.3, "retrieve_ms": 4.5, "rerank_ms": 30,
        "generate_ms": null, "est_prompt_tokens": null, "tokens_src": "none",
    });
    check(&own(200), expected);
    check(&own(500), json!({"outcome": "upstream_error", "encode_ms": null}));
    let embed = Exchange::post("/v1/embeddings", r#"{"input":"x"}"#, JSON, "{}");
    check(&embed.header("server-timing", "encode;dur=1"), json!({"encode_ms": 1}));
}

#[test]
fn answers_without_a_body_are_whole() {
    let empty = |method: http::Method, status| {
        let mut exchange = chat(JSON, "").status(status);
        exchange.method = method;
        exchange
    };
    check(&empty(http::Method::HEAD, 200), json!({"outcome": "ok", "generate_ms": null}));
    check(&empty(http::Method::OPTIONS, 200), json!({"outcome": "ok", "tokens_src": "none"}));
    check(&empty(http::Method::POST, 204), json!({"outcome": "ok"}));
    check(&empty(http::Method::GET, 304), json!({"outcome": "ok"}));
    check(&empty(http::Method::POST, 307), json!({"outcome": "ok"}));
}

#[test]
fn what_cannot_be_read_is_said_and_the_framing_decides() {
    let broken = |body: &str, content_type: &str| chat(content_type, body);
    let blind = json!({"parse": "gave_up", "outcome": "ok", "tokens_src": "bytes/4"});
    check(&broken("not json", JSON), blind.clone());
    check(&broken("data: {\"choices\":]}\n\n", EVENTS), blind.clone());
    check(&broken("data: {\"choices\":[\n\n", EVENTS), blind.clone());
    check(&broken("{\"a\":\n{}\n", LINES), blind);
    check(&broken("not json", JSON).how(BodyEnd::Cut), json!({"outcome": "truncated"}));
    let packed = chat(JSON, "\x28 zstd").header("content-encoding", "zstd");
    check(&packed, json!({"parse": "encoded", "outcome": "ok", "prompt_tokens": null}));
    let lie = chat(JSON, "{}").header("content-encoding", "gzip");
    check(&lie, json!({"parse": "gave_up", "outcome": "ok"}));
    let plain = chat("text/plain", "hello");
    check(&plain, json!({"parse": null, "outcome": "ok", "stream": false}));
}

#[test]
fn one_big_event_costs_nothing() {
    let filler = "x".repeat(1 << 20);
    let big = format!(
        r#"{{"content":"","stop":true,"stop_type":"eos","prompt":"{filler}","tokens_evaluated":9,"tokens_predicted":2}}"#
    );
    let exchange = Exchange::post("/completion", "{}", EVENTS, &events(&[&big]));
    check(&exchange, json!({"outcome": "ok", "prompt_tokens": 9, "finish": "stop"}));
}

#[test]
fn usage_is_found_before_and_after_the_data() {
    let vector = vec!["-0.012345"; 3000].join(",");
    let data = format!(r#""data":[{{"embedding":[{vector}]}},{{"embedding":"bm90IHVzYWdl"}}]"#);
    let usage = r#""usage":{"prompt_tokens":8,"total_tokens":8}"#;
    for body in [format!("{{{usage},{data}}}"), format!("{{{data},{usage}}}")] {
        let exchange = Exchange::post("/v1/embeddings", r#"{"input":"a"}"#, JSON, &body);
        check(&exchange, json!({"prompt_tokens": 8, "completion_tokens": null, "outcome": "ok"}));
    }
}

#[test]
fn text_is_kept_for_a_tokenizer_only_when_nobody_counted() {
    let text = |request: &str, answer: &str| {
        Exchange::post("/v1/embeddings", request, JSON, answer).observer(true).take_text()
    };
    assert_eq!(text(r#"{"input":["a","\u00fc"]}"#, "{}").as_deref(), Some("a\nü"));
    assert_eq!(text(r#"{"input":"a"}"#, r#"{"usage":{"prompt_tokens":3}}"#), None);
    assert_eq!(text(&format!(r#"{{"input":"{}"}}"#, "x".repeat(41 << 10)), "{}"), None);
    assert_eq!(text(r#"{"input":[[1,2]]}"#, "{}").as_deref(), None);
    assert_eq!(text(r#"{"input":"a"#, "{}"), None);
    let silent = Exchange::post("/v1/embeddings", r#"{"input":"a"}"#, JSON, "{}");
    assert_eq!(silent.observer(false).take_text(), None);
}
