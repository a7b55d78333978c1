//! Skips a value that nobody wants, at the speed of a byte search: brackets are counted, strings
//! are stepped over, nothing else is looked at.

use memchr::memchr2;

const BLOCK_BYTES: usize = 64;

/// How a run of skipped bytes ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Skipped {
    /// The value goes on.
    More,
    /// The value has ended.
    Ended,
    /// More open brackets than can be counted.
    TooDeep,
}

/// Where in the skipped value the last read ended.
#[derive(Debug, Default)]
pub(super) struct Skip {
    depth: u32,
    place: Place,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Place {
    #[default]
    Start,
    Scalar,
    Structure,
    Text,
    Escape,
}

impl Skip {
    /// Whether the value is a bare word, which only the byte after it can end.
    pub(super) fn is_scalar(&self) -> bool {
        self.place == Place::Scalar
    }

    /// Skips on; returns how many bytes belonged to the value.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> (usize, Skipped) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (taken, skipped) = self.advance(rest);
            at += taken;
            if skipped != Skipped::More {
                return (at, skipped);
            }
        }
        (at, Skipped::More)
    }

    fn advance(&mut self, rest: &[u8]) -> (usize, Skipped) {
        match self.place {
            Place::Start => self.advance_start(rest),
            Place::Scalar => match rest.iter().position(|&byte| ends_scalar(byte)) {
                Some(end) => (end, Skipped::Ended),
                None => (rest.len(), Skipped::More),
            },
            Place::Text => match memchr2(b'"', b'\\', rest) {
                Some(found) => (found + 1, self.turn(rest.get(found).copied())),
                None => (rest.len(), Skipped::More),
            },
            Place::Escape => {
                self.place = Place::Text;
                (1, Skipped::More)
            }
            Place::Structure => match find_structural(rest) {
                Some(found) => (found + 1, self.turn(rest.get(found).copied())),
                None => (rest.len(), Skipped::More),
            },
        }
    }

    fn advance_start(&mut self, rest: &[u8]) -> (usize, Skipped) {
        match rest.first() {
            Some(&byte) if is_structural(byte) => (1, self.turn(Some(byte))),
            _ => {
                self.place = Place::Scalar;
                (0, Skipped::More)
            }
        }
    }

    /// Takes a byte that matters where it stands.
    fn turn(&mut self, byte: Option<u8>) -> Skipped {
        match (self.place, byte) {
            (Place::Text, Some(b'\\')) => self.place = Place::Escape,
            (Place::Text, _) if self.depth == 0 => return Skipped::Ended,
            (Place::Text, _) => self.place = Place::Structure,
            (_, Some(b'"')) => self.place = Place::Text,
            (_, Some(b'{' | b'[')) => {
                self.place = Place::Structure;
                match self.depth.checked_add(1) {
                    Some(depth) => self.depth = depth,
                    None => return Skipped::TooDeep,
                }
            }
            _ => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Skipped::Ended;
                }
            }
        }
        Skipped::More
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
}

fn is_structural(byte: u8) -> bool {
    // `[` and `{`, `]` and `}` differ in one bit.
    let folded = byte | 0x20;
    (byte == b'"') | (folded == b'{') | (folded == b'}')
}

/// Branchless and in bytes, so that the compiler does a block in a few vector steps.
fn holds_structural(block: &[u8; BLOCK_BYTES]) -> bool {
    block.iter().fold(0, |any, &byte| any | u8::from(is_structural(byte))) != 0
}

fn find_structural(bytes: &[u8]) -> Option<usize> {
    let (blocks, _) = bytes.as_chunks::<BLOCK_BYTES>();
    let plain = blocks.iter().take_while(|block| !holds_structural(block)).count() * BLOCK_BYTES;
    let rest = bytes.get(plain..).unwrap_or_default();
    rest.iter().position(|&byte| is_structural(byte)).map(|found| plain + found)
}
