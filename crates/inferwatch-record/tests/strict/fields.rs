//! Every kind of line and every field of it, in the order of the wire.

/// How often a field stands in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    Always,
    Known,
    /// Any number of fields whose names begin so.
    Repeated,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Type {
    Time,
    Text(usize),
    Word(&'static [&'static str]),
    Whole,
    Status,
    /// `_ms`, `_mb`, `_per_s`: at most one decimal.
    Number,
    Flag,
}

pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(super) ty: Type,
    pub(crate) presence: Presence,
}

pub(crate) struct Kind {
    pub(crate) word: &'static str,
    pub(crate) fields: Vec<Field>,
}

/// Fields that are always there and always known.
const NEVER_NULL: [&str; 5] = ["ts", "kind", "route", "version", "reason"];

impl Field {
    pub(super) fn names(&self, name: &str) -> bool {
        match self.presence {
            Presence::Repeated => name.strip_prefix(self.name).is_some_and(|flag| {
                !flag.is_empty() && flag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            }),
            _ => self.name == name,
        }
    }

    /// Only fields that are always there can be unknown.
    pub(super) fn may_be_null(&self) -> bool {
        self.presence == Presence::Always && !NEVER_NULL.contains(&self.name)
    }
}

const OUTCOMES: &[&str] = &[
    "ok",
    "rejected",
    "upstream_error",
    "error_in_stream",
    "truncated",
    "client_closed",
    "client_closed_waiting",
    "connect_failed",
    "timeout",
    "shed",
    "upstream_killed",
];
const TOKEN_SOURCES: &[&str] = &["usage", "timings", "header", "tokenizer", "bytes/4", "none"];
const PARSE_TROUBLES: &[&str] = &["gave_up", "encoded"];

pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind { word: "request", fields: request() },
        Kind { word: "open", fields: open() },
        Kind { word: "start", fields: start() },
        Kind { word: "stop", fields: stop() },
        Kind { word: "dropped", fields: dropped() },
    ]
}

fn always(name: &'static str, ty: Type) -> Field {
    Field { name, ty, presence: Presence::Always }
}

fn known(name: &'static str, ty: Type) -> Field {
    Field { name, ty, presence: Presence::Known }
}

fn header() -> Vec<Field> {
    vec![always("ts", Type::Time), always("kind", Type::Text(128)), known("seq", Type::Whole)]
}

fn request() -> Vec<Field> {
    let mut fields = header();
    fields.push(known("id", Type::Text(128)));
    fields.extend([
        always("route", Type::Text(512)),
        always("model", Type::Text(256)),
        always("prompt_tokens", Type::Whole),
        always("completion_tokens", Type::Whole),
        always("encode_ms", Type::Number),
        always("retrieve_ms", Type::Number),
        always("rerank_ms", Type::Number),
        always("generate_ms", Type::Number),
        always("total_ms", Type::Number),
        always("rss_mb", Type::Number),
        always("inflight", Type::Whole),
        always("cache_hit", Type::Flag),
        always("status", Type::Status),
    ]);
    fields.extend(request_known());
    fields
}

fn request_known() -> [Field; 28] {
    [
        known("outcome", Type::Word(OUTCOMES)),
        known("error", Type::Text(256)),
        known("upstream", Type::Text(128)),
        known("upstream_status", Type::Status),
        known("requested_model", Type::Text(256)),
        known("stream", Type::Flag),
        known("finish", Type::Text(128)),
        known("tokens_src", Type::Word(TOKEN_SOURCES)),
        known("est_prompt_tokens", Type::Whole),
        known("cached_tokens", Type::Whole),
        known("completion_tokens_partial", Type::Flag),
        known("batch", Type::Whole),
        known("queue_ms", Type::Number),
        known("load_ms", Type::Number),
        known("headers_ms", Type::Number),
        known("prefill_ms", Type::Number),
        known("ttft_ms", Type::Number),
        known("decode_tokens_per_s", Type::Number),
        known("coalesced", Type::Flag),
        known("rss_start_mb", Type::Number),
        known("anon_mb", Type::Number),
        known("anon_start_mb", Type::Number),
        known("bytes_in", Type::Whole),
        known("bytes_out", Type::Whole),
        known("capped_max_tokens", Type::Whole),
        known("parse", Type::Word(PARSE_TROUBLES)),
        known("trace_id", Type::Text(128)),
        known("client", Type::Text(128)),
    ]
}

fn open() -> Vec<Field> {
    let mut fields = header();
    fields.extend([
        known("id", Type::Text(128)),
        always("route", Type::Text(512)),
        always("model", Type::Text(256)),
        always("age_ms", Type::Number),
        always("inflight", Type::Whole),
        always("headers_ms", Type::Number),
        always("ttft_ms", Type::Number),
    ]);
    fields
}

fn start() -> Vec<Field> {
    let mut fields = header();
    fields.extend([
        always("version", Type::Text(128)),
        always("pid", Type::Whole),
        always("cores", Type::Whole),
        Field { name: "set_", ty: Type::Text(128), presence: Presence::Repeated },
        known("settings_left_out_count", Type::Whole),
    ]);
    fields
}

fn stop() -> Vec<Field> {
    let mut fields = header();
    fields.extend([
        always("reason", Type::Text(128)),
        always("uptime_ms", Type::Number),
        always("requests_count", Type::Whole),
        always("unfinished_count", Type::Whole),
    ]);
    fields
}

fn dropped() -> Vec<Field> {
    let mut fields = header();
    fields.extend([
        always("dropped_count", Type::Whole),
        always("queue_full_count", Type::Whole),
        always("write_failed_count", Type::Whole),
        known("error", Type::Text(256)),
    ]);
    fields
}
