//! Hand-built answers of the servers that the recordings do not cover.

mod observe_support;

use std::time::Duration;

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
fn ollama_chats_in_lines() {
    let line = |text: &str| {
        format!(
            r#"{{"model":"q","message":{{"role":"assistant","content":"{text}"}},"done":false}}"#
        ) + "\n"
    };
    let last = r#"{"model":"q","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":60000000,"load_duration":4000000,"prompt_eval_count":26,"prompt_eval_cached_count":16,"prompt_eval_duration":6000000,"eval_count":3,"eval_duration":20000000}"#;
    let body = line("") + &line("Hel") + &line("lo") + last + "\n";
    let request = r#"{"model":"q:1b","messages":[{"role":"user","content":"hi"}]}"#;
    let whole = Exchange::post("/api/chat", request, LINES, &body);
    let expected = json!({
        "outcome": "ok", "finish": "stop", "stream": true, "model": "q", "requested_model": "q:1b",
        "prompt_tokens": 26, "completion_tokens": 3, "cached_tokens": 16, "cache_hit": true,
        "tokens_src": "timings", "load_ms": 4, "prefill_ms": 6, "generate_ms": 26,
        "queue_ms": 70, "coalesced": true, "decode_tokens_per_s": 100,
    });
    check(&whole, expected);
    // First token at 20 ms: 4 ms of load and 6 ms of prompt leave 10 ms of queue.
    let spaced = [String::new(), line("Hel"), line("lo"), format!("{last}\n")];
    let pieces = spaced.each_ref().map(String::as_str);
    let spaced = timed(Exchange::post("/api/chat", request, LINES, ""), &pieces);
    check(&spaced, json!({"ttft_ms": 20, "queue_ms": 10, "load_ms": 4}));
    let cut = Exchange::post("/api/chat", request, LINES, &(line("Hel") + &line("lo")));
    let unfinished =
        json!({"outcome": "truncated", "prompt_tokens": null, "completion_tokens": null});
    check(&cut, unfinished);
    let failed = line("Hel") + "{\"error\":\"runner died\"}\n";
    let failed = Exchange::post("/api/chat", request, LINES, &failed);
    check(&failed, json!({"outcome": "error_in_stream", "error": "runner died"}));
    let without_newline = Exchange::post("/api/chat", request, LINES, body.trim_end());
    check(&without_newline, json!({"outcome": "ok", "completion_tokens": 3}));
}

