//! The line framer: any cut frames the same, and the lines are those of a plain split.
#![no_main]

use inferwatch_fuzz::cut;
use inferwatch_proxy::observe::fuzzing::{Framed, feed_lines};
use libfuzzer_sys::fuzz_target;

fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut lines = vec![Vec::new()];
    for piece in pieces {
        feed_lines(piece, &mut |framed| match framed {
            Framed::Data(bytes) => lines.last_mut().expect("a line").extend_from_slice(bytes),
            _ => lines.push(Vec::new()),
        });
    }
    lines
}

fuzz_target!(|input: &[u8]| {
    let (body, pieces) = cut(input);
    let expected: Vec<_> = body.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(lines(&pieces), expected);
});
