//! JSON strings from outside: escaped so that they can neither break nor forge a line, and capped
//! so that a line has a bound.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

const ELLIPSIS: &str = "…";

/// Appends `text` as a JSON string of at most `cap_bytes` between its quotes, escapes included;
/// what is cut ends in `…`. `cap_bytes` is at least the three bytes of that.
pub(crate) fn put_capped(out: &mut Vec<u8>, text: &str, cap_bytes: usize) {
    out.push(b'"');
    if text.len() <= cap_bytes && text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
    } else {
        put_escaped(out, text, cap_bytes);
    }
    out.push(b'"');
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\'
}

fn put_escaped(out: &mut Vec<u8>, text: &str, cap_bytes: usize) {
    let start = out.len();
    let mut cut = start;
    for ch in text.chars() {
        if out.len() - start + ELLIPSIS.len() <= cap_bytes {
            cut = out.len();
        }
        put_char(out, ch);
        if out.len() - start > cap_bytes {
            out.truncate(cut);
            out.extend_from_slice(ELLIPSIS.as_bytes());
            return;
        }
    }
}

fn put_char(out: &mut Vec<u8>, ch: char) {
    match ch {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        _ if deceives(ch) => put_unicode_escape(out, ch),
        _ => out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Control characters (C0, DEL, C1), the line separators that some readers split at, and the
/// direction marks that make a terminal show a line other than it is.
fn deceives(ch: char) -> bool {
    ch.is_control() || matches!(ch, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// All characters that deceive lie below U+10000: one escape does.
fn put_unicode_escape(out: &mut Vec<u8>, ch: char) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let code = ch as usize;
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(HEX[code >> shift & 0xf]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capped(text: &str, cap_bytes: usize) -> String {
        let mut out = Vec::new();
        put_capped(&mut out, text, cap_bytes);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes_what_could_break_a_line() {
        for (text, expected) in [
            ("", r#""""#),
            ("/v1/chat", r#""/v1/chat""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\r\tc", r#""a\nb\r\tc""#),
            ("\0\u{1b}[31m\u{7f}", r#""\u0000\u001b[31m\u007f""#),
            ("\u{85}\u{9b}", r#""\u0085\u009b""#),
            ("\u{2028}\u{2029}\u{202e}\u{2066}", r#""\u2028\u2029\u202e\u2066""#),
            ("né 日本 🦀", "\"né 日本 🦀\""),
        ] {
            assert_eq!(capped(text, 128), expected);
        }
    }

    #[test]
    fn cuts_at_a_character_and_counts_the_escapes() {
        for (text, cap_bytes, expected) in [
            ("abcdef", 6, "\"abcdef\""),
            ("abcdefg", 6, "\"abc…\""),
            ("ab🦀🦀", 9, "\"ab🦀…\""),
            ("ab🦀🦀", 8, "\"ab…\""),
            ("\0\0", 12, "\"\\u0000\\u0000\""),
            ("\0\0", 11, "\"\\u0000…\""),
            ("🦀", 3, "\"…\""),
        ] {
            assert_eq!(capped(text, cap_bytes), expected, "{text:?} in {cap_bytes}");
        }
    }

    #[test]
    fn a_megabyte_stays_within_the_cap_and_is_valid_json() {
        for unit in ["a", "\0", "\"", "é", "🦀", "\u{2028}x"] {
            for cap_bytes in 3..40 {
                let json = capped(&unit.repeat(1 << 20), cap_bytes);
                assert!(json.len() <= cap_bytes + 2, "{json}");
                let text: String = serde_json::from_str(&json).unwrap();
                assert!(text.ends_with('…'), "{json}");
            }
        }
    }
}
