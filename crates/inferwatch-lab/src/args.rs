//! The command line, and what its words mean.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use inferwatch_lab::cost::{Cost, Payment};
use inferwatch_lab::dialect::Dialect;
use inferwatch_lab::fake::{Instant, Settings};
use inferwatch_lab::fault::Fault;
use inferwatch_lab::load::{Death, Plan};
use inferwatch_lab::wire;

/// Fake model servers, recordings and load, to test and measure an observer with.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Threads of the network loop.
    #[arg(long, global = true, default_value_t = 1)]
    pub(crate) threads: usize,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve as a fake model server, with real CPU cost, slots and faults.
    #[command(after_help = UPSTREAM_HELP)]
    Upstream(UpstreamArgs),
    /// Serve recorded answers of real servers, with their read boundaries and gaps.
    #[command(after_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Send requests in a closed loop and print what came back as JSON.
    #[command(after_help = LOAD_HELP)]
    Load(LoadArgs),
}

const UPSTREAM_HELP: &str = "\
The prompt's tokens are its words; tokens are generated up to the request's limit, else 16. A request
that finds no free slot waits, first come first served, and gets its head when a slot is given to it.
A client that leaves frees its slot within 2 ms of work.

One request chooses its own fault by a header, such as `x-lab-fault: cut_after_bytes=300`.
Forms of a fault:
  none                        stall_before_head=200ms    stall_mid_stream=3,200ms
  cut_after_bytes=300         reset_after_bytes=300      slow_drip=7,5ms
  garbage_event=2             wrong_length=100,50        status=503
  error_line_in_200=2         never_answers              burst_all

Examples:
  inferwatch-lab upstream --dialect ollama --slots 1 --cpu-us-per-token 20000
  inferwatch-lab upstream --instant --events 100 --events-per-s 50
  curl -H 'x-lab-fault: status=503' -d '{\"messages\":[]}' localhost:8081/v1/chat/completions";

const REPLAY_HELP: &str = "\
The folder holds NAME.request.http, NAME.response.http and NAME.times.jsonl for each recording.

Example:
  inferwatch-lab replay --dir recordings --speed 0
  curl -H 'x-lab-replay: 13-chat-stream' localhost:8082/v1/chat/completions";

const LOAD_HELP: &str = "\
Each connection sends its next request when the answer to the last one is complete. CPU time is read
from /proc in steps of 10 ms: let a run last some seconds.

Examples:
  inferwatch-lab load http://127.0.0.1:9080/v1/chat/completions -c 8 -n 10000 --pid 4711 \\
      --body '{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}'
  inferwatch-lab load http://127.0.0.1:9080/v1/chat/completions -c 64 --duration-s 10 \\
      --body '{\"messages\":[],\"stream\":true}' --death-probability 0.2 --death-max-bytes 4000";

#[derive(Debug, clap::Args)]
pub(crate) struct UpstreamArgs {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8081")]
    pub(crate) listen: SocketAddr,
    /// llama-cpp, openai, anthropic, ollama or tei.
    #[arg(long, default_value_t = Dialect::LlamaCpp)]
    dialect: Dialect,
    /// Requests worked on at once.
    #[arg(long, default_value_t = 2)]
    slots: usize,
    /// CPU-microseconds per token of the prompt.
    #[arg(long, default_value_t = 1000)]
    cpu_us_per_prompt_token: u64,
    /// CPU-microseconds per generated token.
    #[arg(long, default_value_t = 10_000)]
    cpu_us_per_token: u64,
    /// Sleep for these times and use no CPU.
    #[arg(long)]
    sleep: bool,
    /// Fault of requests that choose none themselves.
    #[arg(long, default_value_t = Fault::None)]
    fault: Fault,
    /// Name of the model.
    #[arg(long, default_value = "models/lab.gguf")]
    model: String,
    /// Length of an embedding.
    #[arg(long, default_value_t = 384)]
    dimensions: usize,
    /// Prebuilt answers without slots, costs or faults, for benchmarks of what stands before it.
    #[arg(long)]
    instant: bool,
    /// Token events in a prebuilt stream.
    #[arg(long, default_value_t = 100, requires = "instant")]
    events: u64,
    /// Token events per second in each prebuilt stream; 0 for no pause.
    #[arg(long, default_value_t = 0.0, requires = "instant", value_parser = not_negative)]
    events_per_s: f64,
    /// Close a connection after so many requests.
    #[arg(long)]
    requests_per_connection: Option<usize>,
    /// Close a connection that is idle for so long, milliseconds.
    #[arg(long)]
    idle_timeout_ms: Option<u64>,
}

