//! Incremental framer of event streams: says which bytes are data, and where an event ends,
//! without keeping the event. Accepts every line end, a BOM, data with and without the space,
//! several data lines, `error:` lines (llama.cpp before October 2025) and a bare JSON line.

use memchr::memchr2;

const DONE: &[u8] = b"[DONE]";
const BOM: &[u8] = b"\xef\xbb\xbf";
/// The longest field name that matters, `error`.
const MAX_NAME_BYTES: usize = 5;

/// A part of a framed stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Framed<'a> {
    /// A part of an event's data.
    Data(&'a [u8]),
    /// A part of an error object that stands outside the events.
    ErrorData(&'a [u8]),
    /// The data so far was one event.
    EndOfEvent,
    /// `[DONE]`: the stream says that it is complete.
    Done,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Place {
    /// At the start of the stream, so many bytes into a BOM.
    Bom(usize),
    #[default]
    LineStart,
    Name,
    AfterColon,
    Payload,
    Ignored,
}

/// Where in the stream the last read ended.
#[derive(Debug)]
pub struct Framer {
    place: Place,
    name: [u8; MAX_NAME_BYTES],
    name_len: usize,
    after_cr: bool,
    /// The payload is an `error:` line.
    error_line: bool,
    /// The payload is a line without a field name.
    bare_line: bool,
    /// The event has data.
    has_data: bool,
    /// How much of `[DONE]` the event's data has matched, while that is all it holds.
    matched: Option<usize>,
}

impl Default for Framer {
    fn default() -> Framer {
        Framer {
            place: Place::Bom(0),
            name: [0; MAX_NAME_BYTES],
            name_len: 0,
            after_cr: false,
            error_line: false,
            bare_line: false,
            has_data: false,
            matched: Some(0),
        }
    }
}

impl Framer {
    /// Frames the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8], out: &mut impl FnMut(Framed<'_>)) {
        let mut rest = bytes;
        while let Some(&byte) = rest.first() {
            let taken = match (std::mem::take(&mut self.after_cr), byte) {
                (true, b'\n') => 1,
                _ => self.advance(byte, rest, out),
            };
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// The stream has ended: an event that lacks its blank line ends too.
    pub fn finish(&mut self, out: &mut impl FnMut(Framed<'_>)) {
        self.release_match(out);
        self.end_event(out);
    }

    fn advance(&mut self, byte: u8, rest: &[u8], out: &mut impl FnMut(Framed<'_>)) -> usize {
        match self.place {
            Place::Bom(matched) => self.bom(matched, byte),
            Place::LineStart => self.line_start(byte, out),
            Place::Name => self.name(byte, out),
            Place::AfterColon => {
                self.place = Place::Payload;
                usize::from(byte == b' ')
            }
            Place::Payload | Place::Ignored => self.rest_of_line(rest, out),
        }
    }

    fn bom(&mut self, matched: usize, byte: u8) -> usize {
        if BOM.get(matched) == Some(&byte) {
            self.place = Place::Bom(matched + 1);
            return 1;
        }
        self.place = match matched {
            0 | 3 => Place::LineStart,
            _ => Place::Ignored,
        };
        0
    }

    fn line_start(&mut self, byte: u8, out: &mut impl FnMut(Framed<'_>)) -> usize {
        self.error_line = false;
        self.bare_line = byte == b'{';
        self.name_len = 0;
        match byte {
            b'\n' | b'\r' => {
                self.after_cr = byte == b'\r';
                self.end_event(out);
                return 1;
            }
            b'{' => {
                self.end_event(out);
                self.place = Place::Payload;
            }
            b':' => self.place = Place::Ignored,
            _ => self.place = Place::Name,
        }
        0
    }

    fn name(&mut self, byte: u8, out: &mut impl FnMut(Framed<'_>)) -> usize {
        match byte {
            b'\n' | b'\r' => {
                self.end_line(byte, out);
                return 1;
            }
            b':' => self.begin_payload(out),
            _ => {
                if let Some(room) = self.name.get_mut(self.name_len) {
                    *room = byte;
                }
                self.name_len = (self.name_len + 1).min(MAX_NAME_BYTES + 1);
            }
        }
        1
    }

    fn begin_payload(&mut self, out: &mut impl FnMut(Framed<'_>)) {
        self.place = Place::AfterColon;
        match self.name.get(..self.name_len) {
            Some(b"data") if self.has_data => out(Framed::Data(b"\n")),
            Some(b"data") => {}
            Some(b"error") => {
                self.end_event(out);
                self.error_line = true;
            }
            _ => self.place = Place::Ignored,
        }
    }

    fn rest_of_line(&mut self, rest: &[u8], out: &mut impl FnMut(Framed<'_>)) -> usize {
        let end = memchr2(b'\n', b'\r', rest);
        if self.place == Place::Payload {
            self.payload(rest.get(..end.unwrap_or(rest.len())).unwrap_or_default(), out);
        }
        match end.and_then(|end| rest.get(end).map(|&byte| (end, byte))) {
            None => rest.len(),
            Some((end, byte)) => {
                self.end_line(byte, out);
                end + 1
            }
        }
    }

    fn payload(&mut self, run: &[u8], out: &mut impl FnMut(Framed<'_>)) {
        let mut run = run;
        if let Some(matched) = self.matched.filter(|_| !self.error_line) {
            let wanted = DONE.get(matched..).unwrap_or_default();
            let common = run.iter().zip(wanted).take_while(|(byte, wanted)| byte == wanted).count();
            self.matched = Some(matched + common);
            run = run.get(common..).unwrap_or_default();
            if matched + common == DONE.len() {
                self.place = Place::Ignored;
                self.matched = Some(0);
                return out(Framed::Done);
            }
        }
        if !run.is_empty() {
            self.release_match(out);
            self.has_data = true;
            out(if self.error_line { Framed::ErrorData(run) } else { Framed::Data(run) });
        }
    }

    /// Hands on what looked like the start of `[DONE]` and was not.
    fn release_match(&mut self, out: &mut impl FnMut(Framed<'_>)) {
        match self.matched.take().and_then(|matched| DONE.get(..matched)) {
            None | Some([]) => {}
            Some(held) => {
                self.has_data = true;
                out(Framed::Data(held));
            }
        }
    }

    fn end_line(&mut self, byte: u8, out: &mut impl FnMut(Framed<'_>)) {
        self.after_cr = byte == b'\r';
        self.place = Place::LineStart;
        if self.matched.is_some_and(|matched| matched > 0) {
            self.release_match(out);
        }
        if self.error_line || self.bare_line {
            self.end_event(out);
        }
    }

    fn end_event(&mut self, out: &mut impl FnMut(Framed<'_>)) {
        self.matched = Some(0);
        if std::mem::take(&mut self.has_data) {
            out(Framed::EndOfEvent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes frames down: data in brackets, errors in braces, `.` for the end of an event, `D`.
    fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
        let mut framer = Framer::default();
        let mut frames = String::new();
        let mut write = |framed: Framed<'_>| match framed {
            Framed::Data(bytes) => frames += &format!("[{}]", bytes.escape_ascii()),
            Framed::ErrorData(bytes) => frames += &format!("{{{}}}", bytes.escape_ascii()),
            Framed::EndOfEvent => frames.push('.'),
            Framed::Done => frames.push('D'),
        };
        pieces.into_iter().for_each(|piece| framer.feed(piece, &mut write));
        framer.finish(&mut write);
        // Where data is cut does not matter.
        frames.replace("][", "").replace("}{", "")
    }

    fn check(stream: &str, expected: &str) {
        assert_eq!(frames([stream.as_bytes()]), expected, "{stream:?}");
        assert_eq!(frames(stream.as_bytes().chunks(1)), expected, "{stream:?} byte by byte");
    }

    #[test]
    fn every_way_to_write_an_event_is_read() {
        check("data: a\n\ndata:b\n\n", "[a].[b].");
        check("data: a\r\ndata: b\r\n\r\ndata: c\r\n\r\n", "[a\\nb].[c].");
        check("data: a\rdata: b\r\rdata: c\r\r", "[a\\nb].[c].");
        check("\u{feff}data: a\n\n", "[a].");
        check("data: a", "[a].");
        check(": ping\n\n:\n\ndata: a\n: ping\ndata: b\n\n", "[a\\nb].");
        check("event: x\nid: 1\nretry: 2\ndatax: no\ndata\ndata: a\n\n", "[a].");
        check("data:  a\n\n", "[ a].");
        check("data:\n\ndata: \n\n", "");
    }

    #[test]
    fn the_end_mark_is_told_from_data_that_begins_like_it() {
        check("data: [DONE]\n\n", "D");
        check("data:[DONE] \n\ndata: a\n\n", "D[a].");
        check("data: [DONE]", "D");
        check("data: [DO\n\n", "[[DO].");
        check("data: [DOG]\n\n", "[[DOG]].");
        check("data: [1]\n\n", "[[1]].");
        check("data: [D", "[[D].");
        check("data: a\ndata: [DONE]\n\n", "[a\\n[DONE]].");
    }

    #[test]
    fn errors_outside_the_events_are_read() {
        check("error: {\"code\":5}\n\n", "{{\"code\":5}}.".replace("\"", "\\\"").as_str());
        check("data: a\n\nerror: b\n\ndata: c\n\n", "[a].{b}.[c].");
        check("{x}\ndata: a\n\n", "[{x}].[a].");
        check("{x}", "[{x}].");
    }
}
