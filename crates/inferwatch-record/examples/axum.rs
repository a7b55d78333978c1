//! An axum service with the four stages. A client that leaves drops the handler's future, and with
//! it the span: that is an ending too.
//!
//! `cargo run --example axum` serves two requests of its own, one of which it leaves, and ends;
//! `cargo run --example axum 127.0.0.1:8090` serves until it is stopped.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use inferwatch_record::{Outcome, Recorder, Stage};
use tokio::net::TcpListener;

mod work;

#[derive(serde::Deserialize)]
struct Ask {
    prompt: String,
    max_tokens: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let recorder = Recorder::to_stdout()?;
    match std::env::args().nth(1) {
        Some(address) if address != "--once" => {
            axum::serve(TcpListener::bind(address).await?, service(recorder)).await
        }
        _ => {
            serve_own_requests(recorder.clone()).await?;
            recorder.close(Duration::from_secs(1));
            Ok(())
        }
    }
}

fn service(recorder: Recorder) -> Router {
    Router::new().route("/generate", post(generate)).with_state(recorder)
}

async fn generate(State(recorder): State<Recorder>, Json(ask): Json<Ask>) -> String {
    let mut span = recorder.span("/generate");
    span.model("stand-in");
    let vector = span.time(Stage::Encode, || work::encode(&ask.prompt));
    let found = span.time(Stage::Retrieve, || work::retrieve(&vector));
    let ordered = span.time(Stage::Rerank, || work::rerank(&ask.prompt, found));
    let context = format!("{} {ordered:?}", ask.prompt);
    let started = Instant::now();
    let mut answer = String::new();
    for position in 0..ask.max_tokens {
        answer.push_str(&work::next_token(position));
        span.first_token();
        // Here the server may find that the client has left, and drop this future.
        tokio::task::yield_now().await;
    }
    span.stage(Stage::Generate, started.elapsed());
    span.tokens(work::count_tokens(&context), ask.max_tokens as u64);
    span.end(Outcome::Ok, 200);
    answer
}

/// Serves on a free port, sends two requests over loopback, and returns when both have ended.
pub(crate) async fn serve_own_requests(recorder: Recorder) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = axum::serve(listener, service(recorder.clone())).into_future();
    let server = tokio::spawn(served);
    let client = tokio::task::spawn_blocking(move || {
        ask(address, 32)?.read_to_end(&mut Vec::new())?;
        ask(address, 1_000_000)
    });
    let endless = client.await??;
    wait_for(&recorder, 1).await;
    drop(endless);
    wait_for(&recorder, 0).await;
    server.abort();
    Ok(())
}

async fn wait_for(recorder: &Recorder, inflight: u64) {
    while recorder.inflight() != inflight {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn ask(address: SocketAddr, max_tokens: usize) -> io::Result<TcpStream> {
    let body = format!(r#"{{"prompt":"why is my server slow","max_tokens":{max_tokens}}}"#);
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /generate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}
