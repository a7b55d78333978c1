//! Embeddings and reranks: OpenAI, llama-server native, Jina and TEI shapes.

use super::{Context, Dialect, Voice, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/v1/embeddings`.
pub(super) struct OpenAi;
/// llama-server's own `/embedding`, without counts.
pub(super) struct LlamaNative;
/// `/rerank` in Jina's shape, or in TEI's when the request came in it.
pub(super) struct Rerank;
/// TEI's `/embed`: the counts are in the head.
pub(super) struct Tei;

pub(super) fn tei_error_type(status: u16) -> &'static str {
    match status {
        429 => "Overloaded",
        424 => "Backend",
        503 => "Unhealthy",
        _ => "Validation",
    }
}

/// A made-up vector; the numbers mean nothing and differ from input to input.
pub(super) fn vector(dimensions: usize, input: usize) -> String {
    let number = |i: usize| format!("0.{:06}", (i * 7919 + input * 104_729) % 1_000_000);
    format!("[{}]", (0..dimensions).map(number).collect::<Vec<_>>().join(","))
}

/// One vector per input, as an array.
pub(super) fn vectors(context: &Context) -> String {
    let each = |input| vector(context.dimensions, input);
    format!("[{}]", (0..context.ask.inputs_count.max(1)).map(each).collect::<Vec<_>>().join(","))
}

fn listed(count: usize, item: impl Fn(usize) -> String) -> String {
    format!("[{}]", (0..count).map(item).collect::<Vec<_>>().join(","))
}

fn usage(timings: &Timings) -> String {
    let n = timings.prompt_tokens;
    format!(r#""usage":{{"prompt_tokens":{n},"total_tokens":{n}}}"#)
}

fn requested_model(context: &Context) -> String {
    text::json(context.ask.model.as_deref().unwrap_or(&context.model))
}

fn tei_headers(timings: &Timings) -> Vec<(&'static str, String)> {
    let ms = |time: std::time::Duration| time.as_millis().to_string();
    vec![
        ("x-compute-type", "cpu".to_owned()),
        ("x-compute-time", ms(timings.prompt)),
        ("x-compute-characters", (timings.prompt_tokens * 5).to_string()),
        ("x-compute-tokens", timings.prompt_tokens.to_string()),
        ("x-total-time", ms(timings.queue + timings.prompt)),
        ("x-tokenization-time", "0".to_owned()),
        ("x-queue-time", ms(timings.queue)),
        ("x-inference-time", ms(timings.prompt)),
    ]
}

fn headers_of(context: &Context, timings: &Timings) -> Vec<(&'static str, String)> {
    if context.dialect == Dialect::Tei { tei_headers(timings) } else { Vec::new() }
}

impl Voice for OpenAi {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let item = |i| {
            let vector = vector(context.dimensions, i);
            format!(r#"{{"embedding":{vector},"index":{i},"object":"embedding"}}"#)
        };
        let data = listed(context.ask.inputs_count.max(1), item);
        let (model, usage) = (requested_model(context), usage(timings));
        // llama-server puts the counts before the data, everyone else after.
        if context.dialect == Dialect::LlamaCpp {
            return format!(r#"{{"model":{model},"object":"list",{usage},"data":{data}}}"#);
        }
        format!(r#"{{"object":"list","data":{data},"model":{model},{usage}}}"#)
    }

    fn extra_headers(&self, context: &Context, timings: &Timings) -> Vec<(&'static str, String)> {
        headers_of(context, timings)
    }
}

impl Voice for LlamaNative {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, _timings: &Timings) -> String {
        listed(context.ask.inputs_count.max(1), |i| {
            format!(r#"{{"index":{i},"embedding":[{}]}}"#, vector(context.dimensions, i))
        })
    }
}

impl Voice for Rerank {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let count = context.ask.inputs_count;
        let results = |score: &str| {
            listed(count, |i| format!(r#"{{"index":{i},"{score}":0.{:03}}}"#, 999 - i.min(999)))
        };
        if context.ask.has_texts || context.dialect == Dialect::Tei {
            return results("score");
        }
        let (model, usage) = (requested_model(context), usage(timings));
        let results = results("relevance_score");
        format!(r#"{{"model":{model},"object":"list",{usage},"results":{results}}}"#)
    }

    fn extra_headers(&self, context: &Context, timings: &Timings) -> Vec<(&'static str, String)> {
        headers_of(context, timings)
    }
}

impl Voice for Tei {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, _timings: &Timings) -> String {
        vectors(context)
    }

    fn extra_headers(&self, context: &Context, timings: &Timings) -> Vec<(&'static str, String)> {
        headers_of(context, timings)
    }
}
