//! The wire, judged by a decoder that shares nothing with the crate.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod made;
mod strict;

use std::collections::BTreeSet;

use inferwatch_record::{Line, Outcome, ParseTrouble, RequestLine, TokensSrc, parse_line};
use made::{golden, written};
use proptest::prelude::*;
use strict::{LINE_BYTES, Token, decode, decode_all};

const GOLDEN: &str = include_str!("golden/lines.jsonl");

#[test]
fn golden_lines_stand() {
    let lines: Vec<u8> = golden().iter().flat_map(written).collect();
    assert_eq!(String::from_utf8(lines).unwrap(), GOLDEN);
    let decoded = decode_all(GOLDEN.as_bytes()).unwrap();
    assert_eq!(decoded.len(), golden().len());
}

/// The decoder can refuse: each case is a golden line with one thing made wrong.
#[test]
fn the_decoder_refuses_what_is_not_the_wire() {
    let bare = GOLDEN.lines().nth(1).unwrap();
    let chat = GOLDEN.lines().nth(2).unwrap();
    for (line, from, to, reason) in [
        (bare, "\"total_ms\":81", "\"total_ms\":\"81\"", "`total_ms`: Text"),
        (bare, "\"total_ms\":81", "\"total_ms\":81.25", "more than one decimal"),
        (bare, "\"total_ms\":81", "\"total_ms\":-81", "not a plain number"),
        (bare, "\"total_ms\":81", "\"total_ms\":8e1", "not a plain number"),
        (bare, "\"total_ms\":81,", "", "`total_ms` is missing"),
        (bare, "\"status\":null", "\"status\":42", "no status"),
        (bare, ",\"status\":null", "", "`status` is missing"),
        (bare, "\"status\":null", "\"status\":null,\"x\":1", "`x` is unknown"),
        (bare, "\"route\":\"/generate\"", "\"route\":null", "`route`: Null"),
        (bare, "\"model\":null", "\"model\":{}", "nested"),
        (bare, "\"model\":null", "\"model\":[1]", "nested"),
        (bare, "\"model\":null", "\"model\":\"a\u{7f}\"", "unescaped"),
        (bare, "\"model\":null", "\"model\":\"\\x\"", "no escape"),
        (bare, "\"model\":null", "\"model\": null", "no value begins"),
        (bare, "\"model\":null", "\"model\":null,\"model\":null", "stands twice"),
        (bare, ".123Z", "Z", "not of the form"),
        (bare, "2026-11-30", "2026-13-30", "is no time"),
        (bare, "\"kind\":\"request\"", "\"kind\":\"requests\"", "unknown kind"),
        (bare, "\"ts\":", "\"x\":1,\"ts\":", "second field is not `kind`"),
        (chat, "\"seq\":7,\"id\":", "\"id\":\"x\",\"seq\":7,\"di\":", "missing before `seq`"),
        (chat, "\"outcome\":\"ok\"", "\"outcome\":\"fine\"", "`outcome`"),
        (chat, "\"stream\":true", "\"stream\":1", "`stream`"),
        (chat, "\"bytes_in\":310", "\"bytes_in\":310.5", "`bytes_in`"),
        (chat, "\"bytes_in\":310", "\"bytes_in\":null", "`bytes_in`: Null"),
    ] {
        let wrong = line.replacen(from, to, 1) + "\n";
        assert_ne!(wrong.trim_end(), line, "{from} is not in the line");
        let error = decode(wrong.as_bytes()).expect_err(to);
        assert!(error.contains(reason), "{to}: expected {reason:?}, got {error:?}");
    }
    assert!(decode(bare.as_bytes()).unwrap_err().contains("newline"));
    assert!(decode(&vec![b'x'; LINE_BYTES + 1]).unwrap_err().contains("bytes"));
}

