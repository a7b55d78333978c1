//! OpenAI Responses: named events, one `response.completed` at the end, no `[DONE]`.

use super::{Context, Dialect, Voice, event, llama_cpp, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/v1/responses`.
pub(super) struct Responses;

const BEGUN: &str = r#"{"id":"resp_lab","object":"response","status":"in_progress"}"#;

fn typed(kind: &str, more: &str) -> String {
    event(kind, format_args!(r#"{{"type":"{kind}",{more}}}"#))
}

// llama-server says "completed" even at the limit.
fn status(context: &Context) -> &'static str {
    let is_cut = context.is_limited() && context.dialect != Dialect::LlamaCpp;
    if is_cut { "incomplete" } else { "completed" }
}

fn response(context: &Context, timings: &Timings) -> String {
    let words = text::json(&context.text(timings.completion_tokens));
    let model = text::json(&context.model);
    let status = status(context);
    let (input, output) = (timings.prompt_tokens, timings.completion_tokens);
    let total = input + output;
    format!(
        r#"{{"id":"resp_lab","object":"response","created_at":1767225600,"status":"{status}","model":{model},"output":[{{"type":"message","status":"completed","id":"msg_lab","content":[{{"type":"output_text","annotations":[],"logprobs":[],"text":{words}}}],"role":"assistant"}}],"usage":{{"input_tokens":{input},"output_tokens":{output},"total_tokens":{total},"input_tokens_details":{{"cached_tokens":0}}}}}}"#
    )
}

impl Voice for Responses {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Sse)
    }

    fn opening(&self, _context: &Context) -> Vec<String> {
        let item = r#""item":{"content":[],"id":"msg_lab","role":"assistant","status":"in_progress","type":"message"}"#;
        let part = r#""item_id":"msg_lab","part":{"type":"output_text","text":""}"#;
        vec![
            typed("response.created", &format!(r#""response":{BEGUN}"#)),
            typed("response.in_progress", &format!(r#""response":{BEGUN}"#)),
            typed("response.output_item.added", item),
            typed("response.content_part.added", part),
        ]
    }

    fn token(&self, _context: &Context, index: u64) -> String {
        let delta = text::json(text::token(index));
        typed("response.output_text.delta", &format!(r#""item_id":"msg_lab","delta":{delta}"#))
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        let words = text::json(&context.text(timings.completion_tokens));
        let done =
            typed("response.output_text.done", &format!(r#""item_id":"msg_lab","text":{words}"#));
        let kind = format!("response.{}", status(context));
        let mut last = format!(r#""response":{}"#, response(context, timings));
        if context.dialect == Dialect::LlamaCpp {
            last.push_str(&format!(r#","timings":{}"#, llama_cpp::timings(timings)));
        }
        vec![done, typed(&kind, &last)]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        response(context, timings)
    }
}
