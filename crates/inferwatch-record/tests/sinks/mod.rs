//! Sinks that misbehave on purpose, and what they got.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// What a sink does with the next call of `write`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Takes at most so many bytes.
    Take(usize),
    Fail(io::ErrorKind),
    Panic,
}

/// A sink in memory that follows a script, then takes everything.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    steps: Arc<Mutex<VecDeque<Step>>>,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Scripted {
    pub(crate) fn new(steps: &[Step]) -> Scripted {
        let sink = Scripted::default();
        sink.steps.lock().unwrap().extend(steps);
        sink
    }

    pub(crate) fn writes(&self) -> Vec<Vec<u8>> {
        self.writes.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.writes().concat()).unwrap()
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let step = self.steps.lock().unwrap().pop_front();
        let count = match step {
            None => bytes.len(),
            Some(Step::Take(count)) => count.min(bytes.len()),
            Some(Step::Fail(kind)) => return Err(kind.into()),
            Some(Step::Panic) => panic!("the sink panics, as its test wants"),
        };
        self.writes.lock().unwrap().push(bytes[..count].to_vec());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
