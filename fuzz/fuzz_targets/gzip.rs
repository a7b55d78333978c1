//! The decoder: what was packed comes out however it is cut, and garbage does no harm.
#![no_main]

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use inferwatch_fuzz::cut;
use inferwatch_proxy::observe::fuzzing::{Coding, Decoder};
use libfuzzer_sys::fuzz_target;

fn decode(coding: Coding, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut decoder = Decoder::new(coding).expect("a coding that can be decoded");
    let mut out = Vec::new();
    let fed = pieces
        .iter()
        .all(|piece| decoder.feed(piece, &mut |bytes| out.extend_from_slice(bytes)).is_ok());
    (out, fed)
}

fn recut<'a>(packed: &'a [u8], pieces: &[&[u8]]) -> Vec<&'a [u8]> {
    let mut rest = packed;
    let mut recut = Vec::new();
    for piece in pieces {
        let (head, tail) = rest.split_at(piece.len().min(rest.len()));
        recut.push(head);
        rest = tail;
    }
    recut.push(rest);
    recut
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    for coding in [Coding::Gzip, Coding::Deflate] {
        let (whole, fine) = decode(coding, &[body]);
        let (cut, cut_fine) = decode(coding, &pieces);
        assert_eq!(cut_fine, fine);
        assert!(!fine || cut == whole);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body).expect("a vector takes all");
    zlib.write_all(body).expect("a vector takes all");
    let packed = [
        (Coding::Gzip, gzip.finish().expect("a vector takes all")),
        (Coding::Deflate, zlib.finish().expect("a vector takes all")),
    ];
    for (coding, packed) in packed {
        assert_eq!(decode(coding, &recut(&packed, &pieces)), (body.to_vec(), true));
    }
});
