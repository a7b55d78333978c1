//! OpenAI chat and text completions, as OpenAI, vLLM, llama-server and Ollama say them.

use super::{Context, Dialect, Voice, data, llama_cpp, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/v1/chat/completions`.
pub(super) struct Chat;
/// `/v1/completions`.
pub(super) struct Completion;

pub(super) fn finish(context: &Context) -> &'static str {
    if context.is_limited() { "length" } else { "stop" }
}

fn usage(timings: &Timings) -> String {
    let (prompt, completion) = (timings.prompt_tokens, timings.completion_tokens);
    let total = prompt + completion;
    format!(
        r#"{{"completion_tokens":{completion},"prompt_tokens":{prompt},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":0}}}}"#
    )
}

// Only llama-server adds its timings, on the last event.
fn timings_field(context: &Context, timings: &Timings) -> String {
    if context.dialect != Dialect::LlamaCpp {
        return String::new();
    }
    format!(r#","timings":{}"#, llama_cpp::timings(timings))
}

fn tail(context: &Context, object: &str) -> String {
    let model = text::json(&context.model);
    format!(r#""created":1767225600,"id":"chatcmpl-lab","model":{model},"object":"{object}""#)
}

fn chunk(context: &Context, finish: &str, delta: &str, more: &str) -> String {
    let tail = tail(context, "chat.completion.chunk");
    data(format_args!(
        r#"{{"choices":[{{"finish_reason":{finish},"index":0,"delta":{delta}}}],{tail}{more}}}"#
    ))
}

// Asked for usage, OpenAI puts a null on every event but the last.
fn null_usage(context: &Context) -> &'static str {
    let has = context.dialect == Dialect::OpenAi && context.ask.include_usage;
    if has { r#","usage":null"# } else { "" }
}

impl Voice for Chat {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Sse)
    }

    fn opening(&self, context: &Context) -> Vec<String> {
        let delta = r#"{"role":"assistant","content":null}"#;
        vec![chunk(context, "null", delta, null_usage(context))]
    }

    fn token(&self, context: &Context, index: u64) -> String {
        let delta = format!(r#"{{"content":{}}}"#, text::json(text::token(index)));
        chunk(context, "null", &delta, null_usage(context))
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        let finish = format!("\"{}\"", finish(context));
        let timed = timings_field(context, timings);
        let done = data("[DONE]");
        if !context.ask.include_usage {
            return vec![chunk(context, &finish, "{}", &timed), done];
        }
        let (usage, tail) = (usage(timings), tail(context, "chat.completion.chunk"));
        let last = data(format_args!(r#"{{"choices":[],{tail},"usage":{usage}{timed}}}"#));
        vec![chunk(context, &finish, "{}", null_usage(context)), last, done]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let content = text::json(&context.text(timings.completion_tokens));
        let (finish, tail) = (finish(context), tail(context, "chat.completion"));
        let (usage, timed) = (usage(timings), timings_field(context, timings));
        format!(
            r#"{{"choices":[{{"finish_reason":"{finish}","index":0,"message":{{"role":"assistant","content":{content}}}}}],{tail},"usage":{usage}{timed}}}"#
        )
    }
}

fn completion(context: &Context, finish: &str, words: &str, more: &str) -> String {
    let (words, tail) = (text::json(words), tail(context, "text_completion"));
    format!(
        r#"{{"choices":[{{"text":{words},"index":0,"logprobs":null,"finish_reason":{finish}}}],{tail}{more}}}"#
    )
}

// llama-server always says the usage of a text completion; the others only when asked.
fn completion_usage(context: &Context, timings: &Timings) -> String {
    let has = context.dialect == Dialect::LlamaCpp || context.ask.include_usage;
    if !has {
        return String::new();
    }
    format!(r#","usage":{}{}"#, usage(timings), timings_field(context, timings))
}

impl Voice for Completion {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Sse)
    }

    fn token(&self, context: &Context, index: u64) -> String {
        data(completion(context, "null", text::token(index), ""))
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        let finish = format!("\"{}\"", finish(context));
        let last = completion(context, &finish, "", &completion_usage(context, timings));
        vec![data(last), data("[DONE]")]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let finish = format!("\"{}\"", finish(context));
        let usage = format!(r#","usage":{}{}"#, usage(timings), timings_field(context, timings));
        completion(context, &finish, &context.text(timings.completion_tokens), &usage)
    }
}
