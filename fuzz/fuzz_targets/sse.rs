//! The event-stream framer: any cut frames the same, and nothing is framed that was not there.
#![no_main]

use inferwatch_fuzz::cut;
use inferwatch_proxy::observe::fuzzing::{Framed, Framer};
use libfuzzer_sys::fuzz_target;

fn frame(pieces: &[&[u8]]) -> (Vec<(char, Vec<u8>)>, usize) {
    let mut framer = Framer::default();
    let mut frames: Vec<(char, Vec<u8>)> = Vec::new();
    let mut data_bytes = 0;
    let mut take = |framed: Framed<'_>| {
        let (kind, bytes) = match framed {
            Framed::Data(bytes) => ('d', bytes),
            Framed::ErrorData(bytes) => ('e', bytes),
            Framed::EndOfEvent => ('.', &b""[..]),
            Framed::Done => ('D', &b""[..]),
        };
        data_bytes += bytes.len();
        match frames.last_mut() {
            Some((last, held)) if *last == kind && kind != '.' && kind != 'D' => {
                held.extend_from_slice(bytes);
            }
            _ => frames.push((kind, bytes.to_vec())),
        }
    };
    for piece in pieces {
        framer.feed(piece, &mut take);
    }
    framer.finish(&mut take);
    (frames, data_bytes)
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    let (frames, data_bytes) = frame(&[body]);
    assert_eq!(frame(&pieces).0, frames);
    assert!(data_bytes <= body.len());
});
