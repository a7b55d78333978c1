//! Inflates a copy of a compressed body for the observer, in pieces, with bounds on memory and
//! on output. What flows to the client stays as it is.

use flate2::{Decompress, FlushDecompress, Status};
use inferwatch_record::ParseTrouble;

/// A body that unpacks to more than this is watched no further.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
const PIECE_BYTES: usize = 4096;

/// How a body is packed, by its `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Not at all.
    Identity,
    /// `gzip`, `x-gzip`.
    Gzip,
    /// `deflate`: zlib, or raw as some servers send it.
    Deflate,
    /// Anything else: `br`, `zstd`, several in a row.
    Other,
}

impl Coding {
    /// Reads the value of a `Content-Encoding` header.
    pub fn from_header(value: &str) -> Coding {
        let value = value.trim();
        let is = |name: &str| value.eq_ignore_ascii_case(name);
        match value {
            "" => Coding::Identity,
            _ if is("identity") => Coding::Identity,
            _ if is("gzip") || is("x-gzip") => Coding::Gzip,
            _ if is("deflate") => Coding::Deflate,
            _ => Coding::Other,
        }
    }
}

/// The parts of a gzip member before its data, in order (RFC 1952).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    Fixed(usize),
    ExtraLength(usize),
    Extra(usize),
    Name,
    Comment,
    HeaderCrc(usize),
    Data,
    Trailer(usize),
    /// Deflate whose first byte has not come.
    Unwrapped,
    /// Whatever stands behind the end of the data.
    After,
}

const FLAG_HEADER_CRC: u8 = 2;
const FLAG_EXTRA: u8 = 4;
const FLAG_NAME: u8 = 8;
const FLAG_COMMENT: u8 = 16;

/// A decoder of one body. It holds about 43 KiB while it works.
#[derive(Debug)]
pub struct Decoder {
    gzip: bool,
    part: Part,
    flags: u8,
    extra_bytes: usize,
    inflate: Option<Decompress>,
    output_bytes: u64,
}

impl Decoder {
    /// A decoder for a body in this coding, `None` if there is nothing to decode or no way to.
    pub fn new(coding: Coding) -> Option<Decoder> {
        let part = match coding {
            Coding::Gzip => Part::Fixed(0),
            Coding::Deflate => Part::Unwrapped,
            Coding::Identity | Coding::Other => return None,
        };
        let gzip = coding == Coding::Gzip;
        Some(Decoder { gzip, part, flags: 0, extra_bytes: 0, inflate: None, output_bytes: 0 })
    }

