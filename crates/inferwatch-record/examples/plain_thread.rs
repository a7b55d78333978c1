//! A service without async: worker threads that encode, retrieve, rerank and generate, one line
//! each on stdout. Run it with `cargo run --example plain_thread`.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use inferwatch_record::{Outcome, Recorder, Stage};

mod work;

fn main() -> io::Result<()> {
    let recorder = Recorder::to_stdout()?;
    serve(&recorder);
    if !recorder.close(Duration::from_secs(1)) {
        return Err(io::Error::other("some lines did not get out"));
    }
    Ok(())
}

/// Three requests on three threads.
pub(crate) fn serve(recorder: &Recorder) {
    let prompts = ["why is my server slow", "what does the kernel kill first", ""];
    thread::scope(|scope| {
        for prompt in prompts {
            scope.spawn(move || answer(recorder, prompt));
        }
    });
}

/// A request. The early return needs no thought: a span that is dropped is an ending.
fn answer(recorder: &Recorder, prompt: &str) -> Option<String> {
    let mut span = recorder.span("/generate");
    span.model("stand-in");
    if prompt.is_empty() {
        span.end(Outcome::Rejected, 400);
        return None;
    }
    let vector = span.time(Stage::Encode, || work::encode(prompt));
    let found = span.time(Stage::Retrieve, || work::retrieve(&vector));
    let best = span.time(Stage::Rerank, || work::rerank(prompt, found)).first().copied()?;
    let context = format!("{prompt} {best}");
    let started = Instant::now();
    let mut answer = work::next_token(0);
    span.first_token();
    answer.extend((1..64).map(work::next_token));
    span.stage(Stage::Generate, started.elapsed());
    span.tokens(work::count_tokens(&context), 64);
    span.end(Outcome::Ok, 200);
    Some(answer)
}
