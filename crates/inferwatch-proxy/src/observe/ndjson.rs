//! Framer of newline-delimited JSON: a line is a document.

use memchr::memchr;

use super::sse::Framed;

/// Frames the next bytes of the stream. There is no state: where a line is cut does not matter.
pub fn feed(bytes: &[u8], out: &mut impl FnMut(Framed<'_>)) {
    let mut rest = bytes;
    while let Some(end) = memchr(b'\n', rest) {
        out(Framed::Data(rest.get(..end).unwrap_or_default()));
        out(Framed::EndOfEvent);
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    if !rest.is_empty() {
        out(Framed::Data(rest));
    }
}
