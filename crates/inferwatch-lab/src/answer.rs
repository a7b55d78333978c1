//! One answer of a fake model server: turns the progress of its work into steps on the wire,
//! with one fault committed on the way.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use crate::dialect::{Context, Dialect, Voice};
use crate::engine::{Progress, Said, Timings};
use crate::fault::Fault;
use crate::gate::{GARBAGE, Gate};
use crate::script::Step;
use crate::sse::Framing;
use crate::wire;

/// The state of an answer.
pub(crate) struct Answer {
    voice: &'static dyn Voice,
    context: Context,
    fault: Fault,
    gate: Gate,
    /// `None` for an answer in one document.
    streamed: Option<Framing>,
    /// Whether the connection is closed after it.
    close: bool,
    /// A head that waits for the first event.
    head: Vec<u8>,
    events_count: u64,
    interrupted: bool,
}

impl Answer {
    pub(crate) fn new(
        voice: &'static dyn Voice,
        context: Context,
        fault: Fault,
        close: bool,
    ) -> Answer {
        let wants_stream = context.ask.stream.unwrap_or_else(|| voice.streams_by_default());
        let whole_only = matches!(fault, Fault::WrongLength { .. });
        let streamed = voice.framing().filter(|_| wants_stream && !whole_only);
        let gate = Gate::new(fault);
        let (head, events_count, interrupted) = (Vec::new(), 0, false);
        Answer { voice, context, fault, gate, streamed, close, head, events_count, interrupted }
    }

    /// What is said about this progress.
    pub(crate) fn speak(&mut self, progress: Progress) -> Said {
        let steps = match (self.streamed, progress) {
            (Some(framing), progress) => self.stream(framing, progress),
            (None, Progress::Finished(timings)) => self.whole(&timings),
            (None, _) => Vec::new(),
        };
        Said { steps, is_last: self.gate.is_closed() }
    }

    fn stream(&mut self, framing: Framing, progress: Progress) -> Vec<Step> {
        match progress {
            Progress::Started => {
                self.head = stream_head(self.context.dialect, framing, self.close);
                // Ollama's head comes with its first line, when the prompt is done.
                let waits = self.context.dialect == Dialect::Ollama;
                if waits { Vec::new() } else { self.write(Vec::new()) }
            }
            Progress::Token(index) => {
                let mut events = self.opening(index);
                events.push(self.voice.token(&self.context, index));
                self.say(framing, events)
            }
            Progress::Finished(timings) => {
                let mut events = self.opening(timings.completion_tokens);
                events.extend(self.voice.closing(&self.context, &timings));
                let mut steps = self.say(framing, events);
                steps.extend(self.write(wire::LAST_CHUNK.to_vec()));
                steps.extend(self.gate.finish(self.close));
                steps
            }
        }
    }

    fn opening(&self, tokens_before: u64) -> Vec<String> {
        if tokens_before == 0 { self.voice.opening(&self.context) } else { Vec::new() }
    }

    fn say(&mut self, framing: Framing, events: Vec<String>) -> Vec<Step> {
        // llama-server writes what it has in one chunk: the role event and the first token.
        let joins = self.context.dialect == Dialect::LlamaCpp;
        let (mut steps, mut joined) = (Vec::new(), Vec::new());
        for event in events {
            if self.is_interrupted_now() {
                steps.extend(self.write(wire::chunk(&std::mem::take(&mut joined))));
                steps.extend(self.interrupt(framing));
            }
            joined.extend_from_slice(event.as_bytes());
            self.events_count += 1;
            if !joins {
                steps.extend(self.write(wire::chunk(&std::mem::take(&mut joined))));
            }
        }
        steps.extend(self.write(wire::chunk(&joined)));
        steps
    }

    fn write(&mut self, bytes: Vec<u8>) -> Vec<Step> {
        let mut out = std::mem::take(&mut self.head);
        out.extend_from_slice(&bytes);
        self.gate.pass(out)
    }

