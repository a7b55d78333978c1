//! Reads the body of an answer: decoding, framing, scanning, in constant memory. Whatever goes
//! wrong makes it blind for the rest of this answer, and says so.

use std::time::Duration;

use http::StatusCode;
use inferwatch_record::ParseTrouble;

use super::decode::{Coding, Decoder};
use super::headers::{Format, HeadFacts};
use super::json::Scanner;
use super::keys::{ANSWER, BARE_ERROR, Key};
use super::sse::{Framed, Framer};
use super::tally::Tally;
use super::{ndjson, route::RouteKind};

/// Scanner and framer of the decoded body, and what they found.
#[derive(Debug)]
struct Reader {
    format: Format,
    framer: Framer,
    scanner: Scanner<Key>,
    broken: bool,
    /// The document, or the last event, is whole.
    balanced: bool,
    tally: Tally,
}

/// The answer as far as it came.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) head_at: Duration,
    pub(super) head: HeadFacts,
    pub(super) body_bytes: u64,
    pub(super) trouble: Option<ParseTrouble>,
    decoder: Option<Decoder>,
    reader: Option<Reader>,
    /// What to report from when the body is not looked into.
    silent: Tally,
}

impl Answer {
    /// An answer whose head has come.
    pub(super) fn new(
        kind: RouteKind,
        status: StatusCode,
        head: HeadFacts,
        head_at: Duration,
    ) -> Answer {
        let rejected = status.is_client_error() || status.is_server_error();
        let looked_into = match kind {
            RouteKind::Opaque => false,
            RouteKind::NoModelWork => rejected,
            _ => true,
        };
        let read = looked_into && head.format != Format::Bytes;
        let readable = read && head.coding != Coding::Other;
        Answer {
            status,
            head_at,
            body_bytes: 0,
            trouble: (read && !readable).then_some(ParseTrouble::Encoded),
            decoder: readable.then(|| Decoder::new(head.coding)).flatten(),
            reader: readable.then(|| Reader::new(head.format, rejected)),
            silent: Tally::new(rejected),
            head,
        }
    }

    /// Whether the body is unpacked on the way.
    pub(super) fn is_decoded(&self) -> bool {
        self.decoder.is_some()
    }

    /// Takes what one read from the upstream brought.
    pub(super) fn chunk(&mut self, bytes: &[u8], at: Duration) {
        self.body_bytes = self.body_bytes.saturating_add(bytes.len() as u64);
        let Some(reader) = self.reader.as_mut().filter(|_| self.trouble.is_none()) else { return };
        reader.tally.read(at);
        match &mut self.decoder {
            None => reader.feed(bytes),
            Some(decoder) => {
                self.trouble = decoder.feed(bytes, &mut |piece| reader.feed(piece)).err();
            }
        }
        if reader.broken {
            self.trouble = Some(ParseTrouble::GaveUp);
        }
        if self.trouble.is_some() {
            self.decoder = None;
        }
    }

    /// No more of the body will come.
    pub(super) fn end(&mut self) {
        if let Some(reader) = self.reader.as_mut().filter(|_| self.trouble.is_none()) {
            reader.finish();
        }
    }

    /// What the body said.
    pub(super) fn tally(&self) -> &Tally {
        self.reader.as_ref().map_or(&self.silent, |reader| &reader.tally)
    }

    /// Whether the body can tell where it ends.
    pub(super) fn is_read(&self) -> bool {
        self.reader.is_some() && self.trouble.is_none()
    }

    /// Whether the document is balanced.
    pub(super) fn is_balanced(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.balanced)
    }

    /// When the first token came, if tokens were streamed.
    pub(super) fn first_token_at(&self) -> Option<Duration> {
        self.tally().clock.first().filter(|_| self.head.format.is_stream())
    }

    /// Heap bytes held, the inflate state reckoned at its known size.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        const INFLATE_BYTES: usize = 44 << 10;
        let decoder = self.decoder.as_ref().map_or(0, |_| INFLATE_BYTES);
        decoder + self.tally().heap_bytes()
    }
}

impl Reader {
    fn new(format: Format, rejected: bool) -> Reader {
        Reader {
            format,
            framer: Framer::default(),
            scanner: Scanner::new(&ANSWER),
            broken: false,
            balanced: false,
            tally: Tally::new(rejected),
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let Reader { framer, scanner, tally, broken, .. } = self;
        let mut take = |framed: Framed<'_>| take(scanner, tally, broken, framed);
        match self.format {
            Format::Events => framer.feed(bytes, &mut take),
            Format::Lines => ndjson::feed(bytes, &mut take),
            Format::Document | Format::Bytes => take(Framed::Data(bytes)),
        }
    }

    fn finish(&mut self) {
        let Reader { framer, scanner, tally, broken, .. } = self;
        if self.format == Format::Events {
            framer.finish(&mut |framed| match framed {
                // An event that is cut is no trouble, it is an end that is missing.
                Framed::EndOfEvent => {}
                framed => take(scanner, tally, broken, framed),
            });
        }
        scanner.finish(tally);
        self.balanced = scanner.is_done();
    }
}

fn take(scanner: &mut Scanner<Key>, tally: &mut Tally, broken: &mut bool, framed: Framed<'_>) {
    if *broken {
        return;
    }
    match framed {
        Framed::Data(bytes) => scanner.feed(bytes, tally),
        Framed::ErrorData(bytes) => {
            if scanner.is_empty() {
                scanner.restart(&BARE_ERROR);
            }
            scanner.feed(bytes, tally);
        }
        Framed::EndOfEvent => {
            scanner.finish(tally);
            *broken |= !scanner.is_done() && !scanner.is_empty();
            scanner.restart(&ANSWER);
        }
        Framed::Done => tally.done_mark(),
    }
    *broken |= scanner.is_broken();
}
