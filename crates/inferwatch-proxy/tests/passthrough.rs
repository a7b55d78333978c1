//! What passes through unchanged, and the few things that HTTP lets a proxy touch.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod world;

use std::time::Duration;

use inferwatch_lab::raw::{OnHead, Options, RawUpstream};
use inferwatch_lab::script::Script;
use inferwatch_record::Outcome;
use world::{World, config, get, post, split};

fn start(options: Options, script: fn() -> Script) -> RawUpstream {
    RawUpstream::start_with(([127, 0, 0, 1], 0).into(), options, move |_| script()).unwrap()
}

fn ok() -> Script {
    Script::answer(200, "text/plain", b"hi")
}

/// The header lines of a head, without the start line.
fn header_lines(head: &[u8]) -> Vec<String> {
    let text = String::from_utf8(head.to_vec()).unwrap();
    text.lines().skip(1).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn requests_keep_their_head() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let sent =
        b"POST /v1/x%20y//z;p?q=a%2Fb&&r HTTP/1.1\r\nhOsT: some.where:81\r\nX-B: 1\r\nx-a:\r\n\
        Connection: close, X-Hop\r\nX-Hop: gone\r\nKeep-Alive: 5\r\nCookie: a=\"b\"; c=\xc3\xa9\r\n\
        Content-Length: 4\r\nX-B2: last\r\n\r\n\0\xff\r\n";
    world.exchange(sent).await;
    let request = upstream.request(0).await;
    assert_eq!(request.head.method, "POST");
    assert_eq!(request.head.target, "/v1/x%20y//z;p?q=a%2Fb&&r");
    assert_eq!(request.body, b"\0\xff\r\n");
    assert_eq!(
        header_lines(&request.head.bytes),
        [
            "hOsT: some.where:81",
            "X-B: 1",
            "x-a:",
            "Cookie: a=\"b\"; c=\u{e9}",
            "Content-Length: 4",
            "X-B2: last",
        ]
    );
    assert_eq!(world.request().await.route, "/v1/x%20y//z;p");
}

