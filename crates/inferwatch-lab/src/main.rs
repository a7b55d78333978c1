//! The lab on the command line: a fake upstream, a replayer and a load generator.

mod args;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;

use args::{Args, Command, LoadArgs, ReplayArgs, UpstreamArgs};
use inferwatch_lab::fake::FakeUpstream;
use inferwatch_lab::load;
use inferwatch_lab::replay::Replay;

fn main() -> Result<()> {
    let args = Args::parse();
    let mut builder = match args.threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(args.threads.max(1)).enable_all().build()?;
    runtime.block_on(async {
        match args.command {
            Command::Upstream(args) => upstream(args).await,
            Command::Replay(args) => replay(args).await,
            Command::Load(args) => measure(args).await,
        }
    })
}

fn say(line: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

async fn upstream(args: UpstreamArgs) -> Result<()> {
    let listen = args.listen;
    let upstream = FakeUpstream::start(args.settings())
        .with_context(|| format!("cannot listen on {listen}"))?;
    say(format_args!("listening on {}", upstream.addr()))?;
    tokio::signal::ctrl_c().await?;
    let requests: usize = upstream.requests_per_connection().iter().sum();
    let (completed, cancelled) =
        (upstream.counts().completed_count(), upstream.counts().cancelled_count());
    say(format_args!("{requests} requests; {completed} worked to the end, {cancelled} cancelled"))
}

async fn replay(args: ReplayArgs) -> Result<()> {
    let dir = args.dir.display();
    let replay =
        Replay::load(&args.dir, args.speed).with_context(|| format!("cannot replay {dir}"))?;
    let count = replay.recordings_count();
    let upstream =
        replay.serve(args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    say(format_args!("listening on {}, {count} recordings", upstream.addr()))?;
    Ok(tokio::signal::ctrl_c().await?)
}

async fn measure(args: LoadArgs) -> Result<()> {
    let warm_up = args.warm_up_s;
    let plan = args.plan().await?;
    if warm_up > 0.0 {
        let duration = Some(Duration::from_secs_f64(warm_up));
        load::run(load::Plan { duration, requests_count: None, ..plan.clone() }).await;
    }
    let report = load::run(plan).await;
    say(format_args!("{}", serde_json::to_string_pretty(&report)?))
}
