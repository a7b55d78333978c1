//! Which of the counts that a server gives is the one to believe, in order: usage, llama.cpp
//! timings, Ollama counts, llama.cpp native counts, TGI details, headers.

use inferwatch_record::TokensSrc;

use super::conclude::Seen;
use super::keys::{Number, Words};
use super::route::RouteKind;

/// The token counts of an exchange.
#[derive(Debug, PartialEq)]
pub(super) struct Tokens {
    pub(super) prompt: Option<u64>,
    pub(super) completion: Option<u64>,
    pub(super) cached: Option<u64>,
    pub(super) src: TokensSrc,
    /// `completion` misses some choices.
    pub(super) is_partial: bool,
}

/// What one source says.
#[derive(Debug, Clone, Copy)]
struct Counted {
    prompt: Option<u64>,
    completion: Option<u64>,
    src: TokensSrc,
}

impl Counted {
    fn is_known(self) -> bool {
        self.prompt.is_some() || self.completion.is_some()
    }
}

impl Tokens {
    /// Chooses among what was seen.
    pub(super) fn new(seen: &Seen<'_>) -> Tokens {
        let sources =
            [usage(seen), timings(seen), ollama(seen), native(seen), tgi(seen), head(seen)];
        let known = || sources.iter().filter(|counted| counted.is_known());
        let generates =
            !matches!(seen.kind, RouteKind::Embed | RouteKind::Rerank | RouteKind::Classify);
        let completion = known().find_map(|counted| counted.completion).filter(|_| generates);
        let llama_cpp = seen.count(Number::TimingsPredictedN).is_some()
            || seen.answer.is_some_and(|answer| answer.head.is_llama_cpp);
        Tokens {
            prompt: known().find_map(|counted| counted.prompt),
            completion,
            cached: cached(seen),
            src: known().next().map_or(TokensSrc::None, |counted| counted.src),
            is_partial: completion.is_some() && llama_cpp && seen.request.choices() > 1,
        }
    }
}

fn usage(seen: &Seen<'_>) -> Counted {
    let cache = [Number::UsageCacheRead, Number::UsageCacheCreation];
    let cache: u64 = cache.into_iter().filter_map(|number| seen.count(number)).sum();
    // Anthropic's input is only what no cache served; the other dialects have no such keys.
    let input = seen.count(Number::UsageInput).map(|input| input + cache);
    let prompt = seen.count(Number::UsagePrompt).or(input);
    let completion =
        seen.count(Number::UsageCompletion).or_else(|| seen.count(Number::UsageOutput));
    // Rerankers may give nothing but the total.
    let total = seen.count(Number::UsageTotal).filter(|_| completion.is_none());
    let prompt = prompt.or(total).filter(|&prompt| !is_chars(seen, prompt));
    // Ollama writes a usage of zeros on every event before the last.
    let said_nothing = prompt.unwrap_or(0) == 0 && completion.unwrap_or(0) == 0;
    Counted { prompt, completion, src: TokensSrc::Usage }.unless(said_nothing)
}

impl Counted {
    fn unless(self, nothing: bool) -> Counted {
        if nothing { Counted { prompt: None, completion: None, ..self } } else { self }
    }
}

/// Infinity counts characters unless it is told to use its tokenizer.
fn is_chars(seen: &Seen<'_>, prompt: u64) -> bool {
    let id = seen.answer.and_then(|answer| answer.tally().word(Words::Id));
    id.is_some_and(|id| id.starts_with("infinity-")) && seen.request.is_chars_count(prompt)
}

fn timings(seen: &Seen<'_>) -> Counted {
    let evaluated = seen.count(Number::TimingsPromptN);
    // Without cache_n (before September 2025) the whole prompt is not known.
    let prompt = seen.count(Number::TimingsCacheN).zip(evaluated).map(|(hit, new)| hit + new);
    let completion = seen.count(Number::TimingsPredictedN);
    let begun = prompt.unwrap_or(0) > 0 || completion.unwrap_or(0) > 0;
    Counted { prompt, completion, src: TokensSrc::Timings }.unless(!begun)
}

fn ollama(seen: &Seen<'_>) -> Counted {
    Counted {
        prompt: seen.count(Number::OllamaPrompt),
        completion: seen.count(Number::OllamaEval),
        src: TokensSrc::Timings,
    }
}

fn native(seen: &Seen<'_>) -> Counted {
    let prompt = seen.count(Number::NativeEvaluated);
    let completion = seen.count(Number::NativePredicted);
    let begun = prompt.unwrap_or(0) > 0 || completion.unwrap_or(0) > 0;
    Counted { prompt, completion, src: TokensSrc::Timings }.unless(!begun)
}

fn tgi(seen: &Seen<'_>) -> Counted {
    Counted {
        prompt: seen.count(Number::TgiPrefill),
        completion: seen.count(Number::TgiGenerated),
        src: TokensSrc::Usage,
    }
}

fn head(seen: &Seen<'_>) -> Counted {
    let head = seen.answer.map(|answer| &answer.head);
    Counted {
        prompt: head.and_then(|head| head.prompt_tokens),
        completion: head.and_then(|head| head.completion_tokens),
        src: TokensSrc::Header,
    }
}

fn cached(seen: &Seen<'_>) -> Option<u64> {
    let told =
        [Number::UsageCached, Number::UsageCacheRead, Number::TimingsCacheN, Number::OllamaCached];
    told.into_iter().find_map(|number| seen.count(number))
}
