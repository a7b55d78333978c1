//! Replays recordings: the bytes of a real server with its real read boundaries and gaps.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::observed::Request;
use crate::raw::{Options, RawUpstream};
use crate::recording::{End, Recording};
use crate::script::Script;

/// Request header that names the recording to answer with.
pub const HEADER: &str = "x-lab-replay";

/// The recordings of some folders, by name.
#[derive(Debug, Default)]
pub struct Replay {
    scripts: HashMap<String, Timed>,
    /// Names for the connections in turn, for requests without the header.
    by_connection: Vec<String>,
    speed: f64,
}

#[derive(Debug)]
struct Timed {
    pieces: Vec<(Duration, Bytes)>,
    end: (Duration, End),
}

impl Replay {
    /// Loads every recording of `dir`; `speed` 1 keeps the gaps, 2 halves them, 0 leaves them
    /// out.
    ///
    /// # Errors
    /// A recording cannot be read.
    pub fn load(dir: &Path, speed: f64) -> io::Result<Replay> {
        let mut replay = Replay { speed, ..Replay::default() };
        for name in Recording::names(dir)? {
            replay.add(&Recording::load(dir, &name)?);
        }
        Ok(replay)
    }

    /// Adds one recording.
    pub fn add(&mut self, recording: &Recording) {
        let copy = |(gap, bytes): (Duration, &[u8])| (gap, Bytes::copy_from_slice(bytes));
        let pieces = recording.reads().into_iter().map(copy).collect();
        let (ended, end) = recording.end;
        let last = recording.reads.last().map_or(Duration::ZERO, |read| read.at);
        let timed = Timed { pieces, end: (ended.saturating_sub(last), end) };
        self.scripts.insert(recording.name.clone(), timed);
    }

    /// Answers the n-th connection with the n-th of `names` when a request names none.
    #[must_use]
    pub fn by_connection(mut self, names: Vec<String>) -> Replay {
        self.by_connection = names;
        self
    }

    /// How many recordings it holds.
    pub fn recordings_count(&self) -> usize {
        self.scripts.len()
    }

    /// Serves them on `listen`.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn serve(self, listen: SocketAddr) -> io::Result<RawUpstream> {
        RawUpstream::start_with(listen, Options::default(), move |request| self.answer(request))
    }

    fn answer(&self, request: &Request) -> Script {
        let in_turn = || self.by_connection.get(request.connection).map(String::as_str);
        let name = request.head.headers.get(HEADER).or_else(in_turn);
        match name.and_then(|name| self.scripts.get(name)) {
            Some(timed) => self.script(timed),
            None => {
                let message = format!("no recording {name:?}: name one by the header {HEADER}\n");
                Script::answer(404, "text/plain", message.as_bytes())
            }
        }
    }

    fn script(&self, timed: &Timed) -> Script {
        let mut script = Script::new();
        for (gap, bytes) in &timed.pieces {
            script = self.pause(script, *gap).send(bytes.clone());
        }
        let (gap, end) = timed.end;
        match end {
            End::Eof => self.pause(script, gap).fin(),
            // The server would have gone on: the client is to leave again.
            End::ClientAborted => script.hang(),
        }
    }

    fn pause(&self, script: Script, gap: Duration) -> Script {
        let scaled = if self.speed > 0.0 { gap.div_f64(self.speed) } else { Duration::ZERO };
        if scaled.is_zero() { script } else { script.wait(scaled) }
    }
}

/// A script that sends these pieces as separate writes and closes.
pub fn pieces(pieces: Vec<Bytes>, gap: Duration) -> Script {
    let send = |script: Script, (index, piece): (usize, Bytes)| {
        let script = if index > 0 { script.wait(gap) } else { script };
        script.send(piece)
    };
    pieces.into_iter().enumerate().fold(Script::new(), send).fin()
}
