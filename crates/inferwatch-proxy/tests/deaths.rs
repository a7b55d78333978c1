//! 20,000 requests while clients and upstream die at random: one line for each, nothing drifts.
//!
//! `INFERWATCH_SEED` repeats a run; a failure prints its seed.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]
#![expect(clippy::print_stderr, reason = "a failed run must be repeatable")]

mod world;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use inferwatch_lab::client::{Client, Trouble};
use inferwatch_lab::dialect::Dialect;
use inferwatch_lab::fake::{FakeUpstream, Settings};
use inferwatch_lab::fault::{self, Fault};
use inferwatch_lab::rng::Rng;
use inferwatch_lab::wire;
use inferwatch_proxy::{Config, OnAbort};
use inferwatch_record::{Line, Outcome, RequestLine};
use world::{World, config, limits};

const REQUESTS: u64 = 5_040;
const CLIENTS: u64 = 48;

/// What a client saw of a request that it asked for.
struct Seen {
    id: String,
    fault: Fault,
    /// The status, if a head came.
    status: Option<u16>,
    /// The answer came whole.
    whole: bool,
    /// The client left before the end, or meant to.
    left: bool,
}

#[test]
fn plain_llama_cpp() {
    play("plain", Dialect::LlamaCpp, |_| {});
}

#[test]
fn ollama_behind_a_short_queue() {
    play("queue", Dialect::Ollama, |config| {
        config.limits = limits(8, 8, Duration::from_millis(20));
    });
}

#[test]
fn openai_with_draining() {
    play("drain", Dialect::OpenAi, |config| config.on_abort = OnAbort::Drain);
}

#[test]
fn anthropic_with_a_cap() {
    play("cap", Dialect::Anthropic, |config| config.max_tokens = Some(2));
}

fn play(name: &str, dialect: Dialect, set: fn(&mut Config)) {
    let seed = std::env::var("INFERWATCH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let played = std::panic::catch_unwind(|| runtime.block_on(play_seeded(seed, dialect, set)));
    if let Err(panic) = played {
        eprintln!("{name}: repeat with INFERWATCH_SEED={seed}");
        std::panic::resume_unwind(panic);
    }
}

async fn play_seeded(seed: u64, dialect: Dialect, set: fn(&mut Config)) {
    let settings = Settings { dialect, slots: 16, ..Settings::default() };
    let upstream = FakeUpstream::start(settings.clone()).unwrap();
    let mut config = config(upstream.addr());
    set(&mut config);
    let drains = config.on_abort == OnAbort::Drain;
    let world = World::with(config).await;

    let dying = tokio::spawn(die_now_and_then(upstream, settings, Rng::new(seed)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| tokio::spawn(live(world.addr, dialect, Rng::new(seed ^ (n + 1) << 32), n)))
        .collect();
    let mut seen = Vec::new();
    for client in clients {
        seen.extend(client.await.unwrap());
    }
    dying.abort();
    world.settled().await;
    let (served, lines) = world.end().await;

    check_whole(&lines);
    let requests: Vec<_> = lines.into_iter().filter_map(as_request).collect();
    assert_eq!(requests.len() as u64, served.requests_count, "lines == accepted requests");
    check_lines(&requests, drains);
    check_against(&requests, &seen);
}

fn as_request(line: Line) -> Option<RequestLine> {
    match line {
        Line::Request(request) => Some(*request),
        _ => None,
    }
}

/// The upstream goes away and comes back on its port.
async fn die_now_and_then(mut upstream: FakeUpstream, settings: Settings, mut rng: Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(50 + rng.below(300))).await;
        let listen = upstream.stop().await;
        tokio::time::sleep(Duration::from_millis(rng.below(15))).await;
        upstream = FakeUpstream::start(Settings { listen, ..settings.clone() }).unwrap();
    }
}

