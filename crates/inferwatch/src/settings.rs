//! What the settings mean. Pure: takes what was said, gives what holds, or every mistake at once.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use inferwatch_proxy::{AddrError, Limits, OnAbort, UpstreamAddr};
use jiff::SignedDuration;

use crate::config::{KEYS, Saying, flag};

/// Settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) upstream: UpstreamAddr,
    pub(crate) listen: String,
    pub(crate) log: Log,
    pub(crate) on_abort: OnAbort,
    pub(crate) limits: Option<Limits>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) tokenizer: Option<PathBuf>,
    pub(crate) drain_timeout: Duration,
    /// The same as texts, in the order of [`KEYS`], defaults included; `None` is "off".
    pub(crate) texts: Vec<(&'static str, Option<String>)>,
}

/// Where the lines go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Stdout,
    File(PathBuf),
}

fn default_of(key: &str) -> Option<&'static str> {
    match key {
        "listen" => Some("127.0.0.1:9080"),
        "log" => Some("-"),
        "on_abort" => Some("cancel"),
        "max_queue" => Some("0"),
        "queue_timeout" | "drain_timeout" => Some("30s"),
        _ => None,
    }
}

/// Makes meaning of what was said; of two sayings of one setting the later one holds.
///
/// # Errors
/// Every mistake, one text each, with its place and what to write instead.
pub(crate) fn resolve(said: &[Saying]) -> Result<Settings, Vec<String>> {
    let mut reader = Reader { said, mistakes: Vec::new() };
    let upstream = reader.upstream();
    let listen = reader.read("listen", listen);
    let log = reader.read("log", log);
    let on_abort = reader.read("on_abort", on_abort);
    let limits = reader.limits();
    let max_tokens = reader.read("max_tokens", count);
    let tokenizer = reader.read("tokenizer", file);
    let drain_timeout = reader.read("drain_timeout", duration);
    let off = |key: &str| limits.is_none() && ["max_queue", "queue_timeout"].contains(&key);
    let text = |key: &&'static str| text_of(said, key).filter(|_| !off(key));
    let texts = KEYS.iter().map(|key| (*key, text(key))).collect();
    match (upstream, listen, log, on_abort, drain_timeout) {
        (Some(upstream), Some(listen), Some(log), Some(on_abort), Some(drain_timeout))
            if reader.mistakes.is_empty() =>
        {
            Ok(Settings {
                upstream,
                listen,
                log,
                on_abort,
                limits,
                max_tokens,
                tokenizer,
                drain_timeout,
                texts,
            })
        }
        _ => Err(reader.mistakes),
    }
}

fn text_of(said: &[Saying], key: &str) -> Option<String> {
    let last = said.iter().rfind(|saying| saying.key == key);
    last.map(|saying| saying.text.clone()).or_else(|| default_of(key).map(str::to_owned))
}

struct Reader<'a> {
    said: &'a [Saying],
    mistakes: Vec<String>,
}

impl Reader<'_> {
    fn read<T>(&mut self, key: &str, meaning: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = text_of(self.said, key)?;
        let place = self.said.iter().rfind(|saying| saying.key == key);
        let place = place.map_or_else(|| flag(key), |saying| saying.place.clone());
        let judged = meaning(&text).map_err(|why| format!("{place} {text:?}: {why}"));
        judged.map_err(|mistake| self.mistakes.push(mistake)).ok()
    }

    fn upstream(&mut self) -> Option<UpstreamAddr> {
        if text_of(self.said, "upstream").is_none() {
            let ports = "127.0.0.1:8080 for llama.cpp, 127.0.0.1:11434 for Ollama";
            self.mistakes
                .push(format!("UPSTREAM is missing: say where the model server is, {ports}"));
        }
        self.read("upstream", |text| text.parse().map_err(|error: AddrError| error.to_string()))
    }

    fn limits(&mut self) -> Option<Limits> {
        let max_inflight = self.read("max_inflight", count);
        let max_queue = self.read("max_queue", whole);
        let queue_timeout = self.read("queue_timeout", duration);
        for key in ["max_queue", "queue_timeout"] {
            let said = self.said.iter().find(|saying| saying.key == key);
            if let (Some(saying), None) = (said, text_of(self.said, "max_inflight")) {
                self.mistakes
                    .push(format!("{}: does nothing without --max-inflight", saying.place));
            }
        }
        let to_usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Some(Limits {
            max_inflight: to_usize(max_inflight?),
            max_queue: to_usize(max_queue?),
            queue_timeout: queue_timeout?,
        })
    }
}

