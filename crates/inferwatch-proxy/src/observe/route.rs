//! What a path asks for, and in whose dialect. A prefix before the known path does not matter
//! (`/openai/v1/chat/completions`), nor does a trailing slash.

/// What kind of work a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// A conversation: prefill and decode.
    Chat,
    /// A text completion: prefill and decode.
    Generate,
    /// Embeddings.
    Embed,
    /// Scoring of documents against a query.
    Rerank,
    /// Classification.
    Classify,
    /// Health, metrics, lists of models, token counting.
    NoModelWork,
    /// Minutes to hours of something that is no inference (pull, push, create).
    LongTransfer,
    /// Not to be looked into at all: upgrades, audio uploads.
    Opaque,
    /// A path of no known server.
    Unknown,
}

impl RouteKind {
    /// Whether a model has to work for the answer.
    pub fn is_model_work(self) -> bool {
        matches!(
            self,
            RouteKind::Chat
                | RouteKind::Generate
                | RouteKind::Embed
                | RouteKind::Rerank
                | RouteKind::Classify
        )
    }
}

/// Whose words a route speaks; it decides the shape of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's shapes, which nearly everyone speaks.
    OpenAi,
    /// Anthropic messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// llama.cpp's own routes.
    LlamaNative,
    /// Ollama's own routes.
    Ollama,
    /// Text Embeddings Inference, and Text Generation Inference with it.
    Tei,
}

use Dialect::{Anthropic, LlamaNative, Ollama, OpenAi, Responses, Tei};
use RouteKind::{Chat, Classify, Embed, Generate, LongTransfer, NoModelWork, Opaque, Rerank};

/// Known ends of paths. The longest one that fits wins.
const ROUTES: &[(&str, RouteKind, Dialect)] = &[
    ("/chat/completions", Chat, OpenAi),
    ("/api/chat", Chat, Ollama),
    ("/v1/messages", Chat, Anthropic),
    ("/responses", Chat, Responses),
    ("/v1/completions", Generate, OpenAi),
    ("/completion", Generate, LlamaNative),
    ("/completions", Generate, LlamaNative),
    ("/infill", Generate, LlamaNative),
    ("/api/generate", Generate, Ollama),
    ("/generate", Generate, Tei),
    ("/generate_stream", Generate, Tei),
    ("/v1/embeddings", Embed, OpenAi),
    ("/embedding", Embed, LlamaNative),
    ("/embeddings", Embed, LlamaNative),
    ("/api/embed", Embed, Ollama),
    ("/api/embeddings", Embed, Ollama),
    ("/embed", Embed, Tei),
    ("/embed_all", Embed, Tei),
    ("/embed_sparse", Embed, Tei),
    ("/similarity", Embed, Tei),
    ("/pooling", Embed, OpenAi),
    ("/rerank", Rerank, OpenAi),
    ("/reranking", Rerank, LlamaNative),
    ("/score", Rerank, OpenAi),
    ("/predict", Classify, Tei),
    ("/classify", Classify, OpenAi),
    ("/health", NoModelWork, OpenAi),
    ("/healthz", NoModelWork, OpenAi),
    ("/ping", NoModelWork, OpenAi),
    ("/version", NoModelWork, OpenAi),
    ("/metrics", NoModelWork, OpenAi),
    ("/slots", NoModelWork, LlamaNative),
    ("/props", NoModelWork, LlamaNative),
    ("/lora-adapters", NoModelWork, LlamaNative),
    ("/models", NoModelWork, OpenAi),
    ("/models/load", NoModelWork, LlamaNative),
    ("/models/unload", NoModelWork, LlamaNative),
    ("/api/tags", NoModelWork, Ollama),
    ("/api/ps", NoModelWork, Ollama),
    ("/api/show", NoModelWork, Ollama),
    ("/api/copy", NoModelWork, Ollama),
    ("/api/delete", NoModelWork, Ollama),
    ("/api/version", NoModelWork, Ollama),
    ("/tokenize", NoModelWork, LlamaNative),
    ("/detokenize", NoModelWork, LlamaNative),
    ("/apply-template", NoModelWork, LlamaNative),
    ("/input_tokens", NoModelWork, OpenAi),
    ("/count_tokens", NoModelWork, Anthropic),
    ("/info", NoModelWork, Tei),
    ("/decode", NoModelWork, Tei),
    ("/api/pull", LongTransfer, Ollama),
    ("/api/push", LongTransfer, Ollama),
    ("/api/create", LongTransfer, Ollama),
    ("/v1/realtime", Opaque, OpenAi),
    ("/audio/transcriptions", Opaque, OpenAi),
    ("/audio/translations", Opaque, OpenAi),
];