/// One client asks again and again, over kept connections and new ones.
async fn live(addr: SocketAddr, dialect: Dialect, mut rng: Rng, number: u64) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut kept: Option<Client> = None;
    for n in 0..REQUESTS / CLIENTS {
        let mut client = match kept.take() {
            Some(client) => client,
            None => Client::connect(addr).await.unwrap(),
        };
        let id = format!("c{number}-{n}");
        let fault = random_fault(&mut rng);
        let left = rng.chance(0.3);
        if left {
            client.stop_after(client.received_bytes() + rng.below(900));
        }
        let _ = client.send(&random_request(dialect, &id, fault, &mut rng)).await;
        let patience = Duration::from_millis(if left { rng.below(30) } else { 20_000 });
        let asked = tokio::time::timeout(patience, client.read_response("POST")).await;
        let (status, trouble) = match asked {
            Ok(Ok(response)) => (Some(response.head.status), response.trouble),
            Ok(Err(trouble)) => (None, Some(trouble)),
            Err(_) => (None, Some(Trouble::Stopped)),
        };
        let left = matches!(trouble, Some(Trouble::Stopped));
        let whole = trouble.is_none();
        seen.push(Seen { id, fault, status, whole, left });
        match trouble {
            None if rng.chance(0.7) => kept = Some(client),
            _ if rng.chance(0.3) => client.reset(),
            _ => client.close(),
        }
    }
    seen
}

fn random_fault(rng: &mut Rng) -> Fault {
    let bytes = rng.below(1500);
    let events = rng.below(4);
    let ms = Duration::from_millis;
    match rng.below(16) {
        0 => Fault::StallBeforeHead(ms(rng.below(20))),
        1 => Fault::StallMidStream { after_events: events, time: ms(rng.below(20)) },
        2 | 3 => Fault::CutAfterBytes(bytes),
        4 => Fault::ResetAfterBytes(bytes),
        5 => Fault::SlowDrip { bytes: 40, gap: ms(1) },
        6 => Fault::GarbageEvent { after_events: events },
        7 => Fault::WrongLength { claim_bytes: 100 + bytes, send_bytes: 50 },
        8 => Fault::Status(503),
        9 => Fault::ErrorLineIn200 { after_events: events },
        10 => Fault::BurstAll,
        _ => Fault::None,
    }
}

fn random_request(dialect: Dialect, id: &str, fault: Fault, rng: &mut Rng) -> Vec<u8> {
    let stream = rng.chance(0.7);
    let path = match dialect {
        Dialect::Ollama => "/api/chat",
        Dialect::Anthropic => "/v1/messages",
        _ => "/v1/chat/completions",
    };
    let body = format!(
        r#"{{"model":"m","stream":{stream},"max_tokens":{},"messages":[{{"role":"user","content":"a b"}}]}}"#,
        1 + rng.below(5)
    );
    let fault = fault.to_string();
    let headers = [("X-Request-Id", id), (fault::HEADER, fault.as_str())];
    wire::request("POST", path, &headers, body.as_bytes())
}

/// No line is lost: the numbers have no hole.
fn check_whole(lines: &[Line]) {
    let mut numbers: Vec<_> = lines.iter().filter_map(Line::seq).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=lines.len() as u64), "seq has holes");
    assert!(!lines.iter().any(|line| matches!(line, Line::Dropped(_))));
}

fn check_lines(requests: &[RequestLine], drains: bool) {
    let mut ids = HashSet::new();
    for line in requests {
        assert!(ids.insert(line.id.clone()), "two lines for {line:?}");
        assert!(line.outcome.is_some() && line.status.is_some(), "{line:?}");
        // What is drained outlives its client.
        let most = if drains { u64::MAX } else { 2 * CLIENTS };
        assert!(line.inflight.is_some_and(|n| (1..=most).contains(&n)), "{line:?}");
    }
}

fn check_against(requests: &[RequestLine], seen: &[Seen]) {
    let lines: HashMap<_, _> =
        requests.iter().map(|line| (line.id.as_deref().unwrap(), line)).collect();
    assert!(lines.keys().all(|id| seen.iter().any(|seen| seen.id == *id)), "a line for nobody");
    let mut whole = 0;
    for seen in seen {
        let line = lines.get(seen.id.as_str());
        let Some(status) = seen.status else { continue };
        let line = line.unwrap_or_else(|| panic!("no line for {} ({status})", seen.id));
        if !seen.left {
            assert_eq!(line.status, Some(status), "{line:?}");
        }
        if seen.whole && status == 200 && seen.fault == Fault::None {
            whole += 1;
            assert_eq!(line.outcome, Some(Outcome::Ok), "{line:?}");
            assert!(line.tokens_src.is_some(), "{line:?}");
        }
    }
    assert!(whole > REQUESTS / 100, "hardly anything went well: {whole}");
}