impl UpstreamArgs {
    pub(crate) fn settings(self) -> Settings {
        let cost = Cost {
            per_prompt_token: Duration::from_micros(self.cpu_us_per_prompt_token),
            per_token: Duration::from_micros(self.cpu_us_per_token),
            payment: if self.sleep { Payment::Sleep } else { Payment::Cpu },
        };
        let instant = Instant { events_count: self.events, events_per_s: self.events_per_s };
        Settings {
            listen: self.listen,
            dialect: self.dialect,
            slots: self.slots,
            cost,
            fault: self.fault,
            model: self.model,
            dimensions: self.dimensions,
            instant: self.instant.then_some(instant),
            requests_per_connection: self.requests_per_connection,
            idle_timeout: self.idle_timeout_ms.map(Duration::from_millis),
            keep_requests: false,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Folder of recordings.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8082")]
    pub(crate) listen: SocketAddr,
    /// 1 keeps the recorded gaps, 10 makes them ten times shorter, 0 leaves them out.
    #[arg(long, default_value_t = 1.0, value_parser = speed)]
    pub(crate) speed: f64,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// Where to send: http://HOST:PORT/PATH.
    url: String,
    /// Connections, each with one request at a time.
    #[arg(short, long, default_value_t = 1)]
    connections: usize,
    /// Stop after so many requests.
    #[arg(short = 'n', long, required_unless_present = "duration_s")]
    requests: Option<u64>,
    /// Begin no request after this time.
    #[arg(long, value_parser = not_negative)]
    duration_s: Option<f64>,
    /// Load for so long before the run that counts.
    #[arg(long, default_value_t = 0.0, value_parser = not_negative)]
    pub(crate) warm_up_s: f64,
    /// Method; POST if there is a body.
    #[arg(short = 'X', long)]
    method: Option<String>,
    /// Header field, `Name: value`; may be given several times.
    #[arg(short = 'H', long = "header")]
    headers: Vec<String>,
    /// Body of every request.
    #[arg(long, conflicts_with = "body_file")]
    body: Option<String>,
    /// File with the body of every request.
    #[arg(long)]
    body_file: Option<PathBuf>,
    /// Give a request up after this time, milliseconds.
    #[arg(long)]
    timeout_ms: Option<u64>,
    /// Probability (0 to 1) that a client closes or resets before its answer is complete.
    #[arg(long, default_value_t = 0.0, value_parser = not_negative)]
    death_probability: f64,
    /// Such a client leaves after a random number of bytes below this.
    #[arg(long, default_value_t = 2000)]
    death_max_bytes: u64,
    /// Seed of the deaths.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Process whose CPU and memory (with its children) is reported; may be given several times.
    #[arg(long = "pid")]
    pids: Vec<u32>,
}

impl LoadArgs {
    pub(crate) async fn plan(self) -> Result<Plan> {
        let (host, target) = split_url(&self.url)?;
        let addr = tokio::net::lookup_host(host)
            .await
            .and_then(|mut found| found.next().ok_or(std::io::ErrorKind::NotFound.into()))
            .with_context(|| format!("cannot resolve {host}"))?;
        let body = match (self.body, self.body_file) {
            (Some(body), _) => body.into_bytes(),
            (None, Some(path)) => {
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?
            }
            (None, None) => Vec::new(),
        };
        let method =
            self.method.unwrap_or_else(|| if body.is_empty() { "GET" } else { "POST" }.into());
        let headers = self.headers.iter().map(|text| header(text)).collect::<Result<Vec<_>>>()?;
        let death = Death { probability: self.death_probability, max_bytes: self.death_max_bytes };
        Ok(Plan {
            addr,
            requests: vec![wire::request(&method, target, &headers, &body)],
            method,
            connections: self.connections,
            requests_count: self.requests,
            duration: self.duration_s.map(Duration::from_secs_f64),
            timeout: self.timeout_ms.map(Duration::from_millis),
            death: (death.probability > 0.0).then_some(death),
            seed: self.seed,
            pids: self.pids,
        })
    }
}

fn split_url(url: &str) -> Result<(&str, &str)> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("{url:?} is no address to send to; try http://127.0.0.1:9080/v1/chat/completions");
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    if !host.contains(':') {
        bail!("{url:?} names no port; try http://{host}:9080{target}");
    }
    Ok((host, if target.is_empty() { "/" } else { target }))
}

fn header(text: &str) -> Result<(&str, &str)> {
    let (name, value) =
        text.split_once(':').with_context(|| format!("{text:?} is no `Name: value`"))?;
    Ok((name.trim(), value.trim()))
}

fn not_negative(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1e6).contains(&value) { Ok(value) } else { Err("must be 0 to 1000000".to_owned()) }
}

fn speed(text: &str) -> Result<f64, String> {
    let value = not_negative(text)?;
    let is_too_slow = value > 0.0 && value < 0.001;
    if is_too_slow { Err("must be 0, or at least 0.001".to_owned()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn urls() {
        for (url, expected) in [
            ("http://a:1/v1?x=/", Some(("a:1", "/v1?x=/"))),
            ("http://a:1", Some(("a:1", "/"))),
            ("http://[::1]:80/x", Some(("[::1]:80", "/x"))),
            ("http://a/v1", None),
            ("https://a:1/", None),
            ("", None),
        ] {
            assert_eq!(split_url(url).ok(), expected, "{url}");
        }
    }
}
