//! What a request's body asks for: model, choices, batch size, and how much text the
//! model will have to read. The text itself is kept only on demand, and only if it is short.

use super::capped::Capped;
use super::json::{Node, Scanner, Sink, Value};

/// Longest text that is kept for a tokenizer.
pub(super) const MAX_KEPT_BYTES: usize = 40 << 10;

/// What a wanted value of a request means.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ask {
    Model,
    Name,
    Choices,
    /// Text that the model reads.
    Text,
    /// The same, where the outermost array is the batch.
    Inputs,
    /// TEI's `inputs`, in which a flat list of strings may be a pair.
    TeiInputs,
    /// The text that is read along with each document.
    Query,
}

const TEXT: Node<Ask> = Node::leaf(Ask::Text);
const INPUTS: Node<Ask> = Node::leaf(Ask::Inputs);

/// A string, or parts with text in them (OpenAI, Anthropic, Responses).
const CONTENT: Node<Ask> = Node::either(
    Ask::Text,
    &[("text", TEXT), ("content", Node::either(Ask::Text, &[("text", TEXT)]))],
);

const DOCUMENTS: Node<Ask> = Node::either(Ask::Inputs, &[("text", TEXT)]);

static REQUEST: Node<Ask> = Node::object(&[
    ("model", Node::leaf(Ask::Model)),
    ("name", Node::leaf(Ask::Name)),
    ("n", Node::leaf(Ask::Choices)),
    ("n_cmpl", Node::leaf(Ask::Choices)),
    ("messages", Node::object(&[("content", CONTENT)])),
    ("system", CONTENT),
    ("instructions", TEXT),
    ("prompt", Node::either(Ask::Inputs, &[("prompt_string", TEXT)])),
    ("suffix", TEXT),
    ("input_prefix", TEXT),
    ("input_suffix", TEXT),
    ("input", Node::either(Ask::Inputs, &[("content", CONTENT), ("text", TEXT)])),
    ("inputs", Node::either(Ask::TeiInputs, &[("source_sentence", TEXT), ("sentences", INPUTS)])),
    ("content", INPUTS),
    ("query", Node::leaf(Ask::Query)),
    ("documents", DOCUMENTS),
    ("texts", INPUTS),
    ("text_1", Node::leaf(Ask::Query)),
    ("text_2", INPUTS),
]);

/// What the body said, as far as it came.
#[derive(Debug, Default)]
struct Facts {
    model: Capped,
    name: Capped,
    choices: Option<u64>,
    /// Elements of the outermost array, or 1 for a single input.
    inputs_count: Option<u64>,
    /// An element of the outermost array is a number: the array is one input of token ids.
    token_ids: bool,
    flat_texts: bool,
    tei_inputs: bool,
    text_bytes: u64,
    text_chars: u64,
    query_chars: u64,
    kept: Option<Vec<u8>>,
    /// What is kept next belongs to another text.
    separate: bool,
}

/// The reader of one request body.
#[derive(Debug)]
pub(super) struct Request {
    scanner: Scanner<Ask>,
    facts: Facts,
}

impl Request {
    /// A reader that keeps the text if it is asked to.
    pub(super) fn new(keep_text: bool) -> Request {
        let facts = Facts { kept: keep_text.then(Vec::new), ..Facts::default() };
        Request { scanner: Scanner::new(&REQUEST), facts }
    }

