//! The load generator counts what happened, and its clients die reproducibly.

use std::time::Duration;

use inferwatch_lab::fake::{FakeUpstream, Instant, Settings};
use inferwatch_lab::fault;
use inferwatch_lab::load::{Death, Plan, run};
use inferwatch_lab::raw::RawUpstream;
use inferwatch_lab::script::Script;
use inferwatch_lab::wire::request;

const CHAT: &str = "/v1/chat/completions";

fn post(fault: &str, body: &str) -> Vec<u8> {
    request("POST", CHAT, &[(fault::HEADER, fault)], body.as_bytes())
}

#[tokio::test]
async fn documents_are_counted() {
    let upstream = FakeUpstream::start(Settings::default()).unwrap();
    let plan = Plan {
        connections: 3,
        requests_count: Some(40),
        pids: vec![std::process::id(), u32::MAX],
        ..Plan::new(upstream.addr(), "POST", post("none", "{}"))
    };
    let report = run(plan).await;
    assert_eq!((report.completed_count, report.statuses.get(&200)), (40, Some(&40)));
    assert_eq!(report.total_ms.unwrap().count, 40);
    assert_eq!((report.events_count, report.first_event_ms), (0, None));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    assert_eq!(upstream.connections_count(), 3);
    assert!(report.processes[0].rss_peak_mb.is_some());
    assert_eq!(report.processes[1].cpu_us, None, "no such process is null, not 0");
}

#[tokio::test]
async fn streams_are_counted_by_event() {
    let instant = Some(Instant { events_count: 5, events_per_s: 0.0 });
    let upstream = FakeUpstream::start(Settings { instant, ..Settings::default() }).unwrap();
    let plan = Plan {
        connections: 50,
        requests_count: Some(100),
        ..Plan::new(upstream.addr(), "POST", post("none", r#"{"stream":true}"#))
    };
    let report = run(plan).await;
    // Role, five tokens, finish and [DONE].
    assert_eq!((report.completed_count, report.events_count), (100, 800));
    assert_eq!(report.first_event_ms.unwrap().count, 100);
    assert_eq!(report.event_gap_ms.unwrap().count, 700);
}

#[tokio::test]
async fn errors_are_counted_by_kind() {
    let upstream = FakeUpstream::start(Settings::default()).unwrap();
    for (fault, kind) in [
        ("cut_after_bytes=0", "closed_before_head"),
        ("cut_after_bytes=200", "cut"),
        ("never_answers", "timeout"),
        ("wrong_length=50,20", "cut"),
    ] {
        let timeout = (fault == "never_answers").then_some(Duration::from_millis(20));
        let plan = Plan {
            requests_count: Some(3),
            timeout,
            ..Plan::new(upstream.addr(), "POST", post(fault, "{}"))
        };
        let report = run(plan).await;
        assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [(kind, 3)], "{fault}");
        assert_eq!(report.completed_count, 0, "{fault}");
    }
    let addr = upstream.stop().await;
    let report = run(Plan::new(addr, "POST", post("none", "{}"))).await;
    assert_eq!(report.errors.into_iter().collect::<Vec<_>>(), [("connect", 1)]);
}

#[tokio::test]
async fn the_same_seed_kills_the_same_clients() {
    let upstream = RawUpstream::start(|_| Script::answer(200, "text/plain", &[b'x'; 500])).unwrap();
    let deaths = async |seed, probability, max_bytes| {
        let plan = Plan {
            requests_count: Some(100),
            connections: 4,
            death: Some(Death { probability, max_bytes }),
            seed,
            ..Plan::new(upstream.addr(), "GET", request("GET", "/", &[], b""))
        };
        let report = run(plan).await;
        assert_eq!(report.deaths_count + report.completed_count, 100, "{:?}", report.errors);
        report.deaths_count
    };
    let some = deaths(1, 0.3, 400).await;
    assert!((15..45).contains(&some), "{some}");
    assert_eq!(deaths(1, 0.3, 400).await, some);
    assert_eq!(deaths(1, 0.0, 400).await, 0);
    assert_eq!(deaths(1, 1.0, 400).await, 100);
    let short = deaths(1, 1.0, 1_000_000).await;
    assert!(short < 100, "an answer that ends before its client dies is complete: {short}");
}

#[tokio::test]
async fn a_random_mix_of_faults_and_deaths_leaves_no_slot_behind() {
    let upstream = FakeUpstream::start(Settings::default()).unwrap();
    let faults = fault::FORMS.lines().filter_map(|line| line.split_whitespace().next());
    let ask = |fault| post(fault, r#"{"prompt":"a b","stream":true,"max_tokens":8}"#);
    let plan = Plan {
        requests: faults.map(ask).collect(),
        requests_count: Some(600),
        connections: 8,
        timeout: Some(Duration::from_millis(300)),
        death: Some(Death { probability: 0.5, max_bytes: 1500 }),
        ..Plan::new(upstream.addr(), "POST", Vec::new())
    };
    let report = run(plan).await;
    let failed: u64 = report.errors.values().sum();
    assert_eq!(report.completed_count + report.deaths_count + failed, 600);
    assert!(report.completed_count > 50 && report.deaths_count > 50 && failed > 50, "{report:?}");
    upstream.idle().await;
    let counts = upstream.counts();
    let worked = counts.completed_count() + counts.cancelled_count();
    // Two of the twelve forms (an error status, no answer) never reach a slot.
    assert!((1..=500).contains(&worked), "{worked}");
}
