//! The faults that a fake upstream commits, and their text form for flags and the request header.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Request header that chooses the fault of one request, such as `x-lab-fault: status=503`.
pub const HEADER: &str = "x-lab-fault";

/// One fault. Byte counts are of the whole answer on the wire, head included; events are the
/// events (or lines) of a stream, and a plain body counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// None: undoes the server's default for one request.
    None,
    /// The head comes this much late.
    StallBeforeHead(Duration),
    /// Silence within the stream.
    StallMidStream {
        /// Events before it.
        after_events: u64,
        /// How long.
        time: Duration,
    },
    /// FIN after so many bytes.
    CutAfterBytes(u64),
    /// RST after so many bytes.
    ResetAfterBytes(u64),
    /// A few bytes at a time.
    SlowDrip {
        /// Bytes per write.
        bytes: usize,
        /// Time between two writes.
        gap: Duration,
    },
    /// One event that is neither JSON nor UTF-8, then the stream goes on.
    GarbageEvent {
        /// Events before it.
        after_events: u64,
    },
    /// A `Content-Length` that is not the length of the body; closes after the body.
    WrongLength {
        /// What the head says.
        claim_bytes: u64,
        /// What is sent.
        send_bytes: u64,
    },
    /// An error status with the dialect's own error body.
    Status(u16),
    /// The dialect's error inside a 200 stream, which then ends.
    ErrorLineIn200 {
        /// Events before it.
        after_events: u64,
    },
    /// No answer at all.
    NeverAnswers,
    /// The whole stream in one write, at its end.
    BurstAll,
}

/// The text forms, one a line, for help texts and error messages.
pub const FORMS: &str = "\
none
stall_before_head=200ms
stall_mid_stream=3,200ms      after 3 events
cut_after_bytes=300           FIN after 300 bytes of the answer, head included
reset_after_bytes=300         the same with RST
slow_drip=7,5ms               7 bytes at a time
garbage_event=2               after 2 events, one that is neither JSON nor UTF-8
wrong_length=100,50           Content-Length says 100, 50 are sent
status=503                    with the dialect's error body
error_line_in_200=2           after 2 events, the dialect's error, then the end
never_answers
burst_all                     the whole stream in one write";

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = Duration::as_millis;
        match self {
            Fault::None => f.write_str("none"),
            Fault::StallBeforeHead(time) => write!(f, "stall_before_head={}ms", ms(time)),
            Fault::StallMidStream { after_events, time } => {
                write!(f, "stall_mid_stream={after_events},{}ms", ms(time))
            }
            Fault::CutAfterBytes(n) => write!(f, "cut_after_bytes={n}"),
            Fault::ResetAfterBytes(n) => write!(f, "reset_after_bytes={n}"),
            Fault::SlowDrip { bytes, gap } => write!(f, "slow_drip={bytes},{}ms", ms(gap)),
            Fault::GarbageEvent { after_events } => write!(f, "garbage_event={after_events}"),
            Fault::WrongLength { claim_bytes, send_bytes } => {
                write!(f, "wrong_length={claim_bytes},{send_bytes}")
            }
            Fault::Status(status) => write!(f, "status={status}"),
            Fault::ErrorLineIn200 { after_events } => {
                write!(f, "error_line_in_200={after_events}")
            }
            Fault::NeverAnswers => f.write_str("never_answers"),
            Fault::BurstAll => f.write_str("burst_all"),
        }
    }
}

/// A text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no fault; the forms are:\n{FORMS}", self.0)
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Fault, UnknownFault> {
        parse(text.trim()).ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Fault> {
    let Some((name, values)) = text.split_once('=') else { return parse_bare(text) };
    let one = || values.parse::<u64>().ok();
    Some(match name {
        "stall_before_head" => Fault::StallBeforeHead(millis(values)?),
        "stall_mid_stream" => {
            let (after_events, time) = pair(values)?;
            Fault::StallMidStream { after_events, time: millis(time)? }
        }
        "cut_after_bytes" => Fault::CutAfterBytes(one()?),
        "reset_after_bytes" => Fault::ResetAfterBytes(one()?),
        "slow_drip" => {
            let (bytes, gap) = pair(values)?;
            Fault::SlowDrip { bytes: usize::try_from(bytes).ok()?, gap: millis(gap)? }
        }
        "garbage_event" => Fault::GarbageEvent { after_events: one()? },
        "wrong_length" => {
            let (claim_bytes, send) = pair(values)?;
            Fault::WrongLength { claim_bytes, send_bytes: send.parse().ok()? }
        }
        "status" => Fault::Status(values.parse().ok().filter(|s| (400..600).contains(s))?),
        "error_line_in_200" => Fault::ErrorLineIn200 { after_events: one()? },
        _ => return None,
    })
}

fn parse_bare(name: &str) -> Option<Fault> {
    match name {
        "none" => Some(Fault::None),
        "never_answers" => Some(Fault::NeverAnswers),
        "burst_all" => Some(Fault::BurstAll),
        _ => None,
    }
}

fn pair(values: &str) -> Option<(u64, &str)> {
    let (first, second) = values.split_once(',')?;
    Some((first.parse().ok()?, second))
}

fn millis(text: &str) -> Option<Duration> {
    text.strip_suffix("ms")?.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_survives_a_round_trip() {
        let forms = FORMS.lines().map(|line| line.split_whitespace().next().unwrap());
        assert_eq!(forms.clone().count(), 12);
        for form in forms {
            assert_eq!(form.parse::<Fault>().map(|fault| fault.to_string()).as_deref(), Ok(form));
        }
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for text in [
            "",
            "cut",
            "cut_after_bytes",
            "cut_after_bytes=",
            "cut_after_bytes=-1",
            "cut_after_bytes=1 2",
            "none=1",
            "status=200",
            "status=99999",
            "stall_before_head=3",
            "stall_mid_stream=3",
            "slow_drip=5ms",
            "wrong_length=1,",
            "wrong_length=18446744073709551616,1",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text:?}");
        }
    }
}
