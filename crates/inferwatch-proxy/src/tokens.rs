//! Counting with the model's own tokenizer, on a thread of its own, for answers that say no counts.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use inferwatch_record::{Line, Recorder, RequestLine, TokensSrc};

/// Counts the tokens of a text; `None` if the tokenizer cannot take it.
pub type CountTokens = Box<dyn Fn(&str) -> Option<u64> + Send>;

/// Lines that may wait for their count. Beyond it a line goes out with its estimate: at 1 ms per KiB
/// of text (measured for both tokenizer crates) this is seconds of work behind.
const WAITING_LINES: usize = 64;

type Job = (Box<RequestLine>, String);

/// Where finished lines are handed in. Lines that need no count pass straight to the recorder.
#[derive(Clone)]
pub(crate) struct TokenDesk {
    recorder: Recorder,
    counter: Option<SyncSender<Job>>,
}

/// The counting thread; it ends when every [`TokenDesk`] is gone.
pub(crate) struct Counting(Option<JoinHandle<()>>);

impl TokenDesk {
    pub(crate) fn open(recorder: Recorder, count: Option<CountTokens>) -> (TokenDesk, Counting) {
        let Some(count) = count else {
            return (TokenDesk { recorder, counter: None }, Counting(None));
        };
        let (send, jobs) = sync_channel(WAITING_LINES);
        let out = recorder.clone();
        let work = move || count_all(&jobs, &count, &out);
        let thread = thread::Builder::new().name("tokenizer".into()).spawn(work).ok();
        (TokenDesk { recorder, counter: Some(send) }, Counting(thread))
    }

    /// Whether the observer should keep the text of prompts.
    pub(crate) fn counts(&self) -> bool {
        self.counter.is_some()
    }

    /// Hands in a line, and its prompt if nobody counted it.
    pub(crate) fn deliver(&self, line: Box<RequestLine>, text: Option<String>) {
        let unsent = match (text, &self.counter) {
            (Some(text), Some(counter)) => match counter.try_send((line, text)) {
                Ok(()) => return,
                Err(back) => take_line(back),
            },
            _ => line,
        };
        self.recorder.send(Line::Request(unsent));
    }
}

fn take_line(back: std::sync::mpsc::TrySendError<Job>) -> Box<RequestLine> {
    use std::sync::mpsc::TrySendError::{Disconnected, Full};
    match back {
        Full((line, _)) | Disconnected((line, _)) => line,
    }
}

fn count_all(jobs: &Receiver<Job>, count: &CountTokens, recorder: &Recorder) {
    for (mut line, text) in jobs {
        if let Some(tokens) = count(&text) {
            line.prompt_tokens = Some(tokens);
            line.tokens_src = Some(TokensSrc::Tokenizer);
            line.est_prompt_tokens = None;
        }
        recorder.send(Line::Request(line));
    }
}

impl Counting {
    /// Waits for the lines that are still being counted.
    pub(crate) fn finish(self) {
        if let Some(thread) = self.0 {
            let _ = thread.join();
        }
    }
}
