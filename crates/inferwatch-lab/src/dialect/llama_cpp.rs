//! llama-server's native completion, its `timings` object and its error types.

use super::{Context, Voice, data, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/completion`.
pub(super) struct Completion;

pub(super) fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        404 => "not_found_error",
        501 => "not_supported_error",
        503 => "unavailable_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// The `timings` object, with the rate of builds since August 2026 (the first token is free).
#[expect(clippy::cast_precision_loss, reason = "token counts are small")]
pub(super) fn timings(timings: &Timings) -> String {
    let (prompt_n, prompt_ms) = (timings.prompt_tokens, text::ms(timings.prompt));
    let (predicted_n, predicted_ms) = (timings.completion_tokens, text::ms(timings.generate));
    let per_second = |n: u64, ms: f64| if ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 };
    let per_token = |n: u64, ms: f64| if n > 0 { ms / n as f64 } else { 0.0 };
    let decoded_n = predicted_n.saturating_sub(1);
    format!(
        r#"{{"cache_n":0,"prompt_n":{prompt_n},"prompt_ms":{prompt_ms},"prompt_per_token_ms":{},"prompt_per_second":{},"predicted_n":{predicted_n},"predicted_ms":{predicted_ms},"predicted_per_token_ms":{},"predicted_per_second":{}}}"#,
        per_token(prompt_n, prompt_ms),
        per_second(prompt_n, prompt_ms),
        per_token(decoded_n, predicted_ms),
        per_second(decoded_n, predicted_ms),
    )
}

fn last(context: &Context, content: &str, done: &Timings) -> String {
    let (content, model) = (text::json(content), text::json(&context.model));
    let (predicted, evaluated) = (done.completion_tokens, done.prompt_tokens);
    let cached = (predicted + evaluated).saturating_sub(1);
    let stop_type = if context.is_limited() { "limit" } else { "eos" };
    let timings = timings(done);
    format!(
        r#"{{"index":0,"content":{content},"tokens":[],"id_slot":0,"stop":true,"model":{model},"tokens_predicted":{predicted},"tokens_evaluated":{evaluated},"has_new_line":false,"truncated":false,"stop_type":"{stop_type}","stopping_word":"","tokens_cached":{cached},"timings":{timings}}}"#
    )
}

impl Voice for Completion {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Sse)
    }

    fn token(&self, context: &Context, index: u64) -> String {
        let content = text::json(text::token(index));
        let (predicted, evaluated) = (index + 1, context.ask.prompt_tokens);
        data(format_args!(
            r#"{{"index":0,"content":{content},"tokens":[{predicted}],"stop":false,"id_slot":-1,"tokens_predicted":{predicted},"tokens_evaluated":{evaluated}}}"#
        ))
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        vec![data(last(context, "", timings))]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        last(context, &context.text(timings.completion_tokens), timings)
    }
}