#[test]
fn ollama_generates_thinks_loads_and_unloads() {
    let post = |kind: &str, body: &str| {
        Exchange::post("/api/generate", r#"{"model":"q","prompt":"abcd"}"#, kind, body)
    };
    let thinking = "{\"model\":\"q\",\"response\":\"\",\"thinking\":\"hm\",\"done\":false}\n";
    let text = "{\"model\":\"q\",\"response\":\"a\",\"done\":false}\n";
    let last = "{\"model\":\"q\",\"response\":\"\",\"done\":true,\"done_reason\":\"length\",\"context\":[1,2,3],\"prompt_eval_count\":2,\"eval_count\":2}\n";
    let stream = timed(post(LINES, ""), &["", thinking, text, last]);
    let expected = json!({
        "ttft_ms": 20, "finish": "length", "prompt_tokens": 2, "completion_tokens": 2,
        "outcome": "ok", "queue_ms": null, "cache_hit": null, "decode_tokens_per_s": 100,
    });
    check(&stream, expected);
    let load = r#"{"model":"q","response":"","done":true,"done_reason":"load"}"#;
    let request = r#"{"model":"q","keep_alive":0}"#;
    let nothing = json!({
        "outcome": "ok", "finish": "load", "prompt_tokens": null, "completion_tokens": null,
        "tokens_src": "none", "est_prompt_tokens": null, "stream": false,
    });
    check(&Exchange::post("/api/generate", request, JSON, load), nothing);
    check(&post(JSON, &load.replace("\"load\"", "\"unload\"")), json!({"finish": "unload"}));
}

#[test]
fn ollama_embeds() {
    let request = r#"{"model":"e","input":["a","b"]}"#;
    let body = r#"{"model":"e","embeddings":[[0.1,-0.2],[1e-3,0]],"total_duration":14000000,"load_duration":2000000,"prompt_eval_count":8}"#;
    let expected = json!({
        "outcome": "ok", "prompt_tokens": 8, "completion_tokens": null, "batch": 2,
        "tokens_src": "timings", "load_ms": 2, "encode_ms": 12, "queue_ms": null,
    });
    check(&Exchange::post("/api/embed", request, JSON, body), expected);
    let legacy = Exchange::post(
        "/api/embeddings",
        r#"{"model":"e","prompt":"12345678"}"#,
        JSON,
        r#"{"embedding":[0.1,0.2]}"#,
    );
    let expected = json!({
        "outcome": "ok", "prompt_tokens": null, "est_prompt_tokens": 2, "tokens_src": "bytes/4",
        "batch": 1, "model": "e", "encode_ms": 100,
    });
    check(&legacy, expected);
}

#[test]
fn a_pull_is_long_and_may_fail_in_the_middle() {
    let pull = |body: &str| Exchange::post("/api/pull", r#"{"name":"q"}"#, LINES, body);
    let going = "{\"status\":\"pulling\",\"total\":9,\"completed\":3}\n";
    let done = json!({
        "outcome": "ok", "model": "q", "tokens_src": "none", "est_prompt_tokens": null,
        "generate_ms": null, "queue_ms": null,
    });
    check(&pull(&format!("{going}{{\"status\":\"success\"}}\n")), done);
    let failed = pull(&format!("{going}{{\"error\":\"no space\"}}\n"));
    check(&failed, json!({"outcome": "error_in_stream", "error": "no space"}));
    check(&pull(going).how(BodyEnd::Cut), json!({"outcome": "truncated"}));
}

#[test]
fn tei_counts_in_headers() {
    let request = r#"{"inputs":["12345678","x"]}"#;
    let tei = |path: &str, body: &str| {
        Exchange::post(path, request, JSON, body)
            .header("x-compute-tokens", "74")
            .header("x-tokenization-time", "0")
            .header("x-queue-time", "0")
            .header("x-inference-time", "39")
    };
    let expected = json!({
        "outcome": "ok", "prompt_tokens": 74, "completion_tokens": null, "tokens_src": "header",
        "batch": 2, "encode_ms": 39, "queue_ms": 0, "est_prompt_tokens": null,
    });
    check(&tei("/embed", "[[0.1,0.2],[0.3,0.4]]"), expected);
    let usage = r#"{"object":"list","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
    check(&tei("/v1/embeddings", usage), json!({"prompt_tokens": 7, "tokens_src": "usage"}));
    // A flat list of two strings is one pair for the classifier.
    let scores = r#"[{"score":0.9,"label":"x"}]"#;
    check(&tei("/predict", scores), json!({"batch": 1, "encode_ms": 39, "outcome": "ok"}));
    let similar = r#"{"inputs":{"source_sentence":"abcd","sentences":["a","b","c"]}}"#;
    let similar = Exchange::post("/similarity", similar, JSON, "[0.1,0.2,0.3]");
    check(&similar, json!({"batch": 3, "est_prompt_tokens": 1, "outcome": "ok"}));
}

#[test]
fn vllm_says_its_queue() {
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3},"metrics":{"time_to_first_token_ms":8,"queue_time_ms":7.5,"mean_itl_ms":null}}"#;
    let body = events(&[TEXT, FINISH, usage, "[DONE]"]);
    let expected = json!({"queue_ms": 7.5, "generate_ms": 92.5, "completion_tokens": 3});
    check(&chat(EVENTS, &body), expected);
    let classify = r#"{"id":"c","data":[{"label":"x","probs":[0.1]}],"usage":{"prompt_tokens":6,"total_tokens":6,"completion_tokens":0}}"#;
    let classify = Exchange::post("/classify", r#"{"input":["a","b"]}"#, JSON, classify);
    check(&classify, json!({"prompt_tokens": 6, "completion_tokens": null, "batch": 2}));
}

#[test]
fn infinity_counts_characters_unless_told_otherwise() {
    let answer = |tokens: u32| {
        format!(
            r#"{{"object":"list","data":[],"model":"m","usage":{{"prompt_tokens":{tokens},"total_tokens":{tokens}}},"id":"infinity-0a","created":1}}"#
        )
    };
    let request = r#"{"input":["ünf","acht"]}"#;
    let post = |tokens| Exchange::post("/embeddings", request, JSON, &answer(tokens));
    let chars = json!({"prompt_tokens": null, "est_prompt_tokens": 2, "tokens_src": "bytes/4"});
    check(&post(7), chars);
    check(&post(4), json!({"prompt_tokens": 4, "tokens_src": "usage"}));
    let rerank = r#"{"query":"qqq","documents":["dd","d"]}"#;
    for tokens in [6, 9] {
        let exchange = Exchange::post("/rerank", rerank, JSON, &answer(tokens));
        check(&exchange, json!({"prompt_tokens": null, "est_prompt_tokens": 1, "batch": 2}));
    }
    let elsewhere = answer(7).replace("infinity-", "embd-");
    let elsewhere = Exchange::post("/embeddings", request, JSON, &elsewhere);
    check(&elsewhere, json!({"prompt_tokens": 7}));
}

#[test]
fn tgi_counts_in_details_and_headers() {
    let request = r#"{"inputs":"abcd","parameters":{"max_new_tokens":3}}"#;
    let token = |text: &str, more: &str| {
        format!("data:{{\"index\":1,\"token\":{{\"id\":5,\"text\":\"{text}\"}},{more}}}\n\n")
    };
    let body = token("a", r#""generated_text":null,"details":null"#)
        + &token(
            "b",
            r#""generated_text":"ab","details":{"finish_reason":"eos_token","generated_tokens":2,"input_length":9}"#,
        );
    let stream = Exchange::post("/generate_stream", request, EVENTS, &body);
    let expected = json!({
        "outcome": "ok", "finish": "stop", "prompt_tokens": 9, "completion_tokens": 2,
        "ttft_ms": 10,
    });
    check(&stream, expected);
    let plain = Exchange::post("/generate", request, JSON, r#"{"generated_text":"ab"}"#)
        .header("x-prompt-tokens", "9")
        .header("x-generated-tokens", "2")
        .header("x-queue-time", "3")
        .header("x-inference-time", "40");
    let expected = json!({
        "prompt_tokens": 9, "completion_tokens": 2, "tokens_src": "header", "queue_ms": 3,
        "generate_ms": 40, "stream": false,
    });
    check(&plain, expected);
}

#[test]
fn rerankers_count_in_their_own_places() {
    let request = r#"{"query":"q","documents":[{"text":"abc"},{"text":"d"},"e"]}"#;
    let rerank = |body: &str| Exchange::post("/v2/rerank", request, JSON, body);
    let cohere = r#"{"results":[],"meta":{"billed_units":{"search_units":1},"tokens":{"input_tokens":12,"output_tokens":0}}}"#;
    check(&rerank(cohere), json!({"prompt_tokens": 12, "completion_tokens": null, "batch": 3}));
    let jina = r#"{"results":[],"usage":{"total_tokens":15}}"#;
    check(&rerank(jina), json!({"prompt_tokens": 15, "tokens_src": "usage", "rerank_ms": 100}));
    let score = r#"{"text_1":"q","text_2":["a","b"]}"#;
    let score = Exchange::post("/score", score, JSON, r#"{"data":[],"usage":{"prompt_tokens":4}}"#);
    check(&score, json!({"prompt_tokens": 4, "batch": 2}));
}

#[test]
fn responses_end_in_three_ways() {
    let created = r#"{"type":"response.created","response":{"status":"in_progress","model":"r"}}"#;
    let delta = r#"{"type":"response.output_text.delta","delta":"a"}"#;
    let end = |kind: &str, more: &str| {
        let last = format!(
            r#"{{"type":"response.{kind}","response":{{"status":"{kind}","error":null,{more}"usage":{{"input_tokens":9,"output_tokens":4,"input_tokens_details":{{"cached_tokens":0}}}}}}}}"#
        );
        let body = events(&[created, delta, &last]);
        Exchange::post("/v1/responses", r#"{"input":"abcd"}"#, EVENTS, &body)
    };
    let usage = json!({
        "outcome": "ok", "finish": "stop", "model": "r", "prompt_tokens": 9,
        "completion_tokens": 4, "cached_tokens": 0, "cache_hit": false, "ttft_ms": 10,
    });
    check(&end("completed", ""), usage);
    let limit = r#""incomplete_details":{"reason":"max_output_tokens"},"#;
    check(&end("incomplete", limit), json!({"outcome": "ok", "finish": "length"}));
    let mut failed = end("failed", "");
    let body = String::from_utf8(failed.answer.as_ref().unwrap().body()).unwrap();
    let body = body.replace(r#""error":null"#, r#""error":{"code":"server_error","message":"m"}"#);
    failed.answer.as_mut().unwrap().reads = vec![(Duration::from_millis(10), body.into_bytes())];
    let expected = json!({"outcome": "error_in_stream", "error": "server_error: m"});
    check(&failed, expected);
    let open = Exchange::post("/v1/responses", "{}", EVENTS, &events(&[created, delta]));
    check(&open, json!({"outcome": "truncated"}));
    let silent = Exchange::post("/v1/responses", "{}", EVENTS, &events(&[created]));
    check(&silent, json!({"outcome": "truncated", "ttft_ms": null}));
}

#[test]
fn anthropic_counts_apart_and_adds_up() {
    let start = r#"{"type":"message_start","message":{"model":"c","usage":{"input_tokens":3,"cache_read_input_tokens":20,"cache_creation_input_tokens":10,"output_tokens":1}}}"#;
    let ping = r#"{"type": "ping"}"#;
    let think =
        r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"h"}}"#;
    let tool =
        r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#;
    let delta = r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}"#;
    let stop = r#"{"type":"message_stop"}"#;
    let message = |data: &[&str]| Exchange::post("/v1/messages", "{}", EVENTS, &events(data));
    let expected = json!({
        "outcome": "ok", "finish": "tool", "prompt_tokens": 33, "completion_tokens": 7,
        "cached_tokens": 20, "cache_hit": true, "model": "c",
    });
    check(&message(&[start, ping, think, tool, delta, stop]), expected);
    check(&message(&[start, think, delta]), json!({"outcome": "truncated", "finish": "tool"}));
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"later"}}"#;
    let expected = json!({"outcome": "error_in_stream", "error": "overloaded_error: later"});
    check(&message(&[start, error]), expected);
    let first = |event: &str| {
        let pieces = [&events(&[start, ping]), &events(&[event])];
        let exchange = timed(message(&[]), &pieces.map(String::as_str));
        check(&exchange, json!({"ttft_ms": 20}));
    };
    first(think);
    first(tool);
}

#[test]
fn several_prompts_add_up() {
    let request = r#"{"prompt":["abcd","efgh"],"n_predict":2}"#;
    let result = r#"{"content":"x","stop":true,"stop_type":"limit","tokens_evaluated":4,"tokens_predicted":2}"#;
    let array = format!("[{result},{result}]");
    let expected = json!({
        "outcome": "ok", "prompt_tokens": 8, "completion_tokens": 4, "finish": "length",
        "batch": null, "tokens_src": "timings",
    });
    check(&Exchange::post("/completion", request, JSON, &array), expected.clone());
    let stream = Exchange::post("/completion", request, EVENTS, &events(&[result, result]));
    check(&stream, expected);
    let half = Exchange::post("/completion", request, EVENTS, &events(&[result]));
    check(&half, json!({"outcome": "truncated"}));
}
