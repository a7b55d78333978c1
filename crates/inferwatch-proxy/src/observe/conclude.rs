//! Derives what a line says from what was seen: outcome, tokens, and the times that nobody
//! reports but that follow (queue, prefill, decode rate).

use std::time::Duration;

use http::StatusCode;
use inferwatch_record::{Outcome, RequestLine, TokensSrc};

use super::BodyEnd;
use super::answer::Answer;
use super::headers::Format;
use super::keys::{Number, Words};
use super::request::Request;
use super::route::RouteKind;
use super::stages::Times;
use super::tokens::Tokens;

/// What is known of an exchange when it ends.
pub(super) struct Seen<'a> {
    pub(super) kind: RouteKind,
    pub(super) is_head_request: bool,
    pub(super) request: &'a Request,
    pub(super) request_end: Option<Duration>,
    pub(super) answer: Option<&'a Answer>,
    pub(super) how: BodyEnd,
    pub(super) end: Duration,
}

impl Seen<'_> {
    /// Fills what it knows of the line and says how the exchange ended; `None` if that is not for
    /// the body to say.
    pub(super) fn conclude(&self, line: &mut RequestLine) -> Option<Outcome> {
        let tokens = Tokens::new(self);
        self.fill_names(line);
        self.fill_tokens(&tokens, line);
        let answer = self.answer?;
        line.headers_ms = Some(ms(answer.head_at));
        line.bytes_out = Some(answer.body_bytes);
        line.stream = (self.kind != RouteKind::Opaque).then(|| answer.head.format.is_stream());
        line.finish = answer.tally().finish().map(|finish| finish.0.clone());
        line.error = self.error(answer);
        let outcome = self.outcome(answer);
        if !is_error(answer.status) {
            Times::new(self, answer, &tokens).fill(self.kind, line);
        }
        outcome
    }

    fn fill_names(&self, line: &mut RequestLine) {
        let served = self.answer.and_then(|answer| answer.tally().word(Words::Model));
        let requested = self.request.model();
        line.requested_model = requested.map(str::to_owned);
        line.model = served.or(requested).map(str::to_owned);
        let counted =
            matches!(self.kind, RouteKind::Embed | RouteKind::Rerank | RouteKind::Classify);
        if counted {
            line.batch = self.request.inputs_count(self.kind == RouteKind::Classify);
        }
    }

    fn fill_tokens(&self, tokens: &Tokens, line: &mut RequestLine) {
        line.prompt_tokens = tokens.prompt;
        line.completion_tokens = tokens.completion;
        line.cached_tokens = tokens.cached;
        line.cache_hit = tokens.cached.map(|cached| cached > 0);
        line.completion_tokens_partial = tokens.is_partial.then_some(true);
        line.tokens_src = Some(tokens.src);
        let unknown = self.kind.is_model_work() && tokens.prompt.is_none();
        if let (true, Some(bytes)) = (unknown, self.request.text_bytes()) {
            line.est_prompt_tokens = Some((bytes / 4).max(1));
            if tokens.src == TokensSrc::None {
                line.tokens_src = Some(TokensSrc::BytesOver4);
            }
        }
    }

    fn error(&self, answer: &Answer) -> Option<String> {
        let tally = answer.tally();
        // A body that was cut may have said enough before.
        let cut = || is_error(answer.status).then(|| tally.error_words()).flatten();
        let counts = is_error(answer.status) || self.kind != RouteKind::NoModelWork;
        tally.error.clone().filter(|_| counts).or_else(cut)
    }

    fn outcome(&self, answer: &Answer) -> Option<Outcome> {
        if self.how == BodyEnd::Abandoned {
            return None;
        }
        let status = answer.status;
        Some(if status.is_server_error() {
            Outcome::UpstreamError
        } else if status.is_client_error() {
            Outcome::Rejected
        } else if !self.has_body(status) {
            Outcome::Ok
        } else if answer.tally().error.is_some() {
            Outcome::ErrorInStream
        } else if self.is_whole(answer) {
            Outcome::Ok
        } else {
            Outcome::Truncated
        })
    }

    fn has_body(&self, status: StatusCode) -> bool {
        let none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        !(self.is_head_request || none || status.is_informational())
    }

    /// Whether the body ended where its format ends. The framing decides if the format cannot.
    fn is_whole(&self, answer: &Answer) -> bool {
        let framed = self.how == BodyEnd::Complete;
        if !answer.is_read() {
            return framed;
        }
        match answer.head.format {
            Format::Document => answer.is_balanced() || (framed && answer.body_bytes == 0),
            Format::Events | Format::Lines => self.is_stream_whole(answer, framed),
            Format::Bytes => framed,
        }
    }

    fn is_stream_whole(&self, answer: &Answer, framed: bool) -> bool {
        let tally = answer.tally();
        let generates = matches!(self.kind, RouteKind::Chat | RouteKind::Generate);
        let spoke = tally.clock.first().is_some() || tally.finished_count > 0;
        let must_end = generates || spoke;
        tally.closed || tally.finished_count >= self.expected_ends() || (framed && !must_end)
    }

    /// Choices that must finish, all prompts together.
    fn expected_ends(&self) -> u64 {
        let prompts = match self.kind {
            RouteKind::Generate => self.request.inputs_count(false).unwrap_or(1).max(1),
            _ => 1,
        };
        prompts.saturating_mul(self.request.choices())
    }

    /// The numbers of the answer's body.
    pub(super) fn count(&self, number: Number) -> Option<u64> {
        self.answer.and_then(|answer| answer.tally().count(number))
    }
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Milliseconds of a duration.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
