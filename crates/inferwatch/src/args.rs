//! What the user said on the command line: texts, not yet meanings (see `settings`).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "inferwatch",
    version,
    about = "Tells the truth about a box that runs models on its CPUs: tokens, timers, memory",
    after_help = "Start with: inferwatch proxy 127.0.0.1:8080\n\
        and point your clients at 127.0.0.1:9080 instead. Every request becomes one JSON line."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Observe a model server: forward byte for byte, write one JSON line per request.
    #[command(after_long_help = PROXY_EXAMPLES)]
    Proxy(ProxyArgs),
    /// Print the settings in force, as a file that --config takes.
    Config(ProxyArgs),
}

const PROXY_EXAMPLES: &str = "\
Examples:
  inferwatch proxy 127.0.0.1:8080                     in front of llama-server, lines to stdout
  inferwatch proxy 127.0.0.1:11434 --log lines.jsonl  in front of Ollama, lines to a file
  inferwatch proxy http://127.0.0.1:8080 --max-inflight 2 --max-queue 8 --queue-timeout 60s
  inferwatch proxy 127.0.0.1:8080 | jq 'select(.total_ms > 3000)'

Signals: SIGTERM or SIGINT lets running requests finish (a second one cuts them), SIGHUP reopens the
log file. The line is described in SCHEMA.md.";

/// Each is `None` unless it was said; defaults live in `settings`.
#[derive(Args, Default)]
pub(crate) struct ProxyArgs {
    /// The model server: HOST:PORT or http://HOST:PORT. It need not be running yet
    #[arg(value_name = "UPSTREAM")]
    pub(crate) upstream: Option<String>,

    /// Address to listen on [default: 127.0.0.1:9080]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// Where the lines go: - is stdout; a file is appended to, and reopened on SIGHUP [default: -]
    #[arg(long, value_name = "-|FILE")]
    pub(crate) log: Option<String>,

    /// When a client leaves: cancel closes the connection to the model server at once, drain reads the
    /// answer to its end (for servers that take a cancelled request badly) [default: cancel]
    #[arg(long, value_name = "cancel|drain")]
    pub(crate) on_abort: Option<String>,

    /// Most requests at the model server at once; off unless given
    #[arg(long, value_name = "N")]
    pub(crate) max_inflight: Option<String>,

    /// Most requests that wait for a place, first come, first served; the next one gets 429 with
    /// Retry-After. Needs --max-inflight [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) max_queue: Option<String>,

    /// How long a request may wait for a place before it gets 429 [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) queue_timeout: Option<String>,

    /// Most tokens a request may ask for. A request that asks for more, or names no limit, is
    /// rewritten: the only case in which a body is changed; the line says so (capped_max_tokens)
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<String>,

    /// Counts prompts when the server reports no tokens: a tokenizer.json or the model's GGUF
    #[arg(long, value_name = "FILE")]
    pub(crate) tokenizer: Option<String>,

    /// How long running requests may go on after SIGTERM [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,

    /// Settings file (TOML). Flags beat it; `inferwatch config` prints one to start from
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