    /// Reads on.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.scanner.feed(bytes, &mut self.facts);
    }

    /// Whether the body is no JSON.
    pub(super) fn is_broken(&self) -> bool {
        self.scanner.is_broken()
    }

    /// The model that was asked for.
    pub(super) fn model(&self) -> Option<&str> {
        self.facts.model.get().or_else(|| self.facts.name.get())
    }

    /// Choices asked for per prompt.
    pub(super) fn choices(&self) -> u64 {
        self.facts.choices.unwrap_or(1).max(1)
    }

    /// Inputs of an embed, rerank or classify call, or prompts of a completion.
    pub(super) fn inputs_count(&self, classify: bool) -> Option<u64> {
        let facts = &self.facts;
        // TEI's classifier takes a flat list of strings as one pair.
        let pair = classify && facts.tei_inputs && facts.flat_texts;
        if facts.token_ids || pair { Some(1) } else { facts.inputs_count }
    }

    /// Bytes of the text that the model reads; `None` if there is none.
    pub(super) fn text_bytes(&self) -> Option<u64> {
        (self.facts.text_bytes > 0).then_some(self.facts.text_bytes)
    }

    /// Whether a count is that of the text's characters, the query counted once or per document.
    pub(super) fn is_chars_count(&self, count: u64) -> bool {
        let facts = &self.facts;
        let repeats = facts.inputs_count.unwrap_or(1).max(1) - 1;
        let per_document = facts.text_chars + facts.query_chars.saturating_mul(repeats);
        count > 0 && (count == facts.text_chars || count == per_document)
    }

    /// The text, if it was kept, all of it came and all of it fitted.
    pub(super) fn take_text(&mut self) -> Option<String> {
        let whole = self.scanner.is_done() && self.facts.text_bytes > 0;
        let kept = self.facts.kept.take().filter(|_| whole)?;
        Some(String::from_utf8_lossy(&kept).into_owned())
    }

    /// Keeps no more than this of the text.
    pub(super) fn limit_kept(&mut self, max_bytes: usize) {
        if self.facts.kept.as_ref().is_some_and(|kept| kept.capacity() > max_bytes) {
            self.facts.kept = None;
        }
    }

    /// Heap bytes held.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let facts = &self.facts;
        let kept = facts.kept.as_ref().map_or(0, Vec::capacity);
        kept + facts.model.heap_bytes() + facts.name.heap_bytes()
    }
}

impl Facts {
    fn add_text(&mut self, piece: &[u8], is_query: bool) {
        // Every byte but the continuations of UTF-8 begins a character.
        let chars = piece.iter().filter(|&&byte| byte & 0xc0 != 0x80).count() as u64;
        self.text_bytes += piece.len() as u64;
        self.text_chars += chars;
        self.query_chars += if is_query { chars } else { 0 };
        if std::mem::take(&mut self.separate) {
            self.keep(b"\n");
        }
        self.keep(piece);
    }

    fn keep(&mut self, piece: &[u8]) {
        let Some(kept) = &mut self.kept else { return };
        let needed = kept.len() + piece.len();
        if needed > MAX_KEPT_BYTES {
            self.kept = None;
            return;
        }
        if needed > kept.capacity() {
            // Doubling, but never past the bound.
            let room = needed.max(kept.capacity() * 2).clamp(1024, MAX_KEPT_BYTES);
            kept.reserve_exact(room - kept.len());
        }
        kept.extend_from_slice(piece);
    }

    fn end_text(&mut self, ask: Ask, nesting: u8) {
        match ask {
            Ask::Model => self.model.end(),
            Ask::Name => self.name.end(),
            Ask::Inputs | Ask::TeiInputs if nesting == 0 => self.inputs_count = Some(1),
            Ask::Inputs | Ask::TeiInputs => self.flat_texts |= nesting == 1,
            _ => {}
        }
        self.separate |= !matches!(ask, Ask::Model | Ask::Name) && self.text_bytes > 0;
    }
}

impl Sink<Ask> for Facts {
    fn text(&mut self, ask: Ask, piece: &[u8]) {
        match ask {
            Ask::Model => self.model.push(piece),
            Ask::Name => self.name.push(piece),
            Ask::Choices => {}
            _ => self.add_text(piece, ask == Ask::Query),
        }
    }

    fn value(&mut self, ask: Ask, nesting: u8, value: Value) {
        self.tei_inputs |= ask == Ask::TeiInputs;
        match (ask, value) {
            (_, Value::Text) => self.end_text(ask, nesting),
            (Ask::Choices, Value::Number(choices)) if (1.0..=1e6).contains(&choices) => {
                self.choices = Some(choices as u64);
            }
            (Ask::Inputs | Ask::TeiInputs, Value::Number(_)) if nesting == 1 => {
                self.token_ids = true;
            }
            (Ask::Inputs | Ask::TeiInputs, Value::Array(len)) if nesting == 0 => {
                self.inputs_count = Some(len);
            }
            _ => {}
        }
    }
}
