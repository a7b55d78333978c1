//! The figures of a load run, from exact vectors.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::process::Usage;

/// What one connection (or all of them) counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    total_ms: Vec<f64>,
    head_ms: Vec<f64>,
    first_event_ms: Vec<f64>,
    event_gap_ms: Vec<f64>,
    statuses: BTreeMap<u16, u64>,
    errors: BTreeMap<&'static str, u64>,
    events_count: u64,
    pub(crate) bytes_count: u64,
    pub(crate) deaths_count: u64,
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Tally {
    pub(crate) fn complete(&mut self, total: Duration) {
        self.total_ms.push(ms(total));
    }

    pub(crate) fn head(&mut self, time: Duration) {
        self.head_ms.push(ms(time));
    }

    pub(crate) fn status(&mut self, status: u16) {
        *self.statuses.entry(status).or_default() += 1;
    }

    pub(crate) fn error(&mut self, kind: &'static str) {
        *self.errors.entry(kind).or_default() += 1;
    }

    pub(crate) fn event(&mut self, sent_at: Instant, last_at: Option<Instant>, at: Instant) {
        self.events_count += 1;
        match last_at {
            None => self.first_event_ms.push(ms(at.saturating_duration_since(sent_at))),
            Some(last) => self.event_gap_ms.push(ms(at.saturating_duration_since(last))),
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.total_ms.extend(other.total_ms);
        self.head_ms.extend(other.head_ms);
        self.first_event_ms.extend(other.first_event_ms);
        self.event_gap_ms.extend(other.event_gap_ms);
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        for (kind, count) in other.errors {
            *self.errors.entry(kind).or_default() += count;
        }
        self.events_count += other.events_count;
        self.bytes_count += other.bytes_count;
        self.deaths_count += other.deaths_count;
    }
}

/// A distribution, by nearest rank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Values.
    pub count: usize,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

impl Spread {
    /// The spread of these values; `None` if there are none.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        let count = values.len();
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let rank = |percent: usize| values[(count * percent).div_ceil(100).max(1) - 1];
        let mean = values.iter().sum::<f64>() / count as f64;
        Some(Spread { count, p50: rank(50), p90: rank(90), p99: rank(99), max, mean })
    }
}

/// What one process tree used during the run.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessReport {
    /// The root of the tree.
    pub pid: u32,
    /// CPU time, user and system; the kernel counts in steps of 10 ms.
    pub cpu_us: Option<u64>,
    /// The same per completed request.
    pub cpu_us_per_request: Option<f64>,
    /// Resident memory before the run, MiB.
    pub rss_before_mb: Option<f64>,
    /// Resident memory after the run, MiB.
    pub rss_after_mb: Option<f64>,
    /// Largest resident memory in the life of its processes, summed, MiB.
    pub rss_peak_mb: Option<f64>,
}

/// The figures of a run; absent ones are null.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Wall time of the run.
    pub duration_s: f64,
    /// Requests whose answer came whole, whatever its status.
    pub completed_count: u64,
    /// Completed requests per second.
    pub requests_per_s: f64,
    /// Clients that died on purpose.
    pub deaths_count: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests that failed, by kind.
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes of all heads and bodies.
    pub bytes_count: u64,
    /// Whole requests.
    pub total_ms: Option<Spread>,
    /// To the head of the answer.
    pub head_ms: Option<Spread>,
    /// Events of all streams.
    pub events_count: u64,
    /// To the first event of a stream.
    pub first_event_ms: Option<Spread>,
    /// Between two events of a stream (0 if they came in one read).
    pub event_gap_ms: Option<Spread>,
    /// The watched processes.
    pub processes: Vec<ProcessReport>,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(crate) fn new(
        tally: Tally,
        duration: Duration,
        usages: impl Iterator<Item = (u32, Option<Usage>, Option<Usage>)>,
    ) -> Report {
        let completed_count = tally.total_ms.len() as u64;
        let processes =
            usages.map(|(pid, before, after)| process(pid, before, after, completed_count));
        Report {
            processes: processes.collect(),
            duration_s: duration.as_secs_f64(),
            completed_count,
            requests_per_s: completed_count as f64 / duration.as_secs_f64().max(1e-9),
            deaths_count: tally.deaths_count,
            statuses: tally.statuses,
            errors: tally.errors,
            bytes_count: tally.bytes_count,
            total_ms: Spread::of(tally.total_ms),
            head_ms: Spread::of(tally.head_ms),
            events_count: tally.events_count,
            first_event_ms: Spread::of(tally.first_event_ms),
            event_gap_ms: Spread::of(tally.event_gap_ms),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds and KiB are far below 2^53")]
fn process(
    pid: u32,
    before: Option<Usage>,
    after: Option<Usage>,
    completed_count: u64,
) -> ProcessReport {
    let cpu_us = before.zip(after).map(|(b, a)| a.cpu_us.saturating_sub(b.cpu_us));
    let per_request = |us: u64| (completed_count > 0).then(|| us as f64 / completed_count as f64);
    let mb = |kib: u64| kib as f64 / 1024.0;
    ProcessReport {
        pid,
        cpu_us,
        cpu_us_per_request: cpu_us.and_then(per_request),
        rss_before_mb: before.map(|usage| mb(usage.rss_kib)),
        rss_after_mb: after.map(|usage| mb(usage.rss_kib)),
        rss_peak_mb: after.map(|usage| mb(usage.rss_peak_kib)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_by_nearest_rank() {
        let hundred = (1..=100).rev().map(f64::from).collect();
        for (values, expected) in [
            (vec![], None),
            (vec![3.0], Some((3.0, 3.0, 3.0, 3.0, 3.0))),
            (vec![2.0, 1.0], Some((1.0, 2.0, 2.0, 2.0, 1.5))),
            (hundred, Some((50.0, 90.0, 99.0, 100.0, 50.5))),
        ] {
            let spread = Spread::of(values).map(|s| (s.p50, s.p90, s.p99, s.max, s.mean));
            assert_eq!(spread, expected);
        }
    }
}