/// Folders below which everything is of one kind.
const FOLDERS: &[(&str, RouteKind, Dialect)] = &[
    ("/slots/", NoModelWork, LlamaNative),
    ("/v1/models/", NoModelWork, OpenAi),
    ("/api/blobs/", LongTransfer, Ollama),
];

/// What a path (without query) asks for when it is posted to, and in whose shapes; OpenAI's if
/// nobody knows.
pub fn route(path: &str) -> (RouteKind, Dialect) {
    known(path).unwrap_or((RouteKind::Unknown, OpenAi))
}

fn known(path: &str) -> Option<(RouteKind, Dialect)> {
    let path = path.trim_end_matches('/');
    // Few share the last byte: a cheap question before the dear one.
    let last = path.as_bytes().last();
    let fits = |end: &str| end.as_bytes().last() == last && path.ends_with(end);
    let end = ROUTES.iter().filter(|(end, ..)| fits(end)).max_by_key(|(end, ..)| end.len());
    end.or_else(|| FOLDERS.iter().find(|(folder, ..)| path.contains(folder)))
        .map(|&(_, kind, dialect)| (kind, dialect))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, kind: RouteKind, spoken: Dialect) {
        assert_eq!(route(path), (kind, spoken), "{path}");
    }

    #[test]
    fn the_longest_known_end_of_a_path_decides() {
        check("/v1/chat/completions", Chat, OpenAi);
        check("/v1/chat/completions/", Chat, OpenAi);
        check("/chat/completions", Chat, OpenAi);
        check("/openai/v1/chat/completions", Chat, OpenAi);
        check("/v1/chat/completions/input_tokens", NoModelWork, OpenAi);
        check("/v1/completions", Generate, OpenAi);
        check("/completions", Generate, LlamaNative);
        check("/completion", Generate, LlamaNative);
        check("/v1/messages", Chat, Anthropic);
        check("/v1/messages/count_tokens", NoModelWork, Anthropic);
        check("/v1/responses", Chat, Responses);
        check("/responses", Chat, Responses);
        check("/v1/responses/input_tokens", NoModelWork, OpenAi);
        check("/api/chat", Chat, Ollama);
        check("/api/generate", Generate, Ollama);
        check("/generate", Generate, Tei);
        check("/v1/embeddings", Embed, OpenAi);
        check("/embeddings", Embed, LlamaNative);
        check("/api/embeddings", Embed, Ollama);
        check("/embed", Embed, Tei);
        check("/v1/reranking", Rerank, LlamaNative);
        check("/v2/rerank", Rerank, OpenAi);
        check("/predict", Classify, Tei);
        check("/slots/0", NoModelWork, LlamaNative);
        check("/v1/models/some/name", NoModelWork, OpenAi);
        check("/api/blobs/sha256:0", LongTransfer, Ollama);
        check("/v1/audio/transcriptions", Opaque, OpenAi);
        for unknown in ["", "/", "/nope", "/regenerate", "/xcompletion", "/embed/x", "*"] {
            check(unknown, RouteKind::Unknown, OpenAi);
        }
    }
}
