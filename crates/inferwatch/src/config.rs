//! Where settings are said: flags and a TOML file. Collects every saying with its place, judges none
//! but the names.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::args::ProxyArgs;

/// Every setting: its key in the file, which is its flag with underscores.
pub(crate) const KEYS: [&str; 10] = [
    "upstream",
    "listen",
    "log",
    "on_abort",
    "max_inflight",
    "max_queue",
    "queue_timeout",
    "max_tokens",
    "tokenizer",
    "drain_timeout",
];

/// One setting as somebody said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) key: &'static str,
    pub(crate) text: String,
    /// `--listen`, or `box.toml:3: listen`.
    pub(crate) place: String,
}

/// What was said on the command line.
pub(crate) fn from_flags(args: &ProxyArgs) -> Vec<Saying> {
    let said = [
        &args.upstream,
        &args.listen,
        &args.log,
        &args.on_abort,
        &args.max_inflight,
        &args.max_queue,
        &args.queue_timeout,
        &args.max_tokens,
        &args.tokenizer,
        &args.drain_timeout,
    ];
    let pairs = KEYS.into_iter().zip(said);
    pairs
        .filter_map(|(key, text)| Some(Saying { key, text: text.clone()?, place: flag(key) }))
        .collect()
}

/// The flag of a key, as the user writes it.
pub(crate) fn flag(key: &str) -> String {
    if key == "upstream" { "UPSTREAM".to_owned() } else { format!("--{}", key.replace('_', "-")) }
}

/// What is said in a TOML file, and the mistakes in it.
pub(crate) fn from_toml(path: &Path, text: &str) -> (Vec<Saying>, Vec<String>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let at = |offset: usize| format!("{}:{}", path.display(), line_of(text, offset));
    let mut mistakes: Vec<String> = errors
        .iter()
        .map(|error| {
            format!("{}: {}", at(error.span().map_or(0, |span| span.start)), error.message())
        })
        .collect();
    let mut sayings = Vec::new();
    for (name, value) in table.get_ref() {
        let place = format!("{}: {}", at(name.span().start), name.get_ref());
        match saying(name.get_ref(), value, place) {
            Ok(saying) => sayings.push(saying),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    (sayings, mistakes)
}

fn saying(name: &str, value: &Spanned<DeValue<'_>>, place: String) -> Result<Saying, String> {
    let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
        return Err(format!("{place}: unknown key{}", hint(name)));
    };
    let text = match value.get_ref() {
        DeValue::String(text) => text.clone().into_owned(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
        other => {
            return Err(format!(
                "{place}: a {} is no setting; write a text or a number",
                other.type_str()
            ));
        }
    };
    Ok(Saying { key, text, place })
}

fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn hint(name: &str) -> String {
    let plain = name.replace('-', "_").to_lowercase();
    let near = KEYS.into_iter().min_by_key(|key| distance(&plain, key));
    match near {
        Some(key) if distance(&plain, key) <= 2 => format!("; did you mean {key}?"),
        _ => format!("; known are {}", KEYS.join(", ")),
    }
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, said: &[(&str, &str)], mistakes: &[&str]) {
        let (sayings, wrong) = from_toml(Path::new("box.toml"), text);
        let mut got: Vec<_> = sayings.iter().map(|s| (s.key, s.text.as_str())).collect();
        got.sort_unstable();
        assert_eq!(got, said, "{text}");
        for mistake in mistakes {
            assert!(wrong.iter().any(|w| w.contains(mistake)), "{mistake:?} not in {wrong:?}");
        }
        assert_eq!(wrong.len(), mistakes.len(), "{wrong:?}");
    }

    #[test]
    fn files() {
        check("", &[], &[]);
        check(
            "listen = \"127.0.0.1:1\"\nmax_inflight = 4\n",
            &[("listen", "127.0.0.1:1"), ("max_inflight", "4")],
            &[],
        );
        check(
            "listen = \"x:1\"\n\nlissten = \"y:1\"\nmax-queue = 3\n[proxy]\nupstream = 1\n",
            &[("listen", "x:1")],
            &[
                "box.toml:3: lissten: unknown key; did you mean listen?",
                "box.toml:4: max-queue: unknown key; did you mean max_queue?",
                "box.toml:5: proxy: unknown key; known are upstream, ",
            ],
        );
        check(
            "log = [1]\nmax_queue = 1.5\n",
            &[],
            &["box.toml:1: log: a array", "box.toml:2: max_queue: a float"],
        );
        check(
            "a = = 1\nlog = \"-\"\n",
            &[("log", "-")],
            &["box.toml:1: extra `=`", "box.toml:1: unexpected", "box.toml:1: a: unknown key"],
        );
    }
}
