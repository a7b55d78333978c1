//! A short word of a document, put together across reads.

/// Longest key that can match, and longest number that is read.
const MAX_WORD_BYTES: usize = 64;

/// A short word that is put together across reads: a key or a number.
#[derive(Debug)]
pub(super) struct Word {
    bytes: [u8; MAX_WORD_BYTES],
    len: usize,
    overlong: bool,
}

impl Default for Word {
    fn default() -> Word {
        Word { bytes: [0; MAX_WORD_BYTES], len: 0, overlong: false }
    }
}

impl Word {
    /// Whether nothing has been added.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && !self.overlong
    }

    /// Begins a new word.
    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.overlong = false;
    }

    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + piece.len()) {
            Some(room) => {
                room.copy_from_slice(piece);
                self.len += piece.len();
            }
            None => self.overlong = true,
        }
    }

    /// The word; `None` if it was too long to keep.
    pub(super) fn get(&self) -> Option<&[u8]> {
        if self.overlong { None } else { self.bytes.get(..self.len) }
    }
}
