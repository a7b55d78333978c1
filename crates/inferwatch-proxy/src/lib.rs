//! An observing HTTP/1.1 proxy in front of one model server.
//!
//! It forwards every request and every answer byte for byte, looks on while they pass, and writes
//! exactly one `request` line for each request, whatever happens to it. The observer may go blind;
//! it is never in the way.
//!
//! The life of a request: [`Proxy`] accepts the connection; `forward` lets the request in, sends it
//! up over a pooled `link` and turns what comes back into an `answer`, whose body is observed inside
//! its own poll; the `watch::Guard` that goes along writes the line when the body ends, in
//! whichever way it ends, dropping included.

mod address;
mod answer;
mod cap;
mod forward;
mod headers;
mod io;
mod lifecycle;
mod limits;
mod link;
pub mod observe;
mod pool;
mod reply;
mod server;
mod tokens;
mod tunnel;
mod upload;
mod watch;

use std::time::Duration;

pub use address::{AddrError, UpstreamAddr};
pub use answer::OnAbort;
pub use limits::Limits;
pub use server::{Proxy, Served};
pub use tokens::CountTokens;

/// What a proxy does.
pub struct Config {
    /// Address to listen on, `host:port`.
    pub listen: String,
    /// The model server.
    pub upstream: UpstreamAddr,
    /// What happens upstream when a client leaves.
    pub on_abort: OnAbort,
    /// How long running requests may go on after the stop.
    pub drain_timeout: Duration,
    /// Bounds on admission.
    pub limits: Option<Limits>,
    /// Most tokens that a request may ask for; more is rewritten.
    pub max_tokens: Option<u64>,
    /// Counts prompts that the server does not count.
    pub count_tokens: Option<CountTokens>,
}
