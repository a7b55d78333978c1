//! The raw upstream does on the wire what its script says, and sees what its peer does.

use std::time::Duration;

use inferwatch_lab::client::{Client, Trouble, exchange};
use inferwatch_lab::observed::CloseKind;
use inferwatch_lab::raw::{OnHead, Options, RawUpstream};
use inferwatch_lab::script::{Script, Step};
use inferwatch_lab::wire::request;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const GAP: Duration = Duration::from_millis(2);

fn ok(body: &str) -> Script {
    Script::answer(200, "text/plain", body.as_bytes())
}

#[tokio::test]
async fn scripts_on_the_wire() {
    let loud = |script: Script| script.send(&b"HTTP/1.1 200 OK\r\n\r\nabcdef"[..]);
    type Make = Box<dyn Fn() -> Script + Send + Sync>;
    let cases: Vec<(&str, Make, &str, bool)> = vec![
        ("fin", Box::new(move || loud(Script::new()).fin()), "abcdef", false),
        ("reset", Box::new(move || loud(Script::new()).wait(50 * GAP).reset()), "abcdef", true),
        (
            "pieces",
            Box::new(|| {
                Script::new().send_in_pieces(&b"HTTP/1.1 200 OK\r\n\r\nxyz"[..], 1, GAP).fin()
            }),
            "xyz",
            false,
        ),
        (
            "repeat",
            Box::new(|| {
                let bytes = bytes::Bytes::from_static(b"ab");
                let repeat = Step::Repeat { bytes, count: 3, gap: GAP };
                Script::new().send(&b"HTTP/1.1 200 OK\r\n\r\n"[..]).then(repeat).fin()
            }),
            "ababab",
            false,
        ),
    ];
    for (name, make, body, is_reset) in cases {
        let upstream = RawUpstream::start(move |_| make()).unwrap();
        let response = exchange(upstream.addr(), GET).await.unwrap();
        assert_eq!(response.body, body.as_bytes(), "{name}");
        let reset = matches!(response.trouble, Some(Trouble::Reset(_)));
        assert_eq!(reset, is_reset, "{name}: {:?}", response.trouble);
    }
}

#[tokio::test]
async fn pieces_with_gaps_are_separate_reads() {
    let upstream = RawUpstream::start(|_| {
        Script::new().send(&b"one"[..]).wait(50 * GAP).send(&b"two"[..]).fin()
    })
    .unwrap();
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    client.send(GET).await.unwrap();
    for expected in ["one", "two", ""] {
        assert_eq!(client.read_some().await.unwrap(), expected.as_bytes());
    }
}

#[tokio::test]
async fn connections_are_kept_alive_and_requests_recorded_exactly() {
    let upstream = RawUpstream::start(|request| ok(&request.number.to_string())).unwrap();
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    let chunked =
        b"POST /b?q HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nT: 1\r\n\r\n";
    // The second and third are sent ahead, in one write.
    client.send(GET).await.unwrap();
    assert_eq!(client.read_response("GET").await.unwrap().body, b"0");
    client.send(&[chunked, GET].concat()).await.unwrap();
    for body in ["1", "2"] {
        assert_eq!(client.read_response("GET").await.unwrap().body, body.as_bytes());
    }
    exchange(upstream.addr(), GET).await.unwrap();

    let second = upstream.request(1).await;
    assert_eq!(second.path(), "/b");
    assert_eq!([&second.head.bytes[..], &second.body_on_wire].concat(), chunked);
    assert_eq!((second.body.as_slice(), second.body_bytes), (&b"hi"[..], 2));
    assert_eq!(upstream.requests_per_connection(), [3, 1]);
    assert_eq!(upstream.connections_count(), 2);
}

