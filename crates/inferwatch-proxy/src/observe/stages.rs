//! The times of an exchange: what the server says where it says it, else what follows from the
//! outside.

use std::time::Duration;

use inferwatch_record::RequestLine;

use super::answer::Answer;
use super::conclude::{Seen, ms};
use super::keys::Number;
use super::route::RouteKind;
use super::tokens::Tokens;

/// Everything about an exchange that is needed to tell its times.
pub(super) struct Times<'a> {
    answer: &'a Answer,
    completion: Option<u64>,
    is_partial: bool,
    coalesced: bool,
    /// From the end of the request to the first token, streams only.
    first_token_ms: Option<f64>,
    /// From the end of the request to the end of the answer.
    wall_ms: f64,
    /// From the end of the request to the head of the answer.
    head_ms: f64,
    prompt_ms: Option<f64>,
    predicted_ms: Option<f64>,
    load_ms: Option<f64>,
    /// Ollama's time in the handler.
    handler_ms: Option<f64>,
    vllm_queue_ms: Option<f64>,
}

impl<'a> Times<'a> {
    /// Gathers the server's own times and those of the reads.
    pub(super) fn new(seen: &Seen<'_>, answer: &'a Answer, tokens: &Tokens) -> Times<'a> {
        let sent = seen.request_end.unwrap_or_default();
        let since_sent = |at: Duration| ms(at.saturating_sub(sent));
        let tally = answer.tally();
        let nanos = |number| tally.time(number).map(|time| time / 1e6);
        let load_only = tally.finish().is_some_and(|f| f.0 == "load" || f.0 == "unload");
        let or_nanos = |time: Option<f64>, number| time.or_else(|| nanos(number));
        Times {
            answer,
            completion: tokens.completion,
            is_partial: tokens.is_partial,
            coalesced: answer.head.format.is_stream() && tally.clock.is_coalesced(),
            first_token_ms: answer.first_token_at().map(since_sent),
            wall_ms: since_sent(seen.end),
            head_ms: since_sent(answer.head_at),
            prompt_ms: or_nanos(tally.time(Number::TimingsPromptMs), Number::OllamaPromptNs),
            predicted_ms: or_nanos(tally.time(Number::TimingsPredictedMs), Number::OllamaEvalNs),
            load_ms: nanos(Number::OllamaLoadNs),
            handler_ms: nanos(Number::OllamaTotalNs).filter(|_| !load_only),
            vllm_queue_ms: tally.time(Number::VllmQueueMs),
        }
    }

    /// Fills the times of the line.
    pub(super) fn fill(&self, kind: RouteKind, line: &mut RequestLine) {
        line.ttft_ms = self.answer.first_token_at().map(ms);
        line.coalesced = self.coalesced.then_some(true);
        line.load_ms = self.load_ms;
        line.prefill_ms = self.prefill_ms();
        line.decode_tokens_per_s = self.decode_tokens_per_s();
        line.queue_ms = kind.is_model_work().then(|| self.queue_ms()).flatten();
        let work = self.work_ms(kind, line.queue_ms);
        let head = &self.answer.head;
        let stage = |kinds: &[RouteKind]| work.filter(|_| kinds.contains(&kind));
        line.encode_ms = head.encode_ms.or(stage(&[RouteKind::Embed, RouteKind::Classify]));
        line.retrieve_ms = head.retrieve_ms;
        line.rerank_ms = head.rerank_ms.or(stage(&[RouteKind::Rerank]));
        line.generate_ms = head.generate_ms.or(stage(&[RouteKind::Chat, RouteKind::Generate]));
    }

    fn has_timings(&self) -> bool {
        self.prompt_ms.is_some_and(|prompt_ms| prompt_ms > 0.0)
    }

    fn prefill_ms(&self) -> Option<f64> {
        if self.has_timings() {
            return self.prompt_ms;
        }
        let told_apart = self.answer.head.is_llama_cpp
            && !self.answer.tally().clock.first_came_with(self.answer.head_at);
        self.first_token_ms.filter(|_| told_apart).map(|first| (first - self.head_ms).max(0.0))
    }

    /// Wait before the work began.
    fn queue_ms(&self) -> Option<f64> {
        let told = self.answer.head.queue_ms.or(self.vllm_queue_ms);
        let is_stream = self.answer.head.format.is_stream();
        // On a llama.cpp stream the head is sent when a slot takes the request.
        let headed = (self.answer.head.is_llama_cpp && is_stream).then_some(self.head_ms);
        told.or_else(|| self.derived_queue_ms()).or(headed)
    }

    fn derived_queue_ms(&self) -> Option<f64> {
        let prompt_ms = self.prompt_ms.filter(|_| self.has_timings())?;
        let load_ms = self.load_ms.unwrap_or(0.0);
        let known = match self.first_token_ms.filter(|_| !self.coalesced) {
            Some(first) => first - prompt_ms - load_ms,
            None => self.wall_ms - prompt_ms - self.predicted_ms.unwrap_or(0.0) - load_ms,
        };
        Some(known.max(0.0))
    }

    /// Time of the route's own stage, queue excluded.
    fn work_ms(&self, kind: RouteKind, queue_ms: Option<f64>) -> Option<f64> {
        if !kind.is_model_work() {
            return None;
        }
        let timed = self.prompt_ms.filter(|_| self.has_timings());
        let timed = timed.map(|prompt_ms| prompt_ms + self.predicted_ms.unwrap_or(0.0));
        let handled = self.handler_ms.map(|total| (total - self.load_ms.unwrap_or(0.0)).max(0.0));
        let outside =
            (self.wall_ms - queue_ms.unwrap_or(0.0) - self.load_ms.unwrap_or(0.0)).max(0.0);
        Some(timed.or(self.answer.head.work_ms).or(handled).unwrap_or(outside))
    }

    /// Tokens after the first one per second since the first one.
    fn decode_tokens_per_s(&self) -> Option<f64> {
        let later = self.completion.filter(|&count| count >= 2)? - 1;
        let tally = self.answer.tally();
        let stopped = tally.finish().is_some_and(|finish| finish.is_stop());
        let seen = (self.first_token_ms.is_some() && !self.coalesced && !self.is_partial)
            .then(|| tally.clock.decode_time(stopped))
            .flatten();
        let told = self.predicted_ms.filter(|&predicted_ms| predicted_ms > 0.0);
        let time_ms = seen.map(ms).or(told)?;
        Some(later as f64 * 1000.0 / time_ms)
    }
}
