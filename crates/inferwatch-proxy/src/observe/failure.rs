//! The few words that a line says about an error: the server's own, capped, so that a prompt
//! which a server echoes cannot get into the log at length.

/// Longest error in a line.
const MAX_BYTES: usize = 200;
/// What llama.cpp's JSON parser puts before a piece of the request.
const ECHO: &str = "last read:";

/// Puts an error into words; `None` if the server said nothing.
pub(super) fn words(
    kind: Option<&str>,
    message: Option<&str>,
    prompt_tokens: Option<u64>,
    context_tokens: Option<u64>,
) -> Option<String> {
    let message = message.map(|message| message.split(ECHO).next().unwrap_or_default().trim());
    let head = match (kind, message) {
        (Some(kind), Some(message)) => format!("{kind}: {message}"),
        (kind, message) => kind.or(message)?.to_owned(),
    };
    let tail: String = [("n_prompt_tokens", prompt_tokens), ("n_ctx", context_tokens)]
        .into_iter()
        .filter_map(|(name, count)| count.map(|count| format!(" {name}={count}")))
        .collect();
    let room = MAX_BYTES.saturating_sub(tail.len());
    Some(format!("{}{tail}", cut(&head, room)))
}

/// The longest beginning of at most so many bytes that cuts no character.
fn cut(text: &str, max_bytes: usize) -> &str {
    let end = (0..=max_bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_put_into_few_words() {
        let check = |kind, message, tokens, expected: Option<&str>| {
            let (prompt, context) = tokens;
            assert_eq!(words(kind, message, prompt, context).as_deref(), expected);
        };
        check(None, None, (Some(1), None), None);
        check(Some("t"), None, (None, None), Some("t"));
        check(None, Some("m"), (None, None), Some("m"));
        check(Some("t"), Some("m"), (Some(9), Some(8)), Some("t: m n_prompt_tokens=9 n_ctx=8"));
        check(None, Some("bad; last read: 'secret"), (None, None), Some("bad;"));
    }

    #[test]
    fn a_long_message_is_cut_and_the_numbers_stay() {
        let long = "ä".repeat(300);
        let said = words(Some("x"), Some(&long), Some(5), None).unwrap();
        assert!(said.len() <= MAX_BYTES && said.ends_with(" n_prompt_tokens=5"), "{said}");
    }
}
