//! Generated words and JSON strings.

const WORDS: [&str; 8] = ["The", " capital", " of", " France", " is", " Paris", ",", " naïve"];

/// The text of the token of this number (from 0).
pub(super) fn token(index: u64) -> &'static str {
    WORDS[usize::try_from(index % WORDS.len() as u64).unwrap_or_default()]
}

/// `text` as a JSON string, quotes included.
pub(super) fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Milliseconds with fractions.
pub(super) fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
