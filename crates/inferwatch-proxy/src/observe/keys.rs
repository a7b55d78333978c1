//! The keys wanted from an answer, of every dialect at once: a dialect is told by its keys, not
//! by the path.

use super::json::Node;

/// A counter or a time that a server reports; the name says where it stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    UsagePrompt,
    UsageCompletion,
    UsageTotal,
    UsageCached,
    UsageInput,
    UsageOutput,
    UsageCacheRead,
    UsageCacheCreation,
    TimingsCacheN,
    TimingsPromptN,
    TimingsPromptMs,
    TimingsPredictedN,
    TimingsPredictedMs,
    OllamaPrompt,
    OllamaCached,
    OllamaEval,
    OllamaTotalNs,
    OllamaLoadNs,
    OllamaPromptNs,
    OllamaEvalNs,
    NativeEvaluated,
    NativePredicted,
    TgiPrefill,
    TgiGenerated,
    VllmQueueMs,
    ErrorPromptTokens,
    ErrorContext,
}

impl Number {
    /// How many there are.
    pub(super) const COUNT: usize = Number::ErrorContext as usize + 1;
}

/// A string of which the beginning is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Words {
    Model,
    Id,
    Object,
    Type,
    /// `finish_reason` of a choice; each one ends a choice.
    Finish,
    StopReason,
    StopType,
    Status,
    Reason,
    ErrorType,
    ErrorCode,
    ErrorMessage,
    TopMessage,
    TopCode,
}

impl Words {
    /// How many there are.
    pub(super) const COUNT: usize = Words::TopCode as usize + 1;
}

/// What a wanted value of an answer means.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Key {
    /// A string to keep.
    Words(Words),
    /// A number to keep.
    Number(Number),
    /// Something generated, if it is not empty.
    Token,
    /// llama.cpp native: `true` on the last event.
    Stop,
    /// Ollama: `true` on the last line.
    Done,
    /// TGI: the whole text, on the last event only.
    GeneratedText,
}

const fn words(words: Words) -> Node<Key> {
    Node::leaf(Key::Words(words))
}

const fn number(number: Number) -> Node<Key> {
    Node::leaf(Key::Number(number))
}

const TOKEN: Node<Key> = Node::leaf(Key::Token);
const FUNCTION: Node<Key> = Node::object(&[("name", TOKEN), ("arguments", TOKEN)]);

const CACHED: Node<Key> = Node::object(&[("cached_tokens", number(Number::UsageCached))]);

const USAGE: Node<Key> = Node::object(&[
    ("prompt_tokens", number(Number::UsagePrompt)),
    ("completion_tokens", number(Number::UsageCompletion)),
    ("total_tokens", number(Number::UsageTotal)),
    ("prompt_tokens_details", CACHED),
    ("input_tokens", number(Number::UsageInput)),
    ("output_tokens", number(Number::UsageOutput)),
    ("input_tokens_details", CACHED),
    ("cache_read_input_tokens", number(Number::UsageCacheRead)),
    ("cache_creation_input_tokens", number(Number::UsageCacheCreation)),
]);

const TIMINGS: Node<Key> = Node::object(&[
    ("cache_n", number(Number::TimingsCacheN)),
    ("prompt_n", number(Number::TimingsPromptN)),
    ("prompt_ms", number(Number::TimingsPromptMs)),
    ("predicted_n", number(Number::TimingsPredictedN)),
    ("predicted_ms", number(Number::TimingsPredictedMs)),
]);

const METRICS: Node<Key> = Node::object(&[("queue_time_ms", number(Number::VllmQueueMs))]);

const ERROR_KEYS: &[(&str, Node<Key>)] = &[
    ("message", words(Words::ErrorMessage)),
    ("type", words(Words::ErrorType)),
    ("code", words(Words::ErrorCode)),
    ("n_prompt_tokens", number(Number::ErrorPromptTokens)),
    ("n_ctx", number(Number::ErrorContext)),
];

/// An error object, or the error as a bare string.
const ERROR: Node<Key> = Node::either(Key::Words(Words::ErrorMessage), ERROR_KEYS);

const INCOMPLETE: Node<Key> = Node::object(&[("reason", words(Words::Reason))]);

/// `message` of a choice and of Ollama, `delta` of a choice.
const CHOICE_KEYS: &[(&str, Node<Key>)] = &[
    ("content", TOKEN),
    ("reasoning_content", TOKEN),
    ("reasoning", TOKEN),
    ("thinking", TOKEN),
    ("refusal", TOKEN),
    ("tool_calls", TOKEN),
    ("function_call", FUNCTION),
];

