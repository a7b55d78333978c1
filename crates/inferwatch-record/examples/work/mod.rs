//! Stand-ins with real CPU cost for the four stages of a retrieval pipeline.

const DIMENSIONS: usize = 384;
const DOCUMENTS: usize = 2_000;

/// A vector from text.
pub(crate) fn encode(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    for (at, byte) in text.bytes().cycle().take(64 * DIMENSIONS).enumerate() {
        vector[at % DIMENSIONS] += f32::from(byte).sin();
    }
    vector
}

/// The documents nearest to a vector, by an exact scan.
pub(crate) fn retrieve(vector: &[f32]) -> Vec<usize> {
    let score = |document: usize| -> f32 {
        vector.iter().enumerate().map(|(at, x)| x * ((document * 31 + at) % 17) as f32).sum()
    };
    let mut scored: Vec<(f32, usize)> = (0..DOCUMENTS).map(|at| (score(at), at)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.truncate(20);
    scored.into_iter().map(|(_, document)| document).collect()
}

/// The same documents in a better order.
pub(crate) fn rerank(text: &str, mut documents: Vec<usize>) -> Vec<usize> {
    documents.sort_by_cached_key(|document| encode(&format!("{text} {document}"))[0] as i64);
    documents
}

/// One more token of an answer.
pub(crate) fn next_token(position: usize) -> String {
    let mut state = position as u64 + 1;
    for _ in 0..20_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    format!("{} ", char::from(b'a' + (state >> 59) as u8 % 26))
}

/// Tokens of a prompt, by a rule of thumb that a real service replaces by its tokenizer.
pub(crate) fn count_tokens(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}
