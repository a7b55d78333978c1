//! Which route of which server speaks with which voice.

use super::{Dialect, Voice, anthropic, embed, llama_cpp, ollama, openai, responses};

/// What a route is for.
pub(crate) enum Route {
    /// Model work.
    Work(&'static dyn Voice),
    /// A question about the server, with its answer.
    Info(&'static str),
    /// Whether each slot is at work.
    Slots,
}

/// The route of `method` and `path`; `None` if this server has none there.
pub(crate) fn route(dialect: Dialect, method: &str, path: &str) -> Option<Route> {
    match method {
        "POST" => voice(dialect, path).map(Route::Work),
        "GET" | "HEAD" => info(dialect, path),
        _ => None,
    }
}

fn voice(dialect: Dialect, path: &str) -> Option<&'static dyn Voice> {
    match dialect {
        Dialect::LlamaCpp => llama_cpp_voice(path),
        Dialect::OpenAi => openai_voice(path),
        Dialect::Anthropic => (path == "/v1/messages").then_some(&anthropic::Messages),
        Dialect::Ollama => ollama_voice(path),
        Dialect::Tei => tei_voice(path),
    }
}

fn llama_cpp_voice(path: &str) -> Option<&'static dyn Voice> {
    Some(match path {
        "/completion" | "/completions" => &llama_cpp::Completion,
        "/embedding" | "/embeddings" => &embed::LlamaNative,
        "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking" => &embed::Rerank,
        "/chat/completions" => &openai::Chat,
        "/responses" => &responses::Responses,
        "/v1/messages" => &anthropic::Messages,
        _ => return openai_voice(path),
    })
}

fn openai_voice(path: &str) -> Option<&'static dyn Voice> {
    Some(match path {
        "/v1/chat/completions" => &openai::Chat,
        "/v1/completions" => &openai::Completion,
        "/v1/embeddings" => &embed::OpenAi,
        "/v1/responses" => &responses::Responses,
        _ => return None,
    })
}

fn ollama_voice(path: &str) -> Option<&'static dyn Voice> {
    Some(match path {
        "/api/chat" => &ollama::Chat,
        "/api/generate" => &ollama::Generate,
        "/api/embed" => &ollama::Embed,
        "/api/embeddings" => &ollama::LegacyEmbeddings,
        "/v1/messages" => &anthropic::Messages,
        _ => return openai_voice(path),
    })
}

fn tei_voice(path: &str) -> Option<&'static dyn Voice> {
    Some(match path {
        "/embed" => &embed::Tei,
        "/rerank" => &embed::Rerank,
        "/v1/embeddings" | "/embeddings" => &embed::OpenAi,
        _ => return None,
    })
}

fn info(dialect: Dialect, path: &str) -> Option<Route> {
    Some(Route::Info(match (dialect, path) {
        (Dialect::LlamaCpp, "/slots") => return Some(Route::Slots),
        (_, "/health") => r#"{"status":"ok"}"#,
        (Dialect::Ollama, "/api/version") => r#"{"version":"0.33.2"}"#,
        (Dialect::Tei, "/info") => r#"{"model_id":"lab","max_concurrent_requests":512}"#,
        (Dialect::LlamaCpp | Dialect::OpenAi | Dialect::Ollama, "/v1/models") => {
            r#"{"object":"list","data":[{"id":"lab","object":"model","owned_by":"lab"}]}"#
        }
        _ => return None,
    }))
}
