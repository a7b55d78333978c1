//! `--max-tokens`: lowers what a request may ask to generate. The one case in which a request's body
//! is rewritten; every byte outside the numbers concerned stays as it was.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::observe::{Dialect, RouteKind};

/// Where a dialect says how much to generate.
struct Asks {
    /// Object that holds the fields; `None` is the body itself.
    inside: Option<&'static str>,
    /// Every field the servers of this dialect read; the first is set where none is.
    fields: &'static [&'static str],
}

fn asks(dialect: Dialect) -> Asks {
    let (inside, fields): (_, &'static [&'static str]) = match dialect {
        Dialect::Ollama => (Some("options"), &["num_predict"]),
        Dialect::LlamaNative => (None, &["n_predict", "max_tokens"]),
        Dialect::Responses => (None, &["max_output_tokens"]),
        Dialect::Tei => (Some("parameters"), &["max_new_tokens"]),
        _ => (None, &["max_tokens", "max_completion_tokens", "n_predict"]),
    };
    Asks { inside, fields }
}

/// Whether requests of this kind generate at all.
pub(crate) fn applies(kind: RouteKind) -> bool {
    matches!(kind, RouteKind::Chat | RouteKind::Generate)
}

/// The body with no request for more than `max_tokens`; `None` if it asks for no more as it is.
///
/// # Errors
/// The body is not a JSON object: what it asks for cannot be told.
pub(crate) fn cap(
    dialect: Dialect,
    body: &[u8],
    max_tokens: u64,
) -> Result<Option<Vec<u8>>, serde_json::Error> {
    let asks = asks(dialect);
    let object: Object<'_> = serde_json::from_slice(body)?;
    let mut edits = Vec::new();
    match asks.inside {
        None => cap_object(&object, 0, body, asks.fields, max_tokens, &mut edits),
        Some(name) => cap_inside(name, &object, body, asks.fields, max_tokens, &mut edits)?,
    }
    Ok((!edits.is_empty()).then(|| apply(body, &edits)))
}

/// Replacements, in the order of the body.
type Edits = Vec<(Range<usize>, String)>;

fn cap_inside(
    name: &str,
    object: &Object<'_>,
    body: &[u8],
    fields: &[&str],
    max_tokens: u64,
    edits: &mut Edits,
) -> Result<(), serde_json::Error> {
    let insides = object.0.iter().filter(|(key, _)| key == name);
    let mut found = false;
    for (_, raw) in insides {
        found = true;
        let span = span(body, raw);
        match serde_json::from_str::<Object<'_>>(raw.get()) {
            Ok(inner) => {
                cap_object(&inner, span.start, &body[span], fields, max_tokens, edits);
            }
            Err(_) if raw.get() == "null" => {
                edits.push((span, format!("{{\"{}\":{max_tokens}}}", fields[0])));
            }
            Err(error) => return Err(error),
        }
    }
    if !found {
        let value = format!("{{\"{}\":{max_tokens}}}", fields[0]);
        edits.push(insertion(object, body, 0, name, &value));
    }
    Ok(())
}

fn cap_object(
    object: &Object<'_>,
    offset: usize,
    text: &[u8],
    fields: &[&str],
    max_tokens: u64,
    edits: &mut Edits,
) {
    let asked: Vec<_> = object.0.iter().filter(|(key, _)| fields.contains(&&**key)).collect();
    for (_, raw) in &asked {
        if !within(raw.get(), max_tokens) {
            let span = span(text, raw);
            edits.push((span.start + offset..span.end + offset, max_tokens.to_string()));
        }
    }
    if asked.is_empty() {
        edits.push(insertion(object, text, offset, fields[0], &max_tokens.to_string()));
    }
}

/// Negative numbers and null mean "no end" to the servers; anything but a small number goes.
fn within(value: &str, max_tokens: u64) -> bool {
    value.parse::<u64>().is_ok_and(|asked| asked <= max_tokens)
}

fn insertion(
    object: &Object<'_>,
    text: &[u8],
    offset: usize,
    name: &str,
    value: &str,
) -> (Range<usize>, String) {
    let open = text.iter().position(|byte| *byte == b'{').map_or(0, |at| at + 1) + offset;
    let comma = if object.0.is_empty() { "" } else { "," };
    (open..open, format!("\"{name}\":{value}{comma}"))
}