const CHOICES: Node<Key> = Node::object(&[
    ("finish_reason", words(Words::Finish)),
    ("text", TOKEN),
    ("delta", Node::object(CHOICE_KEYS)),
    ("message", Node::object(CHOICE_KEYS)),
]);

/// OpenAI Responses hold an object there, Ollama's generate the text.
const RESPONSE: Node<Key> = Node::either(
    Key::Token,
    &[
        ("model", words(Words::Model)),
        ("status", words(Words::Status)),
        ("usage", USAGE),
        ("metrics", METRICS),
        ("error", ERROR),
        ("incomplete_details", INCOMPLETE),
    ],
);

/// Ollama's message, Anthropic's `message_start`, or the text of an error.
const MESSAGE: Node<Key> = Node::either(
    Key::Words(Words::TopMessage),
    &[
        ("model", words(Words::Model)),
        ("usage", USAGE),
        ("content", TOKEN),
        ("thinking", TOKEN),
        ("tool_calls", TOKEN),
    ],
);

/// Anthropic's delta is an object, that of Responses the text.
const DELTA: Node<Key> = Node::either(
    Key::Token,
    &[
        ("text", TOKEN),
        ("thinking", TOKEN),
        ("partial_json", TOKEN),
        ("stop_reason", words(Words::StopReason)),
    ],
);

const TGI_DETAILS: Node<Key> = Node::object(&[
    ("finish_reason", words(Words::StopReason)),
    ("generated_tokens", number(Number::TgiGenerated)),
    ("input_length", number(Number::TgiPrefill)),
    ("prefill", number(Number::TgiPrefill)),
]);

/// FastAPI's word for an error: a string, or a list of what is wrong.
const DETAIL: Node<Key> =
    Node::either(Key::Words(Words::TopMessage), &[("msg", words(Words::TopMessage))]);

const COHERE_TOKENS: Node<Key> = Node::object(&[
    ("input_tokens", number(Number::UsageInput)),
    ("output_tokens", number(Number::UsageOutput)),
]);

/// What is wanted from an answer, or from one event of it.
pub(super) static ANSWER: Node<Key> = Node::object(&[
    ("model", words(Words::Model)),
    ("id", words(Words::Id)),
    ("object", words(Words::Object)),
    ("type", words(Words::Type)),
    ("choices", CHOICES),
    ("usage", USAGE),
    ("timings", TIMINGS),
    ("metrics", METRICS),
    ("meta", Node::object(&[("tokens", COHERE_TOKENS)])),
    ("delta", DELTA),
    ("message", MESSAGE),
    ("response", RESPONSE),
    ("content", TOKEN),
    ("thinking", TOKEN),
    ("token", Node::object(&[("text", TOKEN)])),
    ("generated_text", Node::leaf(Key::GeneratedText)),
    ("details", TGI_DETAILS),
    ("stop", Node::leaf(Key::Stop)),
    ("stop_type", words(Words::StopType)),
    ("stop_reason", words(Words::StopReason)),
    ("status", words(Words::Status)),
    ("incomplete_details", INCOMPLETE),
    ("tokens_evaluated", number(Number::NativeEvaluated)),
    ("tokens_predicted", number(Number::NativePredicted)),
    ("done", Node::leaf(Key::Done)),
    ("done_reason", words(Words::StopReason)),
    ("prompt_eval_count", number(Number::OllamaPrompt)),
    ("prompt_eval_cached_count", number(Number::OllamaCached)),
    ("eval_count", number(Number::OllamaEval)),
    ("total_duration", number(Number::OllamaTotalNs)),
    ("load_duration", number(Number::OllamaLoadNs)),
    ("prompt_eval_duration", number(Number::OllamaPromptNs)),
    ("eval_duration", number(Number::OllamaEvalNs)),
    ("error", ERROR),
    ("error_type", words(Words::ErrorType)),
    ("code", words(Words::TopCode)),
    ("detail", DETAIL),
]);

/// What is wanted from an error object that stands alone.
pub(super) static BARE_ERROR: Node<Key> = Node::object(&[
    ("error", ERROR),
    ("message", words(Words::ErrorMessage)),
    ("type", words(Words::ErrorType)),
    ("code", words(Words::ErrorCode)),
    ("n_prompt_tokens", number(Number::ErrorPromptTokens)),
    ("n_ctx", number(Number::ErrorContext)),
]);
