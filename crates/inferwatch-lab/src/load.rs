//! A load generator: a closed loop over some connections, streaming aware, with clients that die.

pub mod process;
pub mod report;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::{Client, Trouble};
use crate::rng::Rng;
use process::Usage;
use report::{Report, Tally};

/// How clients die.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    /// Probability that a request's client dies (0 to 1).
    pub probability: f64,
    /// It dies after a random number of bytes received below this, or at the end of a shorter
    /// answer (which then counts as completed).
    pub max_bytes: u64,
}

/// What to send, and how much of it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where.
    pub addr: SocketAddr,
    /// Method, for the framing of the answers.
    pub method: String,
    /// The requests as bytes, sent in turn; there is at least one.
    pub requests: Vec<Vec<u8>>,
    /// Connections; each has one request at a time.
    pub connections: usize,
    /// Stop after so many requests.
    pub requests_count: Option<u64>,
    /// Begin no request after this time.
    pub duration: Option<Duration>,
    /// Give a request up after this time.
    pub timeout: Option<Duration>,
    /// Clients that die.
    pub death: Option<Death>,
    /// Seed of the deaths: the same seed, the same deaths.
    pub seed: u64,
    /// Processes whose CPU and memory is reported, with their children.
    pub pids: Vec<u32>,
}

impl Plan {
    /// One connection, one request.
    pub fn new(addr: SocketAddr, method: &str, request: Vec<u8>) -> Plan {
        Plan {
            addr,
            method: method.to_owned(),
            requests: vec![request],
            connections: 1,
            requests_count: Some(1),
            duration: None,
            timeout: None,
            death: None,
            seed: 1,
            pids: Vec::new(),
        }
    }
}

/// Carries a plan out.
pub async fn run(plan: Plan) -> Report {
    let before: Vec<_> = plan.pids.iter().map(|pid| (*pid, Usage::of_tree(*pid))).collect();
    let plan = Arc::new(plan);
    let begun = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..plan.connections {
        workers.spawn(work(Arc::clone(&plan), Arc::clone(&begun), start));
    }
    let mut tally = Tally::default();
    while let Some(done) = workers.join_next().await {
        match done {
            Ok(one) => tally.add(one),
            Err(_) => tally.error("worker_panicked"),
        }
    }
    let usages = before.into_iter().map(|(pid, usage)| (pid, usage, Usage::of_tree(pid)));
    Report::new(tally, start.elapsed(), usages)
}

async fn work(plan: Arc<Plan>, begun: Arc<AtomicU64>, start: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut client = None;
    loop {
        let is_late = plan.duration.is_some_and(|limit| start.elapsed() >= limit);
        let number = begun.fetch_add(1, Ordering::Relaxed);
        if is_late || plan.requests_count.is_some_and(|limit| number >= limit) {
            return tally;
        }
        let mut request = Exchange::new(&plan, number);
        let sent_at = Instant::now();
        let result = match plan.timeout {
            Some(limit) => {
                timeout(limit, request.run(&mut client, &mut tally)).await.unwrap_or(Err("timeout"))
            }
            None => request.run(&mut client, &mut tally).await,
        };
        match result {
            Ok(Ended::Complete) => tally.complete(sent_at.elapsed()),
            Ok(Ended::Died) => tally.deaths_count += 1,
            Err(kind) => {
                client = None;
                tally.error(kind);
                // A server that is away would be hammered without it.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

enum Ended {
    Complete,
    Died,
}

struct Exchange<'p> {
    plan: &'p Plan,
    bytes: &'p [u8],
    /// Bytes to receive before dying, and whether with a reset.
    death: Option<(u64, bool)>,
}

impl<'p> Exchange<'p> {
    // The deaths depend on the number of the request only, not on which connection carries it.
    fn new(plan: &'p Plan, number: u64) -> Exchange<'p> {
        let mut rng = Rng::new(plan.seed ^ number.wrapping_mul(0x2545_F491_4F6C_DD1D));
        let dying = plan.death.filter(|death| rng.chance(death.probability));
        let death = dying.map(|death| (rng.below(death.max_bytes), rng.chance(0.5)));
        let turn = number % plan.requests.len().max(1) as u64;
        let bytes = plan.requests.get(usize::try_from(turn).unwrap_or(0));
        Exchange { plan, bytes: bytes.map_or(&[], Vec::as_slice), death }
    }

    async fn run(
        &mut self,
        slot: &mut Option<Client>,
        tally: &mut Tally,
    ) -> Result<Ended, &'static str> {
        let kind = |trouble: Trouble| trouble.kind();
        let mut client = match slot.take() {
            Some(client) => client,
            None => Client::connect(self.plan.addr).await.map_err(kind)?,
        };
        let sent_at = Instant::now();
        client.send(self.bytes).await.map_err(kind)?;
        let Some((after_bytes, reset)) = self.death else {
            let read = read(&mut client, &self.plan.method, sent_at, tally).await;
            *slot = read.map_err(kind)?.then_some(client);
            return Ok(Ended::Complete);
        };
        client.stop_after(after_bytes);
        let ended = match read(&mut client, &self.plan.method, sent_at, tally).await {
            Ok(_) => Ended::Complete,
            Err(Trouble::Stopped) => Ended::Died,
            Err(trouble) => return Err(kind(trouble)),
        };
        if reset {
            client.reset();
        } else {
            client.close();
        }
        Ok(ended)
    }
}

async fn read(
    client: &mut Client,
    method: &str,
    sent_at: Instant,
    tally: &mut Tally,
) -> Result<bool, Trouble> {
    let mut head = client.read_head().await?;
    while (100..200).contains(&head.status) {
        head = client.read_head().await?;
    }
    tally.status(head.status);
    tally.head(sent_at.elapsed());
    let before_bytes = client.received_bytes();
    let mut body = client.body(&head, method);
    let mut last_at = None;
    if body.is_stream() {
        while let Some(event) = body.next_event().await? {
            tally.event(sent_at, last_at.replace(event.at), event.at);
        }
    } else {
        while body.next_piece().await?.is_some() {}
    }
    tally.bytes_count += body.received_bytes() - before_bytes + head.bytes.len() as u64;
    Ok(head.keeps_alive())
}