    /// Decodes the next bytes, in pieces of at most 4 KiB.
    ///
    /// # Errors
    /// `GaveUp` if the bytes are not what the coding says, `Encoded` if they unpack to more than
    /// 64 MiB. Nothing more can be decoded after that.
    pub fn feed(&mut self, bytes: &[u8], out: &mut impl FnMut(&[u8])) -> Result<(), ParseTrouble> {
        let mut rest = bytes;
        while !rest.is_empty() && self.part != Part::After {
            let taken = match self.part {
                Part::Data => self.inflate(rest, out)?,
                _ => self.frame(rest)?,
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    fn frame(&mut self, rest: &[u8]) -> Result<usize, ParseTrouble> {
        let Some(&byte) = rest.first() else { return Ok(0) };
        self.part = match self.part {
            Part::Unwrapped => {
                // A zlib header says method 8 in its low half; raw data cannot sensibly.
                self.begin_data(byte & 0x0f == 8);
                return Ok(0);
            }
            Part::Fixed(at) => self.fixed(at, byte)?,
            Part::ExtraLength(at) => self.extra_length(at, byte),
            Part::Extra(left) if left > 1 => Part::Extra(left - 1),
            Part::Extra(_) => self.after_extra(),
            Part::Name if byte != 0 => Part::Name,
            Part::Name => self.after_name(),
            Part::Comment if byte != 0 => Part::Comment,
            Part::Comment => self.after_comment(),
            Part::HeaderCrc(0) => Part::HeaderCrc(1),
            Part::HeaderCrc(_) => self.begin_data(false),
            Part::Trailer(at) if at < 7 => Part::Trailer(at + 1),
            Part::Trailer(_) => Part::Fixed(0),
            part @ (Part::Data | Part::After) => part,
        };
        Ok(1)
    }

    fn fixed(&mut self, at: usize, byte: u8) -> Result<Part, ParseTrouble> {
        let expected = [0x1f, 0x8b, 8].get(at);
        if expected.is_some_and(|&expected| expected != byte) {
            // Padding behind a member is no reason to complain.
            let padding = at == 0 && self.output_bytes > 0;
            return if padding { Ok(Part::After) } else { Err(ParseTrouble::GaveUp) };
        }
        if at == 3 {
            self.flags = byte;
        }
        Ok(match at {
            9 if self.flags & FLAG_EXTRA != 0 => Part::ExtraLength(0),
            9 => self.after_extra(),
            _ => Part::Fixed(at + 1),
        })
    }

    fn extra_length(&mut self, at: usize, byte: u8) -> Part {
        if at == 0 {
            self.extra_bytes = byte.into();
            return Part::ExtraLength(1);
        }
        self.extra_bytes |= usize::from(byte) << 8;
        if self.extra_bytes > 0 { Part::Extra(self.extra_bytes) } else { self.after_extra() }
    }

    fn after_extra(&mut self) -> Part {
        if self.flags & FLAG_NAME != 0 { Part::Name } else { self.after_name() }
    }

    fn after_name(&mut self) -> Part {
        if self.flags & FLAG_COMMENT != 0 { Part::Comment } else { self.after_comment() }
    }

    fn after_comment(&mut self) -> Part {
        if self.flags & FLAG_HEADER_CRC != 0 { Part::HeaderCrc(0) } else { self.begin_data(false) }
    }

    fn begin_data(&mut self, zlib: bool) -> Part {
        match &mut self.inflate {
            Some(inflate) => inflate.reset(zlib),
            None => self.inflate = Some(Decompress::new(zlib)),
        }
        self.part = Part::Data;
        Part::Data
    }

    /// Inflates until the input is used up and nothing is held back, or the data ends.
    fn inflate(&mut self, rest: &[u8], out: &mut impl FnMut(&[u8])) -> Result<usize, ParseTrouble> {
        let Some(inflate) = &mut self.inflate else { return Err(ParseTrouble::GaveUp) };
        let mut piece = [0; PIECE_BYTES];
        let mut taken = 0;
        loop {
            let (read, written) = (inflate.total_in(), inflate.total_out());
            let input = rest.get(taken..).unwrap_or_default();
            let status = inflate
                .decompress(input, &mut piece, FlushDecompress::None)
                .map_err(|_| ParseTrouble::GaveUp)?;
            let fresh = usize::try_from(inflate.total_in() - read).unwrap_or(input.len());
            let produced = usize::try_from(inflate.total_out() - written).unwrap_or(PIECE_BYTES);
            taken += fresh;
            out(piece.get(..produced).unwrap_or_default());
            self.output_bytes = self.output_bytes.saturating_add(produced as u64);
            if self.output_bytes > MAX_OUTPUT_BYTES {
                return Err(ParseTrouble::Encoded);
            }
            if status == Status::StreamEnd {
                self.part = if self.gzip { Part::Trailer(0) } else { Part::After };
                return Ok(taken);
            }
            if produced < PIECE_BYTES && taken == rest.len() {
                return Ok(taken);
            }
            // What its window holds may come out before it takes more in: only both at rest is stuck.
            if produced == 0 && fresh == 0 {
                return Err(ParseTrouble::GaveUp);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Numbers as an embedding has them: they pack to about half, across many windows.
    fn numbers() -> Vec<u8> {
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64 / 1e7
        };
        (0..30_000).flat_map(|_| format!("{:.7},", next()).into_bytes()).collect()
    }

    fn packed(plain: &[u8], flush_each: usize) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        for part in plain.chunks(flush_each) {
            encoder.write_all(part).unwrap();
            encoder.flush().unwrap();
        }
        encoder.finish().unwrap()
    }

    #[test]
    fn any_piece_of_any_size_is_unpacked() {
        let plain = numbers();
        for flush_each in [500, 20_000, plain.len()] {
            let packed = packed(&plain, flush_each);
            for size in [1, 1000, 4096, 8192, 32_768, 65_536, packed.len()] {
                let mut decoder = Decoder::new(Coding::Gzip).unwrap();
                let mut found = Vec::new();
                for piece in packed.chunks(size) {
                    let fed = decoder.feed(piece, &mut |bytes| found.extend_from_slice(bytes));
                    assert_eq!(fed, Ok(()), "pieces of {size}, flushed each {flush_each}");
                }
                assert!(found == plain, "pieces of {size}, flushed each {flush_each}");
            }
        }
    }
}
