//! The flat fields of one JSON object, each still a raw value; nested values are skipped, not held.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

pub(super) type Fields<'a> = Vec<(Cow<'a, str>, Raw<'a>)>;

/// A value as it stood in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Raw<'a> {
    Null,
    Bool(bool),
    Whole(u64),
    Number(f64),
    Text(Cow<'a, str>),
    Nested,
}

impl Raw<'_> {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Raw::Null => "null",
            Raw::Bool(_) => "a boolean",
            Raw::Whole(_) | Raw::Number(_) => "a number",
            Raw::Text(_) => "a string",
            Raw::Nested => "a nested value",
        }
    }
}

/// Splits the text of one object into its fields, in order.
pub(super) fn fields(text: &str) -> Result<Fields<'_>, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let fields = json.deserialize_any(ObjectVisitor).and_then(|fields| {
        json.end()?;
        Ok(fields)
    });
    fields.map_err(|error| reason(&error))
}

fn reason(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Eof => format!("torn: it ends inside the JSON, after byte {}", error.column()),
        Category::Data => "not a JSON object".to_owned(),
        Category::Syntax | Category::Io => format!("not JSON at byte {}", error.column()),
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::with_capacity(32);
        while let Some((Name(name), value)) = map.next_entry()? {
            fields.push((name, value));
        }
        Ok(fields)
    }
}

/// A key, borrowed where it holds no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match json.deserialize_str(RawVisitor)? {
            Raw::Text(name) => Ok(Name(name)),
            _ => Err(serde::de::Error::custom("a key that is no string")),
        }
    }
}

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw<'de>, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw<'de>, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw<'de>, E> {
        Ok(Raw::Whole(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw<'de>, E> {
        Ok(Raw::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw<'de>, E> {
        Ok(Raw::Number(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Raw<'de>, E> {
        Ok(Raw::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw<'de>, E> {
        Ok(Raw::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Raw::Nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Raw::Nested)
    }
}