const HOSTILE: [&str; 9] = [
    "\n{\"ts\":\"2026-11-30T14:02:11.123Z\",\"kind\":\"request\"}\n",
    "\",\"status\":200,\"x\":\"",
    "\\",
    "\0\u{1}\u{1b}[2J\u{7f}\u{9b}",
    "\u{2028}\u{2029}\u{202e}\u{feff}",
    "🦀",
    "é",
    "a",
    "\r\n",
];

#[test]
fn hostile_strings_neither_break_nor_forge_a_line() {
    let mut texts: Vec<String> = HOSTILE.iter().map(|text| text.to_string()).collect();
    texts.extend(HOSTILE.iter().map(|text| text.repeat((1 << 20) / text.len())));
    texts.extend((500..520).map(|length| "x".repeat(length) + "🦀🦀"));
    texts.push(String::from_utf8_lossy(b"\xff\xfe/v1\xc3").into_owned());
    for text in texts {
        for line in lines_with(&text) {
            check_written(&line);
        }
    }
}

/// A line of every kind with `text` in each of its strings, and every number at its longest.
fn lines_with(text: &str) -> Vec<Line> {
    let settings: Vec<_> = (0..100).map(|at| (format!("max-{at}"), text.to_owned())).collect();
    let long = 99_999_999_999_999.9;
    vec![
        Line::Request(Box::new(made::full_request(text, u64::MAX, long))),
        Line::Open(Box::new(made::open(text))),
        Line::Start(Box::new(made::start(&settings))),
        Line::Stop(Box::new(made::stop(text))),
        Line::Dropped(Box::new(made::dropped(Some(text)))),
    ]
}

/// Strictly decodable, and the reader takes it back so that it is written the same again.
fn check_written(line: &Line) {
    let bytes = written(line);
    if let Err(reason) = decode(&bytes) {
        panic!("{reason}: {}", String::from_utf8_lossy(&bytes));
    }
    let read = parse_line(&bytes).unwrap();
    assert_eq!(String::from_utf8(written(&read)), String::from_utf8(bytes));
}

#[test]
fn settings_that_do_not_fit_are_counted() {
    let settings: Vec<_> = (0..100).map(|at| (format!("a-{at}"), "x".repeat(100))).collect();
    let fields = decode(&written(&Line::Start(Box::new(made::start(&settings))))).unwrap();
    let written_count = fields.iter().filter(|(name, _)| name.starts_with("set_a_")).count();
    let left_out = Token::Number((100 - written_count).to_string());
    assert_eq!(fields.last(), Some(&("settings_left_out_count".into(), left_out)));
    assert!(written_count > 20);
}

#[test]
fn words_on_the_wire_are_read_back() {
    for outcome in Outcome::ALL {
        assert_eq!(Outcome::from_wire(outcome.as_str()), Some(outcome));
    }
    for src in TokensSrc::ALL {
        assert_eq!(TokensSrc::from_wire(src.as_str()), Some(src));
    }
    for trouble in ParseTrouble::ALL {
        assert_eq!(ParseTrouble::from_wire(trouble.as_str()), Some(trouble));
    }
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        proptest::collection::vec(proptest::sample::select(&HOSTILE[..]), 0..80)
            .prop_map(|parts| parts.concat()),
    ]
}

/// Any request line, with fields missing at random and values that no server would send.
fn any_request() -> impl Strategy<Value = RequestLine> {
    use proptest::option::of;
    let number = prop_oneof![any::<f64>(), 0.0..1e6, Just(f64::NAN), Just(-1.0)];
    (
        (any_text(), 0.0..1e14, any::<u64>(), of(100..1000_u16)),
        proptest::collection::vec(of(any_text()), 8),
        proptest::collection::vec(of(any::<u64>()), 10),
        proptest::collection::vec(of(number), 14),
        proptest::collection::vec(of(any::<bool>()), 4),
        (of(0..11_usize), of(0..6_usize), of(0..2_usize)),
    )
        .prop_map(|(first, texts, wholes, numbers, flags, words)| {
            let mut line = RequestLine::default();
            let (route, total_ms, ts_unix_ms, status) = first;
            (line.route, line.total_ms) = (route, total_ms);
            (line.ts_unix_ms, line.status) = (Some(ts_unix_ms), status);
            made::texts_mut(&mut line).into_iter().zip(texts).for_each(|(to, from)| *to = from);
            made::wholes_mut(&mut line).into_iter().zip(wholes).for_each(|(to, from)| *to = from);
            made::numbers_mut(&mut line).into_iter().zip(numbers).for_each(|(to, from)| *to = from);
            made::flags_mut(&mut line).into_iter().zip(flags).for_each(|(to, from)| *to = from);
            line.outcome = words.0.map(|at| Outcome::ALL[at]);
            line.tokens_src = words.1.map(|at| TokensSrc::ALL[at]);
            line.parse = words.2.map(|at| ParseTrouble::ALL[at]);
            line
        })
}