fn listen(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let hint = "write HOST:PORT, for instance 127.0.0.1:9080 (port 0 takes a free one)";
    match port {
        Some(Ok(_)) if !text.starts_with(':') => Ok(text.to_owned()),
        _ => Err(format!("not an address to listen on; {hint}")),
    }
}

fn log(text: &str) -> Result<Log, String> {
    Ok(if text == "-" { Log::Stdout } else { Log::File(file(text)?) })
}

fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("not a file name".into()) } else { Ok(PathBuf::from(text)) }
}

fn on_abort(text: &str) -> Result<OnAbort, String> {
    match text {
        "cancel" => Ok(OnAbort::Cancel),
        "drain" => Ok(OnAbort::Drain),
        _ => Err("write cancel or drain".into()),
    }
}

fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number".into())
}

fn count(text: &str) -> Result<u64, String> {
    match whole(text)? {
        0 => Err("write a number from 1; leave it out for no limit".into()),
        number => Ok(number),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let hint = || "write a duration, for instance 30s, 500ms or 2m".to_owned();
    let duration: SignedDuration = text.parse().map_err(|_| hint())?;
    Duration::try_from(duration).map_err(|_| hint())
}

/// The settings as a file that `--config` takes; what is off stands in comments.
pub(crate) fn to_toml(settings: &Settings) -> String {
    let mut out = String::new();
    for (key, text) in &settings.texts {
        // Writing to a String cannot fail.
        let _ = match text {
            None => writeln!(out, "# {key} is off"),
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
                writeln!(out, "{key} = {text}")
            }
            Some(text) => writeln!(out, "{key} = {}", toml::Value::from(text.as_str())),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&'static str, &str)]) -> Vec<Saying> {
        let saying = |(key, text): &(&'static str, &str)| Saying {
            key,
            text: (*text).to_owned(),
            place: flag(key),
        };
        pairs.iter().map(saying).collect()
    }

    #[track_caller]
    fn mistakes(pairs: &[(&'static str, &str)], expected: &[&str]) {
        let got = resolve(&said(pairs)).expect_err("mistakes");
        assert_eq!(got.len(), expected.len(), "{got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!(got.contains(expected), "{expected:?} not in {got:?}");
        }
    }

    #[test]
    fn defaults() {
        let settings = resolve(&said(&[("upstream", "127.0.0.1:8080")])).unwrap();
        assert_eq!(settings.listen, "127.0.0.1:9080");
        assert_eq!(settings.log, Log::Stdout);
        assert_eq!(settings.on_abort, OnAbort::Cancel);
        assert_eq!(settings.limits, None);
        assert_eq!(settings.drain_timeout, Duration::from_secs(30));
    }

    #[test]
    fn the_later_saying_holds() {
        let settings =
            resolve(&said(&[("upstream", "a:1"), ("upstream", "b:2"), ("log", "x"), ("log", "-")]));
        let settings = settings.unwrap();
        assert_eq!((settings.upstream.to_string().as_str(), settings.log), ("b:2", Log::Stdout));
    }

    #[test]
    fn every_mistake_at_once() {
        mistakes(&[], &["UPSTREAM is missing"]);
        mistakes(
            &[
                ("upstream", "https://x:1"),
                ("listen", "9080"),
                ("on_abort", "stop"),
                ("max_queue", "3"),
                ("queue_timeout", "soon"),
                ("max_tokens", "0"),
                ("drain_timeout", "-3s"),
            ],
            &[
                "UPSTREAM \"https://x:1\": https is not supported",
                "--listen \"9080\": not an address",
                "--on-abort \"stop\": write cancel or drain",
                "--queue-timeout \"soon\": write a duration",
                "--max-queue: does nothing without --max-inflight",
                "--queue-timeout: does nothing without --max-inflight",
                "--max-tokens \"0\": write a number from 1",
                "--drain-timeout \"-3s\": write a duration",
            ],
        );
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let first = resolve(&said(&[
            ("upstream", "[::1]:8080"),
            ("log", "a \"b\"\\c.jsonl"),
            ("max_inflight", "2"),
        ]))
        .unwrap();
        let (sayings, wrong) = crate::config::from_toml("x".as_ref(), &to_toml(&first));
        assert_eq!(wrong, Vec::<String>::new());
        assert_eq!(resolve(&sayings).unwrap().texts, first.texts);
    }
}
