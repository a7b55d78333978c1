//! Depth-aware incremental JSON scanner: finds the wanted values in a stream of bytes, whatever
//! way it is cut, and keeps none of it.
//!
//! What is wanted is a static tree of keys. Arrays are transparent (`choices[].delta` is
//! `choices` → `delta`), and everything outside the tree is skipped by counting brackets.
//! Outside the tree the scanner is lenient: it proves balance, not grammar.

mod skip;
mod tree;
mod unescape;
mod word;

pub use tree::{Node, Sink, Value};

use skip::{Skip, Skipped};
use unescape::{Unescape, find_stop};
use word::Word;

/// Wanted keys nested deeper than this are skipped.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    KeyText,
    Colon,
    AfterValue,
    Text,
    Number,
    /// What it will be, and the letters that must still come.
    Literal(Value, &'static [u8]),
    Skip,
    Done,
    Broken,
}

#[derive(Debug)]
struct Frame<F: 'static> {
    node: &'static Node<F>,
    array: bool,
    nesting: u8,
    elements: u64,
}

impl<F> Clone for Frame<F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Frame<F> {}

/// The scanner of one document at a time.
#[derive(Debug)]
pub struct Scanner<F: 'static> {
    root: &'static Node<F>,
    frames: [Frame<F>; MAX_DEPTH],
    depth: usize,
    state: State,
    /// Where the value stands that comes next or is being read; `None` if it is not wanted.
    node: Option<&'static Node<F>>,
    word: Word,
    unescape: Unescape,
    skip: Skip,
}

impl<F: Copy> Scanner<F> {
    /// A scanner at the start of a document that looks for what `root` wants.
    pub fn new(root: &'static Node<F>) -> Scanner<F> {
        let frame = Frame { node: root, array: false, nesting: 0, elements: 0 };
        Scanner {
            root,
            frames: [frame; MAX_DEPTH],
            depth: 0,
            state: State::Value,
            node: Some(root),
            word: Word::default(),
            unescape: Unescape::default(),
            skip: Skip::default(),
        }
    }

    /// Forgets the document and starts a new one.
    pub fn restart(&mut self, root: &'static Node<F>) {
        self.root = root;
        self.depth = 0;
        self.state = State::Value;
        self.node = Some(root);
    }

    /// Whether nothing but white space has come since the start of the document.
    pub fn is_empty(&self) -> bool {
        self.depth == 0 && self.state == State::Value
    }

    /// Whether the document is balanced and complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the bytes turned out not to be JSON. Nothing is read after that.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Tells that no more bytes belong to the document: only now does a bare number end.
    pub fn finish(&mut self, sink: &mut impl Sink<F>) {
        if self.depth == 0 {
            match self.state {
                State::Number => self.end_number(sink),
                State::Skip if self.skip.is_scalar() => self.end_value(),
                _ => {}
            }
        }
    }

    /// Reads on.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl Sink<F>) {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Broken {
            let taken = self.advance(rest, sink);
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// Reads a run of bytes that one state can take and returns its length; it may be 0 if the
    /// state changed.
    fn advance(&mut self, rest: &[u8], sink: &mut impl Sink<F>) -> usize {
        match self.state {
            State::Skip => self.advance_skip(rest),
            State::Text => self.advance_text(rest, sink),
            State::KeyText => self.advance_key(rest),
            State::Number => self.advance_number(rest, sink),
            State::Literal(value, left) => self.advance_literal(value, left, rest, sink),
            _ => self.advance_punctuation(rest, sink),
        }
    }

    fn advance_skip(&mut self, rest: &[u8]) -> usize {
        let (taken, skipped) = self.skip.feed(rest);
        match skipped {
            Skipped::More => {}
            Skipped::Ended => self.end_value(),
            Skipped::TooDeep => self.state = State::Broken,
        }
        taken
    }

    fn advance_text(&mut self, rest: &[u8], sink: &mut impl Sink<F>) -> usize {
        let field = self.node.and_then(|node| node.field);
        let read = self.unescape.feed(rest, &mut |piece| {
            if let Some(field) = field {
                sink.text(field, piece);
            }
        });
        match read {
            Ok((taken, false)) => taken,
            Ok((taken, true)) => {
                self.deliver(Value::Text, sink);
                self.end_value();
                taken
            }
            Err(_) => self.give_up(),
        }
    }

    fn advance_key(&mut self, rest: &[u8]) -> usize {
        if let Some(key) = self.whole_key(rest) {
            self.end_key(Some(key));
            return key.len() + 1;
        }
        let word = &mut self.word;
        match self.unescape.feed(rest, &mut |piece| word.push(piece)) {
            Ok((taken, ended)) => {
                if ended {
                    let word = std::mem::take(&mut self.word);
                    self.end_key(word.get());
                }
                taken
            }
            Err(_) => self.give_up(),
        }
    }

