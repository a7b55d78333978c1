//! Builds a line from raw fields: which field has which type, and what is said if it has another.

use std::borrow::Cow;

use super::fields::{Fields, Raw};
use crate::line::{DroppedLine, Line, OpenLine, RequestLine, StartLine, StopLine};
use crate::timestamp::parse_ts;
use crate::words::{Outcome, ParseTrouble, TokensSrc};

/// The line that these fields make.
pub(super) fn line_of(fields: Fields<'_>) -> Result<Line, String> {
    let Some(kind) = kind_of(&fields)? else {
        let named = |name: &str| fields.iter().any(|(field, _)| field == name);
        if named("route") && named("total_ms") {
            return request(fields);
        }
        return Err("no `kind`, and no `route` with `total_ms` either".to_owned());
    };
    match kind.as_str() {
        "request" => request(fields),
        "open" => open(fields),
        "start" => start(fields),
        "stop" => stop(fields),
        "dropped" => dropped(fields),
        _ => unknown(kind, fields),
    }
}

fn kind_of(fields: &Fields<'_>) -> Result<Option<String>, String> {
    match fields.iter().rev().find(|(name, _)| name == "kind") {
        None | Some((_, Raw::Null)) => Ok(None),
        Some((_, Raw::Text(kind))) => Ok(Some(kind.clone().into_owned())),
        Some((_, value)) => Err(mismatch("kind", "a string", value)),
    }
}

fn request(fields: Fields<'_>) -> Result<Line, String> {
    let mut line = Box::<RequestLine>::default();
    let (mut route, mut total_ms) = (None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => line.ts_unix_ms = time(value)?,
            "route" => route = string("route", value)?,
            "total_ms" => total_ms = number("total_ms", value)?,
            "status" => line.status = status("status", value)?,
            "upstream_status" => line.upstream_status = status("upstream_status", value)?,
            "outcome" => line.outcome = word("outcome", value, Outcome::from_wire)?,
            "tokens_src" => line.tokens_src = word("tokens_src", value, TokensSrc::from_wire)?,
            "parse" => line.parse = word("parse", value, ParseTrouble::from_wire)?,
            name => request_field(&mut line, name, value)?,
        }
    }
    line.route = needed("route", route)?;
    line.total_ms = needed("total_ms", total_ms)?;
    Ok(Line::Request(line))
}

fn request_field(line: &mut RequestLine, name: &str, value: Raw<'_>) -> Result<(), String> {
    if let Some(field) = request_number(line, name) {
        *field = number(name, value)?;
    } else if let Some(field) = request_count(line, name) {
        *field = count(name, value)?;
    } else if let Some(field) = request_string(line, name) {
        *field = string(name, value)?;
    } else if let Some(field) = request_flag(line, name) {
        *field = flag(name, value)?;
    }
    Ok(())
}

fn request_number<'a>(line: &'a mut RequestLine, name: &str) -> Option<&'a mut Option<f64>> {
    Some(match name {
        "encode_ms" => &mut line.encode_ms,
        "retrieve_ms" => &mut line.retrieve_ms,
        "rerank_ms" => &mut line.rerank_ms,
        "generate_ms" => &mut line.generate_ms,
        "rss_mb" => &mut line.rss_mb,
        "queue_ms" => &mut line.queue_ms,
        "load_ms" => &mut line.load_ms,
        "headers_ms" => &mut line.headers_ms,
        "prefill_ms" => &mut line.prefill_ms,
        "ttft_ms" => &mut line.ttft_ms,
        "decode_tokens_per_s" => &mut line.decode_tokens_per_s,
        "rss_start_mb" => &mut line.rss_start_mb,
        "anon_mb" => &mut line.anon_mb,
        "anon_start_mb" => &mut line.anon_start_mb,
        _ => return None,
    })
}

