//! Cuts a stream into its events (SSE) or lines (NDJSON), keeping their bytes.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

/// How events are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// A blank line ends an event.
    Sse,
    /// A line end ends an event.
    Ndjson,
}

impl Framing {
    /// The framing of this content type, if it is a stream's.
    pub fn of(content_type: &str) -> Option<Framing> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Some(Framing::Sse),
            "application/x-ndjson" => Some(Framing::Ndjson),
            _ => None,
        }
    }

    /// Length of the first complete event in `bytes`, its end included.
    pub fn first_event_bytes(self, bytes: &[u8]) -> Option<usize> {
        let mut line_start = 0;
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            let is_blank = matches!(&bytes[line_start..at], b"" | b"\r");
            if self == Framing::Ndjson || is_blank {
                return Some(at + 1);
            }
            line_start = at + 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Framing::{Ndjson, Sse};

    #[test]
    fn first_events() {
        for (framing, bytes, length) in [
            (Sse, "", None),
            (Sse, "data: 1\n", None),
            (Sse, "data: 1\n\ndata: 2\n\n", Some(9)),
            (Sse, "data: 1\r\n\r\nx", Some(11)),
            (Sse, "event: a\ndata: b\n\n", Some(18)),
            (Sse, "\n", Some(1)),
            (Ndjson, "{}", None),
            (Ndjson, "{}\n{}\n", Some(3)),
        ] {
            assert_eq!(framing.first_event_bytes(bytes.as_bytes()), length, "{bytes:?}");
        }
    }
}