    fn is_interrupted_now(&mut self) -> bool {
        let is_due = match self.fault {
            Fault::StallMidStream { after_events, .. }
            | Fault::GarbageEvent { after_events }
            | Fault::ErrorLineIn200 { after_events } => self.events_count == after_events,
            _ => false,
        };
        is_due && !std::mem::replace(&mut self.interrupted, true)
    }

    fn interrupt(&mut self, framing: Framing) -> Vec<Step> {
        match self.fault {
            Fault::StallMidStream { time, .. } => vec![Step::Wait(time)],
            Fault::GarbageEvent { .. } => {
                let garbage = garbage_event(framing);
                self.write(wire::chunk(&garbage))
            }
            Fault::ErrorLineIn200 { .. } => {
                let event = self.context.dialect.error_event(framing, "the lab's error");
                let mut last = wire::chunk(event.as_bytes());
                last.extend_from_slice(wire::LAST_CHUNK);
                let mut steps = self.write(last);
                steps.extend(self.gate.finish(self.close));
                steps
            }
            _ => Vec::new(),
        }
    }

    fn whole(&mut self, timings: &Timings) -> Vec<Step> {
        let mut body = self.voice.whole(&self.context, timings).into_bytes();
        let mut length = body.len() as u64;
        let mut stall = None;
        match self.fault {
            Fault::WrongLength { claim_bytes, send_bytes } => {
                length = claim_bytes;
                body.resize(usize::try_from(send_bytes).unwrap_or(usize::MAX), b' ');
            }
            Fault::GarbageEvent { .. } => {
                body = GARBAGE.to_vec();
                length = body.len() as u64;
            }
            Fault::ErrorLineIn200 { .. } => {
                body = self.context.dialect.error_body(500, "the lab's error").into_bytes();
                length = body.len() as u64;
            }
            Fault::StallMidStream { time, .. } => stall = Some(Step::Wait(time)),
            _ => {}
        }
        let extra = self.voice.extra_headers(&self.context, timings);
        self.head = whole_head(self.context.dialect, 200, length, &extra, self.close);
        let mut steps = Vec::new();
        if let Some(stall) = stall {
            steps.extend(self.write(Vec::new()));
            steps.push(stall);
        }
        steps.extend(self.write(body));
        let close = self.close || matches!(self.fault, Fault::WrongLength { .. });
        steps.extend(self.gate.finish(close));
        steps
    }
}

fn garbage_event(framing: Framing) -> Vec<u8> {
    match framing {
        Framing::Sse => [b"data: ", GARBAGE, b"\n\n"].concat(),
        Framing::Ndjson => [GARBAGE, b"\n"].concat(),
    }
}

/// The head of a streamed answer.
pub(crate) fn stream_head(dialect: Dialect, framing: Framing, close: bool) -> Vec<u8> {
    let mut headers = dialect.headers().to_vec();
    if dialect == Dialect::LlamaCpp {
        headers.push(("X-Accel-Buffering", "no"));
    }
    headers.push(match framing {
        Framing::Sse => ("Content-Type", "text/event-stream"),
        Framing::Ndjson => ("Content-Type", "application/x-ndjson"),
    });
    headers.push(("Transfer-Encoding", "chunked"));
    if close {
        headers.push(("Connection", "close"));
    }
    wire::response_head(200, &headers)
}

/// The head of an answer in one document.
pub(crate) fn whole_head(
    dialect: Dialect,
    status: u16,
    length_bytes: u64,
    extra: &[(&'static str, String)],
    close: bool,
) -> Vec<u8> {
    let length = length_bytes.to_string();
    let content_type = match dialect {
        Dialect::LlamaCpp | Dialect::Ollama => "application/json; charset=utf-8",
        _ => "application/json",
    };
    let mut headers = dialect.headers().to_vec();
    headers.extend(extra.iter().map(|(name, value)| (*name, value.as_str())));
    headers.push(("Content-Type", content_type));
    headers.push(("Content-Length", &length));
    if close {
        headers.push(("Connection", "close"));
    }
    wire::response_head(status, &headers)
}