proptest! {
    #[test]
    fn any_request_is_strictly_decodable(line in any_request()) {
        check_written(&Line::Request(Box::new(line)));
    }

    #[test]
    fn what_fits_comes_back_equal(mut line in any_request(), text in "[a-z \"é🦀\\n]{0,20}") {
        line.route = text.clone();
        line.ts_unix_ms = line.ts_unix_ms.map(|ms| ms % 253_402_300_800_000);
        made::texts_mut(&mut line).into_iter().flatten().for_each(|field| *field = text.clone());
        line.total_ms = line.total_ms.trunc();
        for field in made::numbers_mut(&mut line) {
            *field = field.filter(|number| (0.0..1e6).contains(number)).map(f64::trunc);
        }
        let line = Line::Request(Box::new(line));
        prop_assert_eq!(parse_line(&written(&line)), Ok(line));
    }
}

const SCHEMA: &str = include_str!("../../../SCHEMA.md");

/// The field names in the tables of one section of SCHEMA.md.
fn documented(kind: &str) -> BTreeSet<&'static str> {
    let heading = format!("\n## `{kind}`\n");
    let section = SCHEMA.split(&heading).nth(1).unwrap().split("\n## ").next().unwrap();
    let everywhere = SCHEMA.split("\nIn every kind:\n").nth(1).unwrap();
    let everywhere = everywhere.split("\n## ").next().unwrap();
    let of_four_columns = |row: &&str| row.matches(" | ").count() >= 3;
    let name = |row: &'static str| row.strip_prefix("| `")?.split('`').next();
    everywhere.lines().chain(section.lines()).filter(of_four_columns).filter_map(name).collect()
}

#[test]
fn every_field_stands_in_the_schema_page_and_no_other() {
    for (line, kind) in lines_with(&"x".repeat(200)).iter().zip(strict::kinds()) {
        let decoded: BTreeSet<&str> = kind.fields.iter().map(|field| field.name).collect();
        assert_eq!(documented(kind.word), decoded, "{}", kind.word);
        let fields = decode(&written(line)).unwrap();
        let as_documented =
            |name: &str| if name.starts_with("set_") { "set_" } else { name }.to_owned();
        let written: BTreeSet<String> =
            fields.iter().map(|(name, _)| as_documented(name)).collect();
        assert!(written.iter().map(String::as_str).eq(decoded), "{}: {written:?}", kind.word);
    }
}

#[test]
fn the_examples_of_the_schema_page_are_golden_lines() {
    let examples: Vec<&str> = SCHEMA.lines().filter(|line| line.starts_with("{\"ts\"")).collect();
    assert_eq!(examples.len(), 6);
    for example in examples {
        assert!(GOLDEN.lines().any(|line| line == example), "{example}");
    }
}

#[test]
fn the_words_of_the_schema_page_are_those_of_the_code() {
    let words = Outcome::ALL.map(Outcome::as_str).into_iter();
    let words = words.chain(TokensSrc::ALL.map(TokensSrc::as_str));
    for word in words.chain(ParseTrouble::ALL.map(ParseTrouble::as_str)) {
        assert!(SCHEMA.contains(&format!("`{word}`")), "{word}");
    }
}
