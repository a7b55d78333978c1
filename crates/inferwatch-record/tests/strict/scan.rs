//! Splits one flat JSON object without spaces into its fields, in order.

/// A value of the line. Text is unescaped; numbers are kept as they were written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Null,
    Flag(bool),
    Number(String),
    Text(String),
}

impl Token {
    /// Bytes that a text takes on the wire, without its quotes.
    pub(crate) fn raw_bytes(&self) -> usize {
        match self {
            Token::Text(text) => text.chars().map(escaped_bytes).sum(),
            _ => 0,
        }
    }
}

fn escaped_bytes(ch: char) -> usize {
    match ch {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        ch if must_be_escaped(ch) => 6,
        ch => ch.len_utf8(),
    }
}

fn must_be_escaped(ch: char) -> bool {
    matches!(ch, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '"' | '\\')
        || matches!(ch, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub(super) fn scan(object: &str) -> Result<Vec<(String, Token)>, String> {
    let inner = object.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.ok_or("not an object")?;
    let mut fields: Vec<(String, Token)> = Vec::new();
    loop {
        let (name, after) = string(rest)?;
        let (value, after) = value(after.strip_prefix(':').ok_or("no colon after a name")?)?;
        if fields.iter().any(|(known, _)| *known == name) {
            return Err(format!("`{name}` stands twice"));
        }
        fields.push((name, value));
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None if after.is_empty() => return Ok(fields),
            None => return Err(format!("unexpected {:?}", after.chars().next())),
        }
    }
}

fn value(rest: &str) -> Result<(Token, &str), String> {
    for (word, token) in
        [("null", Token::Null), ("true", Token::Flag(true)), ("false", Token::Flag(false))]
    {
        if let Some(after) = rest.strip_prefix(word) {
            return Ok((token, after));
        }
    }
    match rest.as_bytes().first() {
        Some(b'"') => string(rest).map(|(text, after)| (Token::Text(text), after)),
        Some(b'0'..=b'9' | b'-') => {
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            Ok((Token::Number(rest[..end].to_owned()), &rest[end..]))
        }
        Some(b'{' | b'[') => Err("a nested value".into()),
        other => Err(format!("no value begins with {other:?}")),
    }
}

fn string(rest: &str) -> Result<(String, &str), String> {
    let body = rest.strip_prefix('"').ok_or("no string where one belongs")?;
    let mut text = String::new();
    let mut chars = body.char_indices();
    while let Some((at, ch)) = chars.next() {
        match ch {
            '"' => return Ok((text, &body[at + 1..])),
            '\\' => text.push(escape(&mut chars)?),
            ch if must_be_escaped(ch) => return Err(format!("{ch:?} stands unescaped")),
            ch => text.push(ch),
        }
    }
    Err("a string without an end".into())
}

fn escape(chars: &mut std::str::CharIndices<'_>) -> Result<char, String> {
    match chars.next().map(|(_, ch)| ch) {
        Some('"') => Ok('"'),
        Some('\\') => Ok('\\'),
        Some('n') => Ok('\n'),
        Some('r') => Ok('\r'),
        Some('t') => Ok('\t'),
        Some('u') => {
            let hex: String = chars.take(4).map(|(_, ch)| ch).collect();
            let code = u32::from_str_radix(&hex, 16).map_err(|error| error.to_string())?;
            char::from_u32(code).ok_or(format!("\\u{hex} is no character"))
        }
        other => Err(format!("no escape: {other:?}")),
    }
}