fn apply(body: &[u8], edits: &Edits) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 32);
    let mut done = 0;
    for (span, text) in edits {
        out.extend_from_slice(&body[done..span.start]);
        out.extend_from_slice(text.as_bytes());
        done = span.end;
    }
    out.extend_from_slice(&body[done..]);
    out
}

/// Where a borrowed value stands in the text that it was parsed from.
fn span(text: &[u8], raw: &RawValue) -> Range<usize> {
    let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
    start..start + raw.get().len()
}

/// An object's members in their order, repeated names included, values unread.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(Key(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dialect: Dialect, body: &str, expected: Option<&str>) {
        let capped = cap(dialect, body.as_bytes(), 64).unwrap();
        let capped = capped.map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(capped.as_deref(), expected, "{body}");
        if let Some(text) = capped {
            assert_eq!(cap(dialect, text.as_bytes(), 64).unwrap(), None, "not settled");
        }
    }

    #[test]
    fn openai() {
        let chat = |body, expected| check(Dialect::OpenAi, body, expected);
        chat(r#"{"max_tokens":64}"#, None);
        chat(
            r#"{ "a": [1 , 2], "max_tokens" : 4096 }"#,
            Some(r#"{ "a": [1 , 2], "max_tokens" : 64 }"#),
        );
        chat(r#"{"max_completion_tokens":65}"#, Some(r#"{"max_completion_tokens":64}"#));
        chat(r#"{"max_tokens":-1}"#, Some(r#"{"max_tokens":64}"#));
        chat(r#"{"max_tokens":null}"#, Some(r#"{"max_tokens":64}"#));
        chat(r#"{"max_tokens":1e9}"#, Some(r#"{"max_tokens":64}"#));
        chat(r#"{"max_tokens":"99999"}"#, Some(r#"{"max_tokens":64}"#));
        chat(r#"{"model":"é\n"}"#, Some(r#"{"max_tokens":64,"model":"é\n"}"#));
        chat(" {}", Some(r#" {"max_tokens":64}"#));
        // The last one wins in most servers, the first in some.
        chat(r#"{"max_tokens":1,"max_tokens":999}"#, Some(r#"{"max_tokens":1,"max_tokens":64}"#));
        // An escaped name is the same name.
        chat(r#"{"max\u005ftokens":999}"#, Some(r#"{"max\u005ftokens":64}"#));
        // A name deeper down is another field.
        chat(
            r#"{"tools":[{"max_tokens":999}]}"#,
            Some(r#"{"max_tokens":64,"tools":[{"max_tokens":999}]}"#),
        );
    }

    #[test]
    fn other_dialects() {
        check(Dialect::LlamaNative, r#"{"n_predict":99}"#, Some(r#"{"n_predict":64}"#));
        check(Dialect::Responses, "{}", Some(r#"{"max_output_tokens":64}"#));
        check(Dialect::Anthropic, r#"{"max_tokens":65}"#, Some(r#"{"max_tokens":64}"#));
        let ollama = |body, expected| check(Dialect::Ollama, body, expected);
        ollama(r#"{"options":{"num_predict":64}}"#, None);
        ollama(
            r#"{"a":1,"options":{"num_predict":-2,"t":0}}"#,
            Some(r#"{"a":1,"options":{"num_predict":64,"t":0}}"#),
        );
        ollama(r#"{"options":{"t":0}}"#, Some(r#"{"options":{"num_predict":64,"t":0}}"#));
        ollama(r#"{"options":null}"#, Some(r#"{"options":{"num_predict":64}}"#));
        ollama(r#"{"num_predict":9}"#, Some(r#"{"options":{"num_predict":64},"num_predict":9}"#));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[]", "{", "{\"a\":}", "null", "\u{feff}{}", "{} x", "{\"a\":1,}"] {
            assert!(cap(Dialect::OpenAi, body.as_bytes(), 1).is_err(), "{body}");
        }
        assert!(cap(Dialect::Ollama, br#"{"options":3}"#, 1).is_err());
    }
}
