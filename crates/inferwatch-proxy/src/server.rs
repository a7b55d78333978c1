//! Accepts connections and serves each until it ends or the proxy is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use inferwatch_record::Recorder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::Config;
use crate::forward::Forwarder;
use crate::io::WatchedStream;
use crate::lifecycle::{self, Control, Stage};
use crate::limits::Admission;
use crate::link::MAX_BUF_BYTES;
use crate::pool::Pool;
use crate::tokens::{Counting, TokenDesk};

/// How long a client may take over the head of a request, and how long it may idle between two:
/// nginx's `keepalive_timeout`.
const HEAD_PATIENCE: Duration = Duration::from_secs(75);

/// Pause before the next try when no connection can be accepted (file descriptors are short).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How often idle connections to the upstream are looked over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A proxy that is bound to its address.
pub struct Proxy {
    listener: TcpListener,
    forwarder: Arc<Forwarder>,
    recorder: Recorder,
    counting: Counting,
    drain_timeout: Duration,
    control: Control,
}

impl Proxy {
    /// Binds the address. The upstream need not be there yet.
    ///
    /// # Errors
    /// The address cannot be bound: taken, not of this machine, or not allowed.
    pub async fn bind(config: Config, recorder: Recorder) -> io::Result<Proxy> {
        let listener = TcpListener::bind(&config.listen).await?;
        let (desk, counting) = TokenDesk::open(recorder.clone(), config.count_tokens);
        let (control, lifecycle) = lifecycle::lifecycle();
        let forwarder = Arc::new(Forwarder {
            upstream: config.upstream.to_string(),
            pool: Arc::new(Pool::new(config.upstream)),
            admission: config.limits.map(Admission::new),
            max_tokens: config.max_tokens,
            on_abort: config.on_abort,
            recorder: recorder.clone(),
            desk,
            lifecycle,
            requests: Arc::new(AtomicU64::new(0)),
        });
        let drain_timeout = config.drain_timeout;
        Ok(Proxy { listener, forwarder, recorder, counting, drain_timeout, control })
    }

    /// The address in use, for instance after binding port 0.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until the first message in `stops` (or its end), which names the reason; then lets running
    /// requests finish, until the drain time is over or a second message comes.
    pub async fn run(self, mut stops: mpsc::Receiver<&'static str>) -> Served {
        let Proxy { listener, forwarder, recorder, counting, drain_timeout, mut control } = self;
        let sweeper = tokio::spawn(sweep(forwarder.pool.clone()));
        let reason = tokio::select! {
            never = accept(&listener, &forwarder) => match never {},
            reason = stops.recv() => reason,
        };
        sweeper.abort();
        let requests = forwarder.requests.clone();
        drop((listener, forwarder));
        control.enter(Stage::Draining);
        let unfinished_count = tokio::select! {
            () = control.all_gone() => 0,
            () = tokio::time::sleep(drain_timeout) => recorder.inflight(),
            Some(_) = stops.recv() => recorder.inflight(),
        };
        control.enter(Stage::Cut);
        control.all_gone().await;
        counting.finish();
        let requests_count = requests.load(Relaxed);
        Served { reason: reason.unwrap_or("stopped"), requests_count, unfinished_count }
    }
}

/// What a proxy did in its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Why it stopped.
    pub reason: &'static str,
    /// Requests accepted, each with its line.
    pub requests_count: u64,
    /// Requests cut at the end because they did not finish in time.
    pub unfinished_count: u64,
}

async fn sweep(pool: Arc<Pool>) {
    let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        ticks.tick().await;
        pool.sweep(Instant::now());
    }
}

async fn accept(listener: &TcpListener, forwarder: &Arc<Forwarder>) -> std::convert::Infallible {
    loop {
        match listener.accept().await {
            Ok((tcp, _)) => {
                tokio::spawn(serve(tcp, forwarder.clone()));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => {
                forwarder.pool.clear();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Errors that tell of the connection that would have been accepted, not of the listener.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve(tcp: TcpStream, forwarder: Arc<Forwarder>) {
    let lifecycle = forwarder.lifecycle.clone();
    let (io, traffic) = WatchedStream::new(tcp);
    let service = service_fn(move |request| {
        let answer = forwarder.clone().serve(request, traffic.clone());
        async { Ok::<_, std::convert::Infallible>(answer.await) }
    });
    let conn = http1::Builder::new()
        .preserve_header_case(true)
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_BUF_BYTES)
        .serve_connection(io, service)
        .with_upgrades();
    let mut conn = std::pin::pin!(conn);
    // What goes wrong on a connection has been written into the lines of its requests.
    tokio::select! {
        biased;
        _ = conn.as_mut() => return,
        () = lifecycle.reached(Stage::Draining) => conn.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = conn.as_mut() => {}
        () = lifecycle.reached(Stage::Cut) => {}
    }
}
