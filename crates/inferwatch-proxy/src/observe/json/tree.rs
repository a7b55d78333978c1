//! The tree of wanted keys, and what the scanner delivers for them.

/// A place in a document: what its value means, and the keys wanted below it.
#[derive(Debug)]
pub struct Node<F: 'static> {
    pub(super) field: Option<F>,
    pub(super) children: &'static [(&'static str, Node<F>)],
}

impl<F> Node<F> {
    /// A value that is wanted itself.
    pub const fn leaf(field: F) -> Node<F> {
        Node { field: Some(field), children: &[] }
    }

    /// An object, or an array of objects, with wanted keys.
    pub const fn object(children: &'static [(&'static str, Node<F>)]) -> Node<F> {
        Node { field: None, children }
    }

    /// A value that is wanted itself or holds wanted keys, as the dialect has it.
    pub const fn either(field: F, children: &'static [(&'static str, Node<F>)]) -> Node<F> {
        Node { field: Some(field), children }
    }

    pub(super) fn child(&'static self, key: &[u8]) -> Option<&'static Node<F>> {
        // Few share the first byte: a cheap question before the dear one.
        let first = key.first();
        let fits = |name: &str| name.as_bytes().first() == first && name.as_bytes() == key;
        self.children.iter().find(|(name, _)| fits(name)).map(|(_, node)| node)
    }
}

/// A wanted value, delivered when it ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A string; its decoded bytes went to [`Sink::text`] before.
    Text,
    /// A number as the nearest double; infinite if it overflows one.
    Number(f64),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
    /// An array of this many elements; those that are wanted were delivered before.
    Array(u64),
}

/// Receives what the scanner finds.
pub trait Sink<F> {
    /// A part of a wanted string, decoded. An empty string has no parts.
    fn text(&mut self, field: F, piece: &[u8]);
    /// A wanted value ended; `nesting` says how many arrays lie between it and its key.
    fn value(&mut self, field: F, nesting: u8, value: Value);
    /// An object ended that is the document, or (`in_array`) an element of the array that is.
    fn record(&mut self, in_array: bool) {
        let _ = in_array;
    }
}