fn request_count<'a>(line: &'a mut RequestLine, name: &str) -> Option<&'a mut Option<u64>> {
    Some(match name {
        "seq" => &mut line.seq,
        "prompt_tokens" => &mut line.prompt_tokens,
        "completion_tokens" => &mut line.completion_tokens,
        "inflight" => &mut line.inflight,
        "est_prompt_tokens" => &mut line.est_prompt_tokens,
        "cached_tokens" => &mut line.cached_tokens,
        "batch" => &mut line.batch,
        "bytes_in" => &mut line.bytes_in,
        "bytes_out" => &mut line.bytes_out,
        "capped_max_tokens" => &mut line.capped_max_tokens,
        _ => return None,
    })
}

fn request_string<'a>(line: &'a mut RequestLine, name: &str) -> Option<&'a mut Option<String>> {
    Some(match name {
        "id" => &mut line.id,
        "model" => &mut line.model,
        "error" => &mut line.error,
        "upstream" => &mut line.upstream,
        "requested_model" => &mut line.requested_model,
        "finish" => &mut line.finish,
        "trace_id" => &mut line.trace_id,
        "client" => &mut line.client,
        _ => return None,
    })
}

fn request_flag<'a>(line: &'a mut RequestLine, name: &str) -> Option<&'a mut Option<bool>> {
    Some(match name {
        "cache_hit" => &mut line.cache_hit,
        "stream" => &mut line.stream,
        "completion_tokens_partial" => &mut line.completion_tokens_partial,
        "coalesced" => &mut line.coalesced,
        _ => return None,
    })
}

fn open(fields: Fields<'_>) -> Result<Line, String> {
    let mut line = Box::<OpenLine>::default();
    let (mut route, mut age_ms) = (None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => line.ts_unix_ms = time(value)?,
            "seq" => line.seq = count("seq", value)?,
            "id" => line.id = string("id", value)?,
            "route" => route = string("route", value)?,
            "model" => line.model = string("model", value)?,
            "age_ms" => age_ms = number("age_ms", value)?,
            "inflight" => line.inflight = count("inflight", value)?,
            "headers_ms" => line.headers_ms = number("headers_ms", value)?,
            "ttft_ms" => line.ttft_ms = number("ttft_ms", value)?,
            _ => {}
        }
    }
    line.route = needed("route", route)?;
    line.age_ms = needed("age_ms", age_ms)?;
    Ok(Line::Open(line))
}

fn start(fields: Fields<'_>) -> Result<Line, String> {
    let mut line = Box::<StartLine>::default();
    let (mut version, mut pid) = (None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => line.ts_unix_ms = time(value)?,
            "seq" => line.seq = count("seq", value)?,
            "version" => version = string("version", value)?,
            "pid" => pid = count("pid", value)?,
            "cores" => line.cores = count("cores", value)?,
            "settings_left_out_count" => {
                line.settings_left_out_count = count("settings_left_out_count", value)?;
            }
            name => line.settings.extend(setting(name, value)?),
        }
    }
    line.version = needed("version", version)?;
    line.pid = u32::try_from(needed("pid", pid)?).map_err(|_| "`pid`: too large".to_owned())?;
    Ok(Line::Start(line))
}

fn setting(name: &str, value: Raw<'_>) -> Result<Option<(Cow<'static, str>, String)>, String> {
    let Some(flag) = name.strip_prefix("set_") else { return Ok(None) };
    Ok(string(name, value)?.map(|value| (Cow::Owned(flag.to_owned()), value)))
}

fn stop(fields: Fields<'_>) -> Result<Line, String> {
    let mut line = Box::<StopLine>::default();
    let (mut reason, mut uptime_ms, mut requests, mut unfinished) = (None, None, None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => line.ts_unix_ms = time(value)?,
            "seq" => line.seq = count("seq", value)?,
            "reason" => reason = string("reason", value)?,
            "uptime_ms" => uptime_ms = number("uptime_ms", value)?,
            "requests_count" => requests = count("requests_count", value)?,
            "unfinished_count" => unfinished = count("unfinished_count", value)?,
            _ => {}
        }
    }
    line.reason = needed("reason", reason)?;
    line.uptime_ms = needed("uptime_ms", uptime_ms)?;
    line.requests_count = needed("requests_count", requests)?;
    line.unfinished_count = needed("unfinished_count", unfinished)?;
    Ok(Line::Stop(line))
}

