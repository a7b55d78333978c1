//! What an answer has said so far: counts, times, finish reason, end marks and errors, gathered
//! event by event from whatever dialect it speaks.

use std::time::Duration;

use super::capped::Capped;
use super::clock::TokenClock;
use super::failure;
use super::json::{Sink, Value};
use super::keys::{Key, Number, Words};

/// Why generation stopped, in the words of the line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finish(pub(super) String);

impl Finish {
    fn normalised(word: &str) -> Finish {
        Finish(
            match word {
                "stop" | "eos" | "eos_token" | "end_turn" | "word" | "stop_sequence"
                | "completed" | "STOP" => "stop",
                "length" | "limit" | "max_tokens" | "max_output_tokens" | "incomplete" => "length",
                "tool_calls" | "tool_use" | "tool" | "function_call" => "tool",
                other => other,
            }
            .to_owned(),
        )
    }

    /// Of two choices: `length` if either ran into a limit, else the later one.
    fn merge(known: &mut Option<Finish>, finish: Finish) {
        if known.as_ref().is_none_or(|known| known.0 != "length") {
            *known = Some(finish);
        }
    }

    /// Whether an end-of-sequence token was the last one.
    pub(super) fn is_stop(&self) -> bool {
        self.0 == "stop"
    }
}

/// The numbers of a part of an answer; NaN stands for one that did not come, which JSON cannot say.
#[derive(Debug, Clone, Copy)]
struct Numbers([f64; Number::COUNT]);

impl Numbers {
    const NONE: Numbers = Numbers([f64::NAN; Number::COUNT]);

    fn set(&mut self, number: Number, value: f64) {
        if let Some(place) = self.0.get_mut(number as usize) {
            *place = value;
        }
    }

    fn get(&self, number: Number) -> Option<f64> {
        self.0.get(number as usize).copied().filter(|value| !value.is_nan())
    }

    /// Adds the numbers of another part of the same answer.
    fn add(&mut self, part: &Numbers) {
        for (sum, value) in self.0.iter_mut().zip(part.0) {
            *sum = if sum.is_nan() || value.is_nan() { sum.max(value) } else { *sum + value };
        }
    }
}

/// What the event that is being read has said; it counts when the event ends.
#[derive(Debug, Default)]
struct Event {
    token: bool,
    stop: bool,
    done: bool,
    generated_text: bool,
    finish: Option<Finish>,
    choices_finished: u64,
}

/// What an answer has said so far.
#[derive(Debug)]
pub(super) struct Tally {
    words: [Capped; Words::COUNT],
    event: Event,
    /// Numbers of the part that is being read; the last word counts.
    now: Numbers,
    /// Sum of the parts that are complete (several prompts in one request).
    parts: Numbers,
    pub(super) clock: TokenClock,
    finish: Option<Finish>,
    pub(super) error: Option<String>,
    /// The stream as a whole said that it is complete.
    pub(super) closed: bool,
    /// Choices that have finished.
    pub(super) finished_count: u64,
    rejected: bool,
}

impl Tally {
    /// Nothing said yet. `rejected`: the status says that the answer is an error, whatever its
    /// shape.
    pub(super) fn new(rejected: bool) -> Tally {
        Tally {
            words: std::array::from_fn(|_| Capped::default()),
            event: Event::default(),
            now: Numbers::NONE,
            parts: Numbers::NONE,
            clock: TokenClock::default(),
            finish: None,
            error: None,
            closed: false,
            finished_count: 0,
            rejected,
        }
    }

    /// A read from the upstream begins.
    pub(super) fn read(&mut self, at: Duration) {
        self.clock.read(at);
    }

    /// A number of the whole answer, as far as it came: the sum over its parts.
    fn number(&self, number: Number) -> Option<f64> {
        match (self.parts.get(number), self.now.get(number)) {
            (Some(parts), Some(now)) => Some(parts + now),
            (parts, now) => parts.or(now),
        }
    }

    /// A count; `None` for what no count can be.
    pub(super) fn count(&self, number: Number) -> Option<u64> {
        let value = self.number(number)?;
        let sane = (0.0..=9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0;
        // In range, so the cast is exact.
        sane.then_some(value as u64)
    }

    /// A time in the server's own unit; `None` if it is negative or no number.
    pub(super) fn time(&self, number: Number) -> Option<f64> {
        self.number(number).filter(|time| time.is_finite() && *time >= 0.0)
    }

    /// A kept string, if it came.
    pub(super) fn word(&self, words: Words) -> Option<&str> {
        self.words.get(words as usize).and_then(Capped::get)
    }

    /// The finish reason; with several choices, `length` if any of them ran into a limit.
    pub(super) fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    /// `[DONE]`.
    pub(super) fn done_mark(&mut self) {
        self.closed = true;
    }

    /// What an error body says, when the status says that it is one.
    pub(super) fn error_words(&self) -> Option<String> {
        let message = self.word(Words::ErrorMessage).or_else(|| self.word(Words::TopMessage));
        let kind = [Words::ErrorType, Words::ErrorCode, Words::TopCode, Words::Type];
        let kind = kind.into_iter().find_map(|words| self.word(words));
        failure::words(
            kind.filter(|kind| *kind != "error"),
            message,
            self.count(Number::ErrorPromptTokens),
            self.count(Number::ErrorContext),
        )
    }

    /// Heap bytes held.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let words: usize = self.words.iter().map(Capped::heap_bytes).sum();
        let finish = self.finish.as_ref().map_or(0, |finish| finish.0.capacity());
        words + finish + self.error.as_ref().map_or(0, String::capacity)
    }

