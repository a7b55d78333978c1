//! The JSON scanner: any cut says the same, and a valid document is read as `serde_json` reads it.
#![no_main]

use inferwatch_fuzz::cut;
use inferwatch_proxy::observe::fuzzing::{Node, Scanner, Sink, Value};
use libfuzzer_sys::fuzz_target;

static TREE: Node<u8> = Node::object(&[
    ("a", Node::either(0, &[("b", Node::leaf(1)), ("a", Node::leaf(2))])),
    ("n", Node::leaf(3)),
    ("usage", Node::object(&[("prompt_tokens", Node::leaf(4))])),
    ("model", Node::leaf(5)),
    ("choices", Node::object(&[("delta", Node::object(&[("content", Node::leaf(6))]))])),
]);

#[derive(Debug, Default, PartialEq)]
struct Found {
    values: Vec<(u8, u8, String)>,
    text: Vec<u8>,
    records: usize,
}

impl Sink<u8> for Found {
    fn text(&mut self, _: u8, piece: &[u8]) {
        self.text.extend_from_slice(piece);
    }

    fn value(&mut self, field: u8, nesting: u8, value: Value) {
        let value = match value {
            Value::Text => String::from_utf8_lossy(&std::mem::take(&mut self.text)).into_owned(),
            other => format!("{other:?}"),
        };
        self.values.push((field, nesting, value));
    }

    fn record(&mut self, _: bool) {
        self.records += 1;
    }
}

fn scan(pieces: &[&[u8]]) -> (Found, bool, bool) {
    let mut scanner = Scanner::new(&TREE);
    let mut found = Found::default();
    for piece in pieces {
        scanner.feed(piece, &mut found);
    }
    scanner.finish(&mut found);
    (found, scanner.is_done(), scanner.is_broken())
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    let whole = scan(&[body]);
    assert_eq!(scan(&pieces), whole);
    let (found, done, broken) = whole;
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    assert!(done && !broken, "a valid document was given up");
    let repeats =
        |key: &str| body.windows(key.len()).filter(|part| *part == key.as_bytes()).count();
    // serde_json keeps the last of two equal keys; keys may be escaped.
    if body.contains(&b'\\') || repeats("\"n\"") > 1 || repeats("\"model\"") > 1 {
        return;
    }
    let last = |field| found.values.iter().rfind(|(id, ..)| *id == field).map(|(.., value)| value);
    let Some(top) = document.as_object() else { return };
    if let Some(number) = top.get("n").and_then(serde_json::Value::as_f64) {
        let expected = format!("{:?}", Value::Number(number));
        assert!(last(3).is_none_or(|found| *found == expected), "{:?} {expected}", last(3));
    }
    if let Some(model) = top.get("model").and_then(|model| model.as_str()) {
        assert_eq!(last(5).map(String::as_str), Some(model));
    }
});
