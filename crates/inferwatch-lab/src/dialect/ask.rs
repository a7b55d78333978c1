//! What a request asks for, in whatever shape it asks.

use serde_json::Value;

/// Generated when the request sets no limit.
const DEFAULT_TOKENS: u64 = 16;

/// A request, understood.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The model it names.
    pub(crate) model: Option<String>,
    /// Whether it wants a stream, if it says.
    pub(crate) stream: Option<bool>,
    /// `stream_options.include_usage`.
    pub(crate) include_usage: bool,
    /// Words of all its texts: a fake tokenizer.
    pub(crate) prompt_tokens: u64,
    /// The limit that it sets.
    pub(crate) max_tokens: Option<u64>,
    /// Inputs of an embedding, documents of a rerank.
    pub(crate) inputs_count: usize,
    /// Whether a rerank came in TEI's shape (`texts`).
    pub(crate) has_texts: bool,
}

impl Ask {
    /// Reads a request's body.
    ///
    /// # Errors
    /// The body is no JSON object; the text says so.
    pub(crate) fn read(body: &[u8]) -> Result<Ask, String> {
        let json: Value = serde_json::from_slice(body).map_err(|e| e.to_string())?;
        if !json.is_object() {
            return Err("the body is no JSON object".to_owned());
        }
        let inputs = first(&json, &["input", "inputs", "content", "documents", "texts", "prompt"]);
        let limit = first(
            &json,
            &["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"],
        )
        .or_else(|| json.pointer("/options/num_predict"));
        Ok(Ask {
            model: json.get("model").and_then(Value::as_str).map(str::to_owned),
            stream: json.get("stream").and_then(Value::as_bool),
            include_usage: json.pointer("/stream_options/include_usage")
                == Some(&Value::Bool(true)),
            prompt_tokens: prompt_tokens(&json),
            max_tokens: limit.and_then(Value::as_u64),
            inputs_count: inputs.map_or(0, |i| i.as_array().map_or(1, Vec::len)),
            has_texts: json.get("texts").is_some(),
        })
    }

    /// Tokens that will be generated.
    pub(crate) fn completion_tokens(&self) -> u64 {
        self.max_tokens.unwrap_or(DEFAULT_TOKENS)
    }
}

fn first<'a>(json: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| json.get(name))
}

fn prompt_tokens(json: &Value) -> u64 {
    const TEXTS: [&str; 10] = [
        "messages",
        "prompt",
        "input",
        "inputs",
        "content",
        "system",
        "instructions",
        "query",
        "documents",
        "texts",
    ];
    TEXTS.iter().filter_map(|name| json.get(name)).map(words).sum()
}

// Token ids count too; roles, types and names do not.
fn words(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.split_whitespace().count() as u64,
        Value::Number(_) => 1,
        Value::Array(items) => items.iter().map(words).sum(),
        Value::Object(map) => {
            ["content", "text"].iter().filter_map(|k| map.get(*k)).map(words).sum()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_of_every_shape_are_counted() {
        for (body, prompt_tokens, completion_tokens, inputs_count) in [
            (r#"{"messages":[{"role":"user","content":"a b c"}],"max_tokens":4}"#, 3, 4, 0),
            (r#"{"messages":[{"content":[{"type":"text","text":"a b"}]}],"system":"c"}"#, 3, 16, 0),
            (r#"{"prompt":"Once upon","n_predict":2}"#, 2, 2, 1),
            (r#"{"prompt":"hi","options":{"num_predict":5}}"#, 1, 5, 1),
            (r#"{"input":["a b","c"]}"#, 3, 16, 2),
            (r#"{"input":[[101,7592,102]]}"#, 3, 16, 1),
            (r#"{"inputs":"a b"}"#, 2, 16, 1),
            (r#"{"query":"q","documents":["a b","c","d"]}"#, 5, 16, 3),
            (r#"{"input":"x","max_output_tokens":3,"instructions":"y z"}"#, 3, 3, 1),
            ("{}", 0, 16, 0),
            (r#"{"max_tokens":-1}"#, 0, 16, 0),
        ] {
            let ask = Ask::read(body.as_bytes()).unwrap();
            let read = (ask.prompt_tokens, ask.completion_tokens(), ask.inputs_count);
            assert_eq!(read, (prompt_tokens, completion_tokens, inputs_count), "{body}");
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "{", "[]", "1", "\u{feff}{}"] {
            assert!(Ask::read(body.as_bytes()).is_err(), "{body:?}");
        }
    }
}