#[tokio::test]
async fn answers_keep_their_head() {
    let upstream = start(Options::default(), || {
        Script::new().send(
            "HTTP/1.1 200 Fine By Me\r\nServer: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n\
             Set-Cookie: a=1\r\nset-cookie: b=2\r\nKeep-Alive: timeout=5, max=100\r\n\
             X-ACCEL-Buffering: no\r\nConnection: close\r\nContent-Length: 2\r\nEnd: z\r\n\r\nhi",
        )
    });
    let world = World::before(&upstream).await;
    let mut client = world.client("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let head = client.until(b"\r\n\r\n").await;
    assert!(
        head.starts_with(b"HTTP/1.1 200 Fine By Me\r\n"),
        "{:?}",
        String::from_utf8_lossy(&head)
    );
    assert_eq!(
        header_lines(&head),
        [
            "Server: llama.cpp",
            "Access-Control-Allow-Origin: ",
            "Set-Cookie: a=1",
            "set-cookie: b=2",
            "X-ACCEL-Buffering: no",
            "Content-Length: 2",
            "End: z",
        ]
    );
    client.until(b"hi").await;
    // The client's connection lives on, whatever the upstream does with its own.
    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
    client.until(b"\r\n\r\nhi").await;
    assert_eq!(world.requests().await.len(), 2);
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let mut client = world.client("").await;
    for _ in 0..200 {
        client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.until(b"hi").await;
    }
    assert_eq!(upstream.requests_per_connection(), [90, 90, 20]);
    drop(client);
    assert_eq!(world.requests().await.len(), 200);
}

#[tokio::test]
async fn a_kept_connection_that_the_upstream_closed_costs_nothing() {
    let idle = Options { idle_timeout: Some(Duration::from_millis(50)), ..Options::default() };
    let upstream = start(idle, ok);
    let world = World::before(&upstream).await;
    for _ in 0..3 {
        assert!(world.exchange(post("/x", "{}")).await.ends_with(b"hi"));
        // The upstream hangs up in the meantime.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(upstream.requests_per_connection(), [1, 1, 1]);
    let lines = world.requests().await;
    assert!(lines.iter().all(|line| line.outcome == Some(Outcome::Ok)), "{lines:?}");
}

/// As llama-server does: keep-alive announced, then a close a moment after the stream.
#[tokio::test]
async fn a_connection_that_carried_a_stream_is_not_used_again() {
    let upstream = start(Options::default(), || {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
            Keep-Alive: timeout=5, max=100\r\nTransfer-Encoding: chunked\r\n\r\n";
        let body = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        Script::new().send(head).send(body).wait(Duration::from_millis(1)).fin()
    });
    let world = World::before(&upstream).await;
    let mut client = world.client("").await;
    for _ in 0..20 {
        client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n").await;
        client.until(b"\r\n0\r\n\r\n").await;
    }
    drop(client);
    let lines = world.requests().await;
    assert!(lines.iter().all(|line| line.status == Some(200)), "{lines:?}");
    assert_eq!(upstream.requests_per_connection(), [1; 20]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let upstream =
        RawUpstream::start(|request| Script::answer(200, "text/plain", request.path().as_bytes()));
    let upstream = upstream.unwrap();
    let world = World::before(&upstream).await;
    let two = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n";
    let answers = world.exchange([two, &get("/3")].concat()).await;
    let text = String::from_utf8(answers).unwrap();
    let order: Vec<_> =
        ["\r\n\r\n/1", "\r\n\r\n/2", "\r\n\r\n/3"].map(|mark| text.find(mark)).into();
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{text}");
    assert_eq!(world.requests().await.len(), 3);
}

#[tokio::test]
async fn chunked_uploads_and_trailers_both_ways() {
    let upstream = start(Options::default(), || {
        Script::new().send(
            "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nhi\r\n0\r\nX-Sum: 42\r\n\r\n",
        )
    });
    let world = World::before(&upstream).await;
    let sent = "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTE: trailers\r\nTrailer: X-In\r\n\
        Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;ext=1\r\ndefg\r\n0\r\nX-In: 7\r\n\r\n";
    let answer = world.exchange(sent).await;
    let (head, body) = split(&answer);
    assert!(head.contains("\r\nTrailer: X-Sum\r\n"), "{head}");
    let body = String::from_utf8(body.to_vec()).unwrap().to_lowercase();
    assert_eq!(body, "2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n");
    let request = upstream.request(0).await;
    assert_eq!(request.body, b"abcdefg");
    let wire = String::from_utf8(request.body_on_wire.clone()).unwrap().to_lowercase();
    assert!(wire.ends_with("0\r\nx-in: 7\r\n\r\n"), "{wire}");
    assert_eq!(world.request().await.bytes_in, Some(7));
}

#[tokio::test]
async fn the_upstream_says_whether_to_continue() {
    let options = Options {
        on_head: Some(Box::new(|head| match head.target.as_str() {
            "/go" => OnHead::Interim(Script::new().send("HTTP/1.1 100 Continue\r\n\r\n")),
            _ => OnHead::Final(Script::answer(417, "text/plain", b"no").fin()),
        })),
        ..Options::default()
    };
    let upstream = start(options, ok);
    let world = World::before(&upstream).await;
    let ask = |path| {
        format!(
            "PUT {path} HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        )
    };

    let mut client = world.client(ask("/go")).await;
    client.until(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("abc").await;
    client.until(b"hi").await;
    assert_eq!(upstream.request(0).await.body, b"abc");

    let mut client = world.client(ask("/stay")).await;
    let head = client.until(b"\r\n\r\n").await;
    assert!(head.starts_with(b"HTTP/1.1 417 "), "{:?}", String::from_utf8_lossy(&head));
    let outcomes: Vec<_> = world.requests().await.iter().map(|line| line.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Ok), Some(Outcome::Rejected)]);
}

#[tokio::test]
async fn a_silent_upstream_gets_the_body_after_a_while() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let ask = "PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let mut client = world.client(ask).await;
    client.until(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send("abc").await;
    client.until(b"hi").await;
    assert_eq!(upstream.request(0).await.body, b"abc");
    drop(client);
    assert_eq!(world.request().await.bytes_in, Some(3));
}

#[tokio::test]
async fn upgrades_are_tunnelled_untouched() {
    let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::with(config(upstream.local_addr().unwrap())).await;
    let ask = "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: k\r\n\r\n";
    let mut client = world.client(ask).await;
    let (tcp, _) = upstream.accept().await.unwrap();
    let mut server = world::Client(tcp);
    let head = String::from_utf8(server.until(b"\r\n\r\n").await).unwrap();
    assert!(head.contains("\r\nUpgrade: websocket\r\n"), "{head}");
    assert!(head.contains("\r\nConnection: Upgrade\r\n"), "{head}");
    server
        .send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x01early")
        .await;
    let head = String::from_utf8(client.until(b"\r\n\r\n").await).unwrap();
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nUpgrade: websocket\r\n"),
        "{head}"
    );
    client.until(b"\x01early").await;
    client.send(b"\0\xff\r\n\r\nGET").await;
    server.until(b"\0\xff\r\n\r\nGET").await;
    drop(client);
    assert_eq!(server.rest().await, b"");
    let line = world.request().await;
    assert_eq!((line.outcome, line.status), (Some(Outcome::Ok), Some(101)));
    assert_eq!((line.bytes_in, line.bytes_out), (Some(9), Some(6)));
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_an_answer() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let ask = "GET /x HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let mut client = world.client(ask).await;
    client.until(b"\r\n\r\nhi").await;
    client.send(get("/y")).await;
    assert!(client.rest().await.ends_with(b"hi"));
    assert_eq!(world.requests().await.len(), 2);
}

#[tokio::test]
async fn old_clients_and_strange_targets() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let answer = world.exchange("GET /old HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.0 200 OK\r\n") && answer.ends_with(b"hi"));
    world
        .exchange("GET http://elsewhere:1/p?q HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .await;
    world.exchange("OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    let targets: Vec<_> = upstream.requests().iter().map(|r| r.head.target.clone()).collect();
    assert_eq!(targets, ["/old", "/p?q", "*"]);
    let routes: Vec<_> = world.requests().await.into_iter().map(|line| line.route).collect();
    assert_eq!(routes, ["/old", "/p", "*"]);
}

#[tokio::test]
async fn heads_that_are_too_much() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let head = |count: usize, size: usize| {
        let headers: String =
            (0..count).map(|n| format!("X-{n}: {}\r\n", "v".repeat(size))).collect();
        format!("GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}\r\n")
    };
    assert!(world.exchange(head(16, 4096)).await.ends_with(b"hi"), "64 KiB are served");
    for (count, size) in [(200, 1), (1, 200_000)] {
        let answer = world.exchange(head(count, size)).await;
        assert!(answer.starts_with(b"HTTP/1.1 431 "), "{:?}", String::from_utf8_lossy(&answer));
    }
    assert!(world.exchange("BROKEN\r\n\r\n").await.starts_with(b"HTTP/1.1 400 "));
    assert_eq!(world.requests().await.len(), 1, "what was never a request has no line");
}

#[tokio::test]
async fn smuggling_is_refused_or_made_plain() {
    let upstream = start(Options::default(), ok);
    let world = World::before(&upstream).await;
    let both = "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\
        Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    world.exchange(both).await;
    let request = upstream.request(0).await;
    assert_eq!(request.body, b"a");
    assert!(request.head.headers.get("content-length").is_none());
    for bad in [
        "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc",
    ] {
        let answer = world.exchange(bad).await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{bad:?}");
    }
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(world.requests().await.len(), 1);
}