    /// The key, if it lies before us whole and as it is: nearly every one does.
    fn whole_key<'a>(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let begins = self.unescape.is_plain() && self.word.is_empty();
        let end = find_stop(rest).filter(|_| begins)?;
        (rest.get(end) == Some(&b'"')).then(|| rest.get(..end)).flatten()
    }

    fn end_key(&mut self, key: Option<&[u8]>) {
        let object = self.top().map(|frame| frame.node);
        self.node = object.zip(key).and_then(|(node, key)| node.child(key));
        self.state = State::Colon;
    }

    fn advance_number(&mut self, rest: &[u8], sink: &mut impl Sink<F>) -> usize {
        let digits = rest.iter().take_while(|&&byte| is_number_byte(byte)).count();
        self.word.push(rest.get(..digits).unwrap_or_default());
        if digits < rest.len() {
            self.end_number(sink);
        }
        digits
    }

    fn advance_literal(
        &mut self,
        value: Value,
        left: &'static [u8],
        rest: &[u8],
        sink: &mut impl Sink<F>,
    ) -> usize {
        let (now, later) = left.split_at(left.len().min(rest.len()));
        if !rest.starts_with(now) {
            return self.give_up();
        }
        if later.is_empty() {
            self.deliver(value, sink);
            self.end_value();
        } else {
            self.state = State::Literal(value, later);
        }
        now.len()
    }

    fn advance_punctuation(&mut self, rest: &[u8], sink: &mut impl Sink<F>) -> usize {
        let Some(&byte) = rest.first() else { return 0 };
        if is_space(byte) {
            return 1;
        }
        match (self.state, byte) {
            (State::KeyOrEnd | State::Key, b'"') => self.begin_key(),
            (State::Colon, b':') => self.state = State::Value,
            (State::AfterValue, b',') => self.next_value(),
            (State::ValueOrEnd | State::AfterValue, b']') => self.close(true, sink),
            (State::KeyOrEnd | State::AfterValue, b'}') => self.close(false, sink),
            (State::Value | State::ValueOrEnd, _) => return self.begin_value(byte),
            _ => return self.give_up(),
        }
        1
    }

    fn begin_key(&mut self) {
        self.word.clear();
        self.unescape = Unescape::default();
        self.state = State::KeyText;
    }

    fn next_value(&mut self) {
        match self.top() {
            Some(frame) if frame.array => {
                self.node = Some(frame.node);
                self.state = State::Value;
            }
            _ => self.state = State::Key,
        }
    }

    /// Starts on a value. What reads its own first byte leaves it in place.
    fn begin_value(&mut self, byte: u8) -> usize {
        self.count_element();
        let wanted = self.node.filter(|node| self.wants(node, byte));
        match (byte, wanted) {
            (b'{' | b'[', Some(node)) => {
                self.open(node, byte == b'[');
                return 1;
            }
            (b'"', Some(_)) => {
                self.unescape = Unescape::default();
                self.state = State::Text;
                return 1;
            }
            (b'-' | b'0'..=b'9', Some(_)) => {
                self.word.clear();
                self.state = State::Number;
            }
            (b't', _) => self.state = State::Literal(Value::Bool(true), b"true"),
            (b'f', _) => self.state = State::Literal(Value::Bool(false), b"false"),
            (b'n', _) => self.state = State::Literal(Value::Null, b"null"),
            // Python writes NaN and Infinity.
            (b'{' | b'[' | b'"' | b'-' | b'0'..=b'9', None) | (b'N' | b'I', _) => {
                self.skip = Skip::default();
                self.state = State::Skip;
            }
            _ => return self.give_up(),
        }
        0
    }

    fn wants(&self, node: &'static Node<F>, byte: u8) -> bool {
        let room = self.depth < MAX_DEPTH;
        match byte {
            b'{' => room && !node.children.is_empty(),
            b'[' => {
                room && (node.field.is_some() || (self.nesting() == 0 && !node.children.is_empty()))
            }
            _ => node.field.is_some(),
        }
    }

    /// How many arrays lie between the value that comes next and its key.
    fn nesting(&self) -> u8 {
        match self.top() {
            Some(frame) if frame.array => frame.nesting.saturating_add(1),
            _ => 0,
        }
    }

    fn top(&self) -> Option<Frame<F>> {
        self.depth.checked_sub(1).and_then(|top| self.frames.get(top)).copied()
    }

    fn count_element(&mut self) {
        let top = self.depth.checked_sub(1).and_then(|top| self.frames.get_mut(top));
        if let Some(frame) = top {
            frame.elements = frame.elements.saturating_add(1);
        }
    }

    fn open(&mut self, node: &'static Node<F>, array: bool) {
        let nesting = self.nesting();
        if let Some(frame) = self.frames.get_mut(self.depth) {
            *frame = Frame { node, array, nesting, elements: 0 };
            self.depth += 1;
        }
        self.node = Some(node);
        self.state = if array { State::ValueOrEnd } else { State::KeyOrEnd };
    }

    fn close(&mut self, array: bool, sink: &mut impl Sink<F>) {
        let Some(frame) = self.top().filter(|frame| frame.array == array) else {
            self.state = State::Broken;
            return;
        };
        self.depth -= 1;
        if let (true, Some(field)) = (array, frame.node.field) {
            sink.value(field, frame.nesting, Value::Array(frame.elements));
        }
        if !array && std::ptr::eq(frame.node, self.root) {
            sink.record(self.depth > 0);
        }
        self.end_value();
    }

    fn end_number(&mut self, sink: &mut impl Sink<F>) {
        let digits = self.word.get().map(std::str::from_utf8);
        match digits.map(|digits| digits.map(str::parse::<f64>)) {
            None => self.end_value(),
            Some(Ok(Ok(number))) => {
                self.deliver(Value::Number(number), sink);
                self.end_value();
            }
            Some(_) => self.state = State::Broken,
        }
    }

    fn deliver(&mut self, value: Value, sink: &mut impl Sink<F>) {
        if let Some(field) = self.node.and_then(|node| node.field) {
            sink.value(field, self.nesting(), value);
        }
    }

    fn end_value(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::AfterValue };
    }

    fn give_up(&mut self) -> usize {
        self.state = State::Broken;
        0
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_number_byte(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}
