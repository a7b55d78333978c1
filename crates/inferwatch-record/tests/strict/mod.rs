//! A strict decoder of the wire, written from SCHEMA.md and not from the crate: it knows every
//! field, its type, its bounds and its place, and accepts nothing else.

mod fields;
mod scan;

use fields::{Field, Type};
pub(crate) use fields::{Kind, Presence, kinds};
pub(crate) use scan::Token;
use scan::scan;

pub(crate) const LINE_BYTES: usize = 4096;

/// The fields of one line with its newline, in order; else what is wrong with it.
pub(crate) fn decode(line: &[u8]) -> Result<Vec<(String, Token)>, String> {
    if line.len() > LINE_BYTES {
        return Err(format!("{} bytes", line.len()));
    }
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let object = text.strip_suffix('\n').ok_or("no newline at its end")?;
    let fields = scan(object)?;
    let kind = match fields.get(1) {
        Some((name, Token::Text(kind))) if name == "kind" => kind.as_str(),
        _ => return Err("the second field is not `kind`".into()),
    };
    let kinds = kinds();
    let known = kinds.iter().find(|known| known.word == kind);
    check_order(&fields, known.ok_or(format!("unknown kind {kind}"))?)?;
    Ok(fields)
}

/// Every line of a text that ends in a newline.
pub(crate) fn decode_all(text: &[u8]) -> Result<Vec<Vec<(String, Token)>>, String> {
    text.split_inclusive(|byte| *byte == b'\n').map(decode).collect()
}

/// Walks the fields of the line beside those of the schema.
fn check_order(fields: &[(String, Token)], kind: &Kind) -> Result<(), String> {
    let mut expected = kind.fields.iter().peekable();
    for (name, value) in fields {
        let field = loop {
            let Some(field) = expected.peek() else {
                return Err(format!("`{name}` is unknown, or stands in the wrong place"));
            };
            if field.names(name) {
                break *field;
            }
            if field.presence == Presence::Always {
                return Err(format!("`{}` is missing before `{name}`", field.name));
            }
            expected.next();
        };
        check_value(field, value).map_err(|reason| format!("`{name}`: {reason}"))?;
        if field.presence != Presence::Repeated {
            expected.next();
        }
    }
    match expected.find(|field| field.presence == Presence::Always) {
        Some(field) => Err(format!("`{}` is missing", field.name)),
        None => Ok(()),
    }
}

fn check_value(field: &Field, value: &Token) -> Result<(), String> {
    match (field.ty, value) {
        (Type::Time, Token::Text(text)) => check_time(text),
        (Type::Text(cap_bytes), Token::Text(_)) if value.raw_bytes() <= cap_bytes => Ok(()),
        (Type::Word(words), Token::Text(text)) if words.contains(&text.as_str()) => Ok(()),
        (Type::Flag, Token::Flag(_)) => Ok(()),
        (Type::Whole, Token::Number(raw)) => {
            raw.parse::<u64>().map(drop).map_err(|e| e.to_string())
        }
        (Type::Status, Token::Number(raw)) => match raw.parse::<u16>() {
            Ok(100..=999) => Ok(()),
            _ => Err(format!("{raw} is no status")),
        },
        (Type::Number, Token::Number(raw)) => check_number(raw),
        (_, Token::Null) if field.may_be_null() => Ok(()),
        (ty, value) => Err(format!("{value:?} is no {ty:?}")),
    }
}

fn check_time(text: &str) -> Result<(), String> {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    if shape != "0000-00-00T00:00:00.000Z" {
        return Err(format!("{text} is not of the form 2026-11-30T14:02:11.123Z"));
    }
    let part = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(u32::MAX);
    let in_range = (1..=12).contains(&part(5..7))
        && (1..=31).contains(&part(8..10))
        && part(11..13) < 24
        && part(14..16) < 60
        && part(17..19) < 60;
    if in_range { Ok(()) } else { Err(format!("{text} is no time")) }
}

fn check_number(raw: &str) -> Result<(), String> {
    let (whole, fraction) = raw.split_once('.').unwrap_or((raw, "0"));
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !plain(whole) || !plain(fraction) {
        return Err(format!("{raw} is not a plain number from 0 on"));
    }
    if fraction.len() > 1 {
        return Err(format!("{raw} has more than one decimal"));
    }
    Ok(())
}