    fn is(&self, words: Words, expected: &str) -> bool {
        self.words.get(words as usize).is_some_and(|word| word.is(expected))
    }

    fn holds(&self, words: Words) -> bool {
        self.word(words).is_some()
    }

    /// Draws the conclusions from an event that is complete.
    fn end_event(&mut self, in_array: bool) {
        if self.event.token {
            self.clock.token();
        }
        self.take_end();
        self.take_type();
        self.take_error();
        if self.event.stop || in_array {
            self.parts.add(&std::mem::replace(&mut self.now, Numbers::NONE));
        }
        self.event = Event::default();
        for words in EVENT_WORDS {
            if let Some(word) = self.words.get_mut(words as usize) {
                word.clear();
            }
        }
    }

    fn take_end(&mut self) {
        self.closed |= self.event.done || self.event.generated_text;
        self.finished_count += self.event.choices_finished + u64::from(self.event.stop);
        if let Some(kind) = self.word(Words::StopType).filter(|kind| *kind != "none") {
            let finish = Finish::normalised(kind);
            Finish::merge(&mut self.event.finish, finish);
        }
        if let Some(finish) = self.event.finish.take() {
            self.set_finish(finish);
        }
    }

    fn set_finish(&mut self, finish: Finish) {
        self.clock.finish();
        Finish::merge(&mut self.finish, finish);
    }

    /// Ends that are named by `type` (Anthropic, Responses) or by the status of a response.
    fn take_type(&mut self) {
        let ended = ["message_stop", "response.completed", "response.incomplete"];
        self.closed |= ended.into_iter().any(|end| self.is(Words::Type, end));
        let word = match self.word(Words::Status) {
            Some("incomplete") => self.word(Words::Reason).unwrap_or("incomplete"),
            Some("completed") if self.is_response() => "completed",
            _ => return,
        };
        self.set_finish(Finish::normalised(word));
    }

    /// Whether the event holds a whole object of the Responses dialect.
    fn is_response(&self) -> bool {
        self.is(Words::Object, "response") || self.is(Words::Type, "response.completed")
    }

    fn take_error(&mut self) {
        let named = self.is(Words::Type, "error")
            || self.is(Words::Type, "response.failed")
            || self.is(Words::Object, "error")
            || (self.is_response() && self.is(Words::Status, "failed"));
        let told = self.holds(Words::ErrorMessage)
            || self.holds(Words::ErrorType)
            || self.holds(Words::ErrorCode);
        if named || told || self.rejected {
            let words = self.error_words();
            let unsaid = || (!self.rejected).then(|| "error without a message".to_owned());
            self.error = self.error.take().or(words).or_else(unsaid);
        }
    }

    fn text_ended(&mut self, key: Key) {
        match key {
            Key::Words(words) => self.word_ended(words),
            Key::GeneratedText => self.event.generated_text = true,
            _ => {}
        }
    }

    fn word_ended(&mut self, words: Words) {
        let Some(place) = self.words.get_mut(words as usize) else { return };
        place.end();
        if !matches!(words, Words::Finish | Words::StopReason) {
            return;
        }
        if let Some(word) = place.get() {
            self.event.choices_finished += u64::from(words == Words::Finish);
            Finish::merge(&mut self.event.finish, Finish::normalised(word));
        }
    }
}

/// Strings that belong to one event.
const EVENT_WORDS: [Words; 12] = [
    Words::Object,
    Words::Type,
    Words::Finish,
    Words::StopReason,
    Words::StopType,
    Words::Status,
    Words::Reason,
    Words::ErrorType,
    Words::ErrorCode,
    Words::ErrorMessage,
    Words::TopMessage,
    Words::TopCode,
];

impl Sink<Key> for Tally {
    fn text(&mut self, key: Key, piece: &[u8]) {
        match key {
            Key::Words(words) => {
                if let Some(word) = self.words.get_mut(words as usize) {
                    word.push(piece);
                }
            }
            Key::Token => self.event.token = true,
            _ => {}
        }
    }

    fn value(&mut self, key: Key, nesting: u8, value: Value) {
        match (key, value) {
            (_, Value::Text) => self.text_ended(key),
            (Key::Number(number), Value::Number(value)) if nesting == 0 => {
                self.now.set(number, value);
            }
            (Key::Number(Number::TgiPrefill), Value::Array(len)) if len > 0 => {
                self.now.set(Number::TgiPrefill, len as f64);
            }
            (Key::Token, Value::Array(1..)) => self.event.token = true,
            (Key::Stop, Value::Bool(stop)) => self.event.stop = stop,
            (Key::Done, Value::Bool(done)) => self.event.done = done,
            _ => {}
        }
    }

    fn record(&mut self, in_array: bool) {
        self.end_event(in_array);
    }
}