#[tokio::test]
async fn the_peers_close_is_seen_wherever_it_comes() {
    for (name, sent, reset, mid_request) in [
        ("idle", &b""[..], false, false),
        ("inside a head", b"GET / HT", false, true),
        ("inside a body", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", false, true),
        ("while it waits", GET, false, true),
        ("while it waits, by reset", GET, true, true),
    ] {
        let upstream = RawUpstream::start(|_| Script::new().hang()).unwrap();
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(sent).await.unwrap();
        if sent == GET {
            upstream.request(0).await;
            assert!(upstream.peer_closed_yet(0).is_none(), "{name}");
        }
        if reset {
            client.reset();
        } else {
            client.close();
        }
        let closed = upstream.peer_closed(0).await;
        let kind = if reset { CloseKind::Reset } else { CloseKind::Fin };
        assert_eq!((closed.kind, closed.mid_request), (kind, mid_request), "{name}");
    }
}

#[tokio::test]
async fn a_head_can_be_answered_before_its_body() {
    let addr = ([127, 0, 0, 1], 0).into();
    let on_head = |head: &inferwatch_lab::wire::RequestHead| match head.target.as_str() {
        "/continue" => OnHead::Interim(Script::new().send(&b"HTTP/1.1 100 Continue\r\n\r\n"[..])),
        "/refuse" => OnHead::Final(Script::answer(413, "text/plain", b"no").fin()),
        _ => OnHead::ReadBody,
    };
    let options = Options { on_head: Some(Box::new(on_head)), ..Options::default() };
    let upstream =
        RawUpstream::start_with(addr, options, |r| ok(&r.body_bytes.to_string())).unwrap();
    for (target, statuses) in
        [("/continue", &[100, 200][..]), ("/refuse", &[413]), ("/plain", &[200])]
    {
        let bytes = request("POST", target, &[], b"12345");
        let (head, body) = bytes.split_at(bytes.len() - 5);
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(head).await.unwrap();
        let mut seen = Vec::new();
        if target != "/plain" {
            seen.push(client.read_head().await.unwrap().status);
        }
        if target != "/refuse" {
            client.send(body).await.unwrap();
            let response = client.read_response("POST").await.unwrap();
            seen.push(response.head.status);
            assert_eq!(response.body, b"5", "{target}");
        }
        assert_eq!(seen, statuses, "{target}");
    }
}

#[tokio::test]
async fn bodies_beyond_the_cap_are_counted_and_not_kept() {
    let options = Options { keep_body_bytes: 10, ..Options::default() };
    let addr = ([127, 0, 0, 1], 0).into();
    let upstream = RawUpstream::start_with(addr, options, |_| ok("")).unwrap();
    exchange(upstream.addr(), &request("POST", "/", &[], &[b'x'; 300_000])).await.unwrap();
    let seen = upstream.request(0).await;
    assert_eq!((seen.body.len(), seen.body_on_wire.len(), seen.body_bytes), (10, 10, 300_000));
}

#[tokio::test]
async fn it_can_be_stopped_and_started_again_on_its_port() {
    let first = RawUpstream::start(|_| Script::new().hang()).unwrap();
    let mut waiting = Client::connect(first.addr()).await.unwrap();
    waiting.send(GET).await.unwrap();
    first.request(0).await;
    let addr = first.stop().await;
    assert!(matches!(
        waiting.read_head().await,
        Err(Trouble::ClosedBeforeHead | Trouble::Reset(_))
    ));
    assert!(matches!(Client::connect(addr).await, Err(Trouble::Connect(_))));

    let second = RawUpstream::start_with(addr, Options::default(), |_| ok("again")).unwrap();
    assert_eq!(exchange(second.addr(), GET).await.unwrap().body, b"again");
}

#[tokio::test]
async fn an_idle_connection_is_closed_when_told_to() {
    let options = Options { idle_timeout: Some(GAP), ..Options::default() };
    let addr = ([127, 0, 0, 1], 0).into();
    let upstream = RawUpstream::start_with(addr, options, |_| ok("")).unwrap();
    let mut client = Client::connect(upstream.addr()).await.unwrap();
    assert!(client.read_some().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_http_is_hung_up_on() {
    let upstream = RawUpstream::start(|_| ok("")).unwrap();
    for bytes in [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"GET / HTTP/1.1\r\nno colon\r\n\r\n"] {
        let mut client = Client::connect(upstream.addr()).await.unwrap();
        client.send(bytes).await.unwrap();
        let read = client.read_some().await;
        assert!(!matches!(&read, Ok(bytes) if !bytes.is_empty()), "{read:?}");
    }
}
