//! A string from outside of which only the beginning is kept.

/// Longest string that is kept.
const MAX_BYTES: usize = 256;

/// The beginning of a string that arrives in pieces. A new string takes the place of the last.
#[derive(Debug, Default)]
pub(super) struct Capped {
    bytes: Vec<u8>,
    open: bool,
    present: bool,
}

impl Capped {
    /// Adds a piece; the first one after [`Capped::end`] begins a new string.
    pub(super) fn push(&mut self, piece: &[u8]) {
        if !std::mem::replace(&mut self.open, true) {
            self.bytes.clear();
        }
        let room = MAX_BYTES.saturating_sub(self.bytes.len()).min(piece.len());
        self.bytes.extend_from_slice(piece.get(..room).unwrap_or_default());
    }

    /// The string is complete; only now can it be read.
    pub(super) fn end(&mut self) {
        if !std::mem::take(&mut self.open) {
            self.bytes.clear();
        }
        self.present = true;
        self.make_valid();
    }

    /// Cuts a character that the cap cut off in its middle, and replaces what is no UTF-8.
    fn make_valid(&mut self) {
        let Err(error) = std::str::from_utf8(&self.bytes) else { return };
        if error.error_len().is_none() && self.bytes.len() == MAX_BYTES {
            self.bytes.truncate(error.valid_up_to());
        } else {
            self.bytes = String::from_utf8_lossy(&self.bytes).into_owned().into_bytes();
        }
    }

    /// Forgets the string, not its memory.
    pub(super) fn clear(&mut self) {
        self.present = false;
        self.open = false;
    }

    /// The string, if one is complete and not empty.
    pub(super) fn get(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.bytes).ok()?;
        (self.present && !self.open && !text.is_empty()).then_some(text)
    }

    /// Whether a complete string is these bytes.
    pub(super) fn is(&self, expected: &str) -> bool {
        self.present && !self.open && self.bytes == expected.as_bytes()
    }

    /// Heap bytes held.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
