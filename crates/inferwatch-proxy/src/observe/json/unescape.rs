//! Decodes the inside of a JSON string that may be cut anywhere, within an escape too. Bytes
//! that are not UTF-8 pass as they are; a lone surrogate becomes U+FFFD.

use memchr::memchr2;

/// The escape is none that JSON knows.
#[derive(Debug)]
pub(super) struct BadEscape;

/// Where in the string the last read ended.
#[derive(Debug, Default)]
pub(super) struct Unescape {
    place: Place,
    /// The first half of a surrogate pair that waits for the second.
    high: Option<u16>,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    #[default]
    Plain,
    Escape,
    Hex {
        digits: u8,
        unit: u16,
    },
}

impl Unescape {
    /// Whether the next byte stands for itself.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.place, Place::Plain) && self.high.is_none()
    }

    /// Reads on, handing decoded pieces to `out`; returns the bytes taken and whether the closing
    /// quote was among them.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), BadEscape> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (taken, ended) = self.advance(rest, out)?;
            at += taken;
            if ended {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn advance(
        &mut self,
        rest: &[u8],
        out: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), BadEscape> {
        let first = rest.first().copied().unwrap_or_default();
        match self.place {
            Place::Plain => Ok(self.plain(rest, out)),
            Place::Escape => self.escape(first, out).map(|()| (1, false)),
            Place::Hex { digits, unit } => self.hex(digits, unit, first, out).map(|()| (1, false)),
        }
    }

    fn plain(&mut self, rest: &[u8], out: &mut impl FnMut(&[u8])) -> (usize, bool) {
        let stop = find_stop(rest);
        let run = rest.get(..stop.unwrap_or(rest.len())).unwrap_or_default();
        let ended = stop.is_some_and(|stop| rest.get(stop) == Some(&b'"'));
        if !run.is_empty() || ended {
            self.drop_lone_high(out);
        }
        if !run.is_empty() {
            out(run);
        }
        if stop.is_some() && !ended {
            self.place = Place::Escape;
        }
        (run.len() + usize::from(stop.is_some()), ended)
    }

    fn escape(&mut self, byte: u8, out: &mut impl FnMut(&[u8])) -> Result<(), BadEscape> {
        let decoded = match byte {
            b'u' => {
                self.place = Place::Hex { digits: 0, unit: 0 };
                return Ok(());
            }
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return Err(BadEscape),
        };
        self.place = Place::Plain;
        self.drop_lone_high(out);
        out(&[decoded]);
        Ok(())
    }

    fn hex(
        &mut self,
        digits: u8,
        unit: u16,
        byte: u8,
        out: &mut impl FnMut(&[u8]),
    ) -> Result<(), BadEscape> {
        let digit = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok());
        let unit = unit << 4 | digit.ok_or(BadEscape)?;
        if digits == 3 {
            self.place = Place::Plain;
            self.code_unit(unit, out);
        } else {
            self.place = Place::Hex { digits: digits + 1, unit };
        }
        Ok(())
    }

    fn code_unit(&mut self, unit: u16, out: &mut impl FnMut(&[u8])) {
        if let (Some(high), 0xdc00..=0xdfff) = (self.high, unit) {
            self.high = None;
            let pair = char::decode_utf16([high, unit]).next().and_then(Result::ok);
            return emit(pair.unwrap_or(char::REPLACEMENT_CHARACTER), out);
        }
        self.drop_lone_high(out);
        match unit {
            0xd800..=0xdbff => self.high = Some(unit),
            _ => emit(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER), out),
        }
    }

    fn drop_lone_high(&mut self, out: &mut impl FnMut(&[u8])) {
        if self.high.take().is_some() {
            emit(char::REPLACEMENT_CHARACTER, out);
        }
    }
}

/// Keys and most values are short: looked at byte by byte they cost less than the call of a search.
const SHORT_BYTES: usize = 16;

/// Where the plain run ends: at the closing quote or a backslash.
pub(super) fn find_stop(bytes: &[u8]) -> Option<usize> {
    let (short, long) = bytes.split_at(bytes.len().min(SHORT_BYTES));
    let near = short.iter().position(|&byte| byte == b'"' || byte == b'\\');
    near.or_else(|| memchr2(b'"', b'\\', long).map(|far| far + SHORT_BYTES))
}

fn emit(decoded: char, out: &mut impl FnMut(&[u8])) {
    out(decoded.encode_utf8(&mut [0; 4]).as_bytes());
}
