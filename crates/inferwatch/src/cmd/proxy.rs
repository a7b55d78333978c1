//! `inferwatch proxy`: sets the parts up, waits for signals, takes them down.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use inferwatch_proxy::{Config, Proxy};
use inferwatch_record::{Line, Recorder, StartLine, StopLine};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::args::ProxyArgs;
use crate::settings::{Log, Settings};
use crate::tokenizer;

/// How long lines may take to be written once all requests have ended.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs until a signal ends it.
pub(crate) fn run(args: &ProxyArgs) -> Result<()> {
    let settings = super::config::load(args)?;
    raise_open_files();
    let count_tokens = settings.tokenizer.as_deref().map(tokenizer::load).transpose()?;
    let recorder = open_log(&settings.log)?;
    let config = Config {
        listen: settings.listen.clone(),
        upstream: settings.upstream.clone(),
        on_abort: settings.on_abort,
        drain_timeout: settings.drain_timeout,
        limits: settings.limits,
        max_tokens: settings.max_tokens,
        count_tokens,
    };
    // One thread: the work is moving bytes, the cores belong to the model.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(config, &settings, recorder.clone()))?;
    drop(runtime);
    recorder.close(CLOSE_PATIENCE);
    Ok(())
}

fn open_log(log: &Log) -> Result<Recorder> {
    match log {
        Log::Stdout => Recorder::to_stdout().context("cannot write lines to stdout"),
        Log::File(path) => Recorder::to_file(path).with_context(|| {
            format!("cannot open the log {} for appending; choose another --log", path.display())
        }),
    }
}

/// Every client costs two descriptors; the soft limit is often 1,024. What cannot be raised stays.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

async fn serve(config: Config, settings: &Settings, recorder: Recorder) -> Result<()> {
    let started = Instant::now();
    let proxy = Proxy::bind(config, recorder.clone()).await.with_context(|| {
        format!("cannot listen on {}; choose another address with --listen", settings.listen)
    })?;
    let address = proxy.local_addr()?;
    let stops = stop_signals()?;
    reopen_on_hangup(recorder.clone())?;
    recorder.send(Line::Start(Box::new(start_line(settings))));
    eprintln!("inferwatch: http://{address} -> {}", settings.upstream);

    let served = proxy.run(stops).await;
    let mut line = StopLine::default();
    line.reason = served.reason.to_owned();
    line.uptime_ms = started.elapsed().as_secs_f64() * 1e3;
    line.requests_count = served.requests_count;
    line.unfinished_count = served.unfinished_count;
    recorder.send(Line::Stop(Box::new(line)));
    Ok(())
}

fn start_line(settings: &Settings) -> StartLine {
    let mut line = StartLine::default();
    line.version = env!("CARGO_PKG_VERSION").to_owned();
    line.pid = std::process::id();
    line.cores = std::thread::available_parallelism().ok().map(|cores| cores.get() as u64);
    let texts = settings.texts.iter();
    line.settings = texts.filter_map(|(key, text)| Some(((*key).into(), text.clone()?))).collect();
    line
}

/// The first signal asks to drain, the second to cut.
fn stop_signals() -> Result<mpsc::Receiver<&'static str>> {
    let (send, stops) = mpsc::channel(2);
    let signals = [(SignalKind::terminate(), "SIGTERM"), (SignalKind::interrupt(), "SIGINT")];
    for (kind, name) in signals {
        let (mut signal, send) = (signal(kind)?, send.clone());
        tokio::spawn(async move {
            while signal.recv().await.is_some() && send.send(name).await.is_ok() {}
        });
    }
    Ok(stops)
}

fn reopen_on_hangup(recorder: Recorder) -> Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let recorder = recorder.clone();
            let reopened = tokio::task::spawn_blocking(move || recorder.reopen(CLOSE_PATIENCE));
            if let Ok(Err(error)) = reopened.await {
                eprintln!(
                    "inferwatch: the log was not reopened, lines go on to the old file: {error}"
                );
            }
        }
    });
    Ok(())
}
