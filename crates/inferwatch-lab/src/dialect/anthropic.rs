//! Anthropic messages: named events, counts in the first and in the last but one.

use super::{Context, Voice, event, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/v1/messages`.
pub(super) struct Messages;

fn stop_reason(context: &Context) -> &'static str {
    if context.is_limited() { "max_tokens" } else { "end_turn" }
}

fn usage(input: u64, output: u64) -> String {
    format!(r#"{{"cache_read_input_tokens":0,"input_tokens":{input},"output_tokens":{output}}}"#)
}

fn message(context: &Context, content: &str, stop_reason: &str, usage: &str) -> String {
    let model = text::json(&context.model);
    format!(
        r#"{{"id":"msg_lab","type":"message","role":"assistant","content":{content},"model":{model},"stop_reason":{stop_reason},"stop_sequence":null,"usage":{usage}}}"#
    )
}

impl Voice for Messages {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Sse)
    }

    fn opening(&self, context: &Context) -> Vec<String> {
        let message = message(context, "[]", "null", &usage(context.ask.prompt_tokens, 0));
        let begun = format!(r#"{{"type":"message_start","message":{message}}}"#);
        let block =
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
        vec![event("message_start", begun), event("content_block_start", block)]
    }

    fn token(&self, _context: &Context, index: u64) -> String {
        let words = text::json(text::token(index));
        let delta = format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":{words}}}}}"#
        );
        event("content_block_delta", delta)
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        let (reason, output) = (stop_reason(context), timings.completion_tokens);
        let delta = format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":{output}}}}}"#
        );
        vec![
            event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
            event("message_delta", delta),
            event("message_stop", r#"{"type":"message_stop"}"#),
        ]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let words = text::json(&context.text(timings.completion_tokens));
        let content = format!(r#"[{{"type":"text","text":{words}}}]"#);
        let reason = format!("\"{}\"", stop_reason(context));
        message(
            context,
            &content,
            &reason,
            &usage(timings.prompt_tokens, timings.completion_tokens),
        )
    }
}
