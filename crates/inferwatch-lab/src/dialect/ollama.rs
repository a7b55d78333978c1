//! Ollama's native routes: NDJSON, streamed unless told otherwise, durations in nanoseconds.

use super::{Context, Voice, embed, text};
use crate::engine::Timings;
use crate::sse::Framing;

/// `/api/chat`.
pub(super) struct Chat;
/// `/api/generate`.
pub(super) struct Generate;
/// `/api/embed`.
pub(super) struct Embed;
/// `/api/embeddings`, the older route, which counts nothing.
pub(super) struct LegacyEmbeddings;

fn message(words: &str) -> String {
    format!(r#""message":{{"role":"assistant","content":{}}}"#, text::json(words))
}

fn response(words: &str) -> String {
    format!(r#""response":{}"#, text::json(words))
}

fn document(context: &Context, content: &str, end: &str) -> String {
    let model = text::json(context.ask.model.as_deref().unwrap_or(&context.model));
    format!(r#"{{"model":{model},"created_at":"2026-01-01T00:00:00.000000Z",{content},{end}}}"#)
}

fn done(context: &Context, timings: &Timings, context_ids: &str) -> String {
    let reason = super::openai::finish(context);
    let (prompt_count, count) = (timings.prompt_tokens, timings.completion_tokens);
    let (prompt, generate) = (timings.prompt.as_nanos(), timings.generate.as_nanos());
    let total = (timings.queue + timings.prompt + timings.generate).as_nanos();
    format!(
        r#""done":true,"done_reason":"{reason}",{context_ids}"total_duration":{total},"load_duration":1000000,"prompt_eval_count":{prompt_count},"prompt_eval_duration":{prompt},"eval_count":{count},"eval_duration":{generate}"#
    )
}

const RUNNING: &str = r#""done":false"#;
const CONTEXT_IDS: &str = r#""context":[1,2,3],"#;

impl Voice for Chat {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Ndjson)
    }

    fn streams_by_default(&self) -> bool {
        true
    }

    fn token(&self, context: &Context, index: u64) -> String {
        document(context, &message(text::token(index)), RUNNING) + "\n"
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        vec![document(context, &message(""), &done(context, timings, "")) + "\n"]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let words = context.text(timings.completion_tokens);
        document(context, &message(&words), &done(context, timings, ""))
    }
}

impl Voice for Generate {
    fn framing(&self) -> Option<Framing> {
        Some(Framing::Ndjson)
    }

    fn streams_by_default(&self) -> bool {
        true
    }

    fn token(&self, context: &Context, index: u64) -> String {
        document(context, &response(text::token(index)), RUNNING) + "\n"
    }

    fn closing(&self, context: &Context, timings: &Timings) -> Vec<String> {
        vec![document(context, &response(""), &done(context, timings, CONTEXT_IDS)) + "\n"]
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let words = context.text(timings.completion_tokens);
        document(context, &response(&words), &done(context, timings, CONTEXT_IDS))
    }
}

impl Voice for Embed {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, timings: &Timings) -> String {
        let model = text::json(context.ask.model.as_deref().unwrap_or(&context.model));
        let vectors = embed::vectors(context);
        let (total, count) = (timings.prompt.as_nanos(), timings.prompt_tokens);
        format!(
            r#"{{"model":{model},"embeddings":{vectors},"total_duration":{total},"load_duration":1000000,"prompt_eval_count":{count}}}"#
        )
    }
}

impl Voice for LegacyEmbeddings {
    fn framing(&self) -> Option<Framing> {
        None
    }

    fn generates(&self) -> bool {
        false
    }

    fn whole(&self, context: &Context, _timings: &Timings) -> String {
        format!(r#"{{"embedding":{}}}"#, embed::vector(context.dimensions, 0))
    }
}