fn dropped(fields: Fields<'_>) -> Result<Line, String> {
    let mut line = Box::<DroppedLine>::default();
    let (mut dropped, mut queue_full, mut write_failed) = (None, None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => line.ts_unix_ms = time(value)?,
            "seq" => line.seq = count("seq", value)?,
            "dropped_count" => dropped = count("dropped_count", value)?,
            "queue_full_count" => queue_full = count("queue_full_count", value)?,
            "write_failed_count" => write_failed = count("write_failed_count", value)?,
            "error" => line.error = string("error", value)?,
            _ => {}
        }
    }
    line.dropped_count = needed("dropped_count", dropped)?;
    line.queue_full_count = needed("queue_full_count", queue_full)?;
    line.write_failed_count = needed("write_failed_count", write_failed)?;
    Ok(Line::Dropped(line))
}

fn unknown(kind: String, fields: Fields<'_>) -> Result<Line, String> {
    let (mut ts_unix_ms, mut seq) = (None, None);
    for (name, value) in fields {
        match name.as_ref() {
            "ts" => ts_unix_ms = time(value)?,
            "seq" => seq = count("seq", value)?,
            _ => {}
        }
    }
    Ok(Line::Unknown { ts_unix_ms, seq, kind })
}

fn needed<T>(name: &str, value: Option<T>) -> Result<T, String> {
    value.ok_or_else(|| format!("`{name}`: missing"))
}

fn mismatch(name: &str, wanted: &str, found: &Raw<'_>) -> String {
    format!("`{name}`: {} where {wanted} belongs", found.kind())
}

fn time(value: Raw<'_>) -> Result<Option<u64>, String> {
    match value {
        Raw::Null => Ok(None),
        Raw::Text(text) => parse_ts(&text).map(Some).map_err(|reason| format!("`ts`: {reason}")),
        other => Err(mismatch("ts", "a string", &other)),
    }
}

fn string(name: &str, value: Raw<'_>) -> Result<Option<String>, String> {
    match value {
        Raw::Null => Ok(None),
        Raw::Text(text) => Ok(Some(text.into_owned())),
        other => Err(mismatch(name, "a string", &other)),
    }
}

/// A word of a later version reads as `None`: the line is still good.
fn word<T>(name: &str, value: Raw<'_>, read: fn(&str) -> Option<T>) -> Result<Option<T>, String> {
    Ok(string(name, value)?.and_then(|word| read(&word)))
}

fn flag(name: &str, value: Raw<'_>) -> Result<Option<bool>, String> {
    match value {
        Raw::Null => Ok(None),
        Raw::Bool(flag) => Ok(Some(flag)),
        other => Err(mismatch(name, "a boolean", &other)),
    }
}

fn number(name: &str, value: Raw<'_>) -> Result<Option<f64>, String> {
    match value {
        Raw::Null => Ok(None),
        Raw::Whole(whole) => Ok(Some(whole as f64)),
        Raw::Number(number) if number >= 0.0 => Ok(Some(number)),
        Raw::Number(_) => Err(format!("`{name}`: negative")),
        other => Err(mismatch(name, "a number", &other)),
    }
}

/// A whole number, also as a float: many a home-made logger writes 12.0.
fn count(name: &str, value: Raw<'_>) -> Result<Option<u64>, String> {
    match value {
        Raw::Null => Ok(None),
        Raw::Whole(whole) => Ok(Some(whole)),
        // Above 2^53 a float no longer tells neighbouring whole numbers apart.
        Raw::Number(number)
            if number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number) =>
        {
            Ok(Some(number as u64))
        }
        Raw::Number(_) => Err(format!("`{name}`: not a whole number from 0 on")),
        other => Err(mismatch(name, "a whole number", &other)),
    }
}

fn status(name: &str, value: Raw<'_>) -> Result<Option<u16>, String> {
    let Some(code) = count(name, value)? else { return Ok(None) };
    u16::try_from(code).map(Some).map_err(|_| format!("`{name}`: {code} is no HTTP status"))
}
