//! CPU time and memory of a process tree, from /proc.

use std::collections::BTreeMap;
use std::fs;

/// Microseconds per tick of /proc/PID/stat: Linux shows 100 ticks a second to user space.
const TICK_US: u64 = 10_000;

/// What a process tree has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time, user and system, ended children included.
    pub cpu_us: u64,
    /// Resident memory now.
    pub rss_kib: u64,
    /// Sum of the largest resident memory of each process.
    pub rss_peak_kib: u64,
}

impl Usage {
    /// Of `pid` and its descendants; `None` if there is no such process.
    pub fn of_tree(pid: u32) -> Option<Usage> {
        let stats = all_stats();
        stats.get(&pid)?;
        let mut usage = Usage::default();
        let mut tree = vec![pid];
        while let Some(pid) = tree.pop() {
            tree.extend(
                stats.iter().filter(|(_, stat)| stat.parent == pid).map(|(child, _)| child),
            );
            usage.cpu_us += stats.get(&pid).map_or(0, |stat| stat.ticks * TICK_US);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            usage.rss_kib += status_kib(&status, "VmRSS:").unwrap_or(0);
            usage.rss_peak_kib += status_kib(&status, "VmHWM:").unwrap_or(0);
        }
        Some(usage)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    ticks: u64,
}

fn all_stats() -> BTreeMap<u32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let stat = |pid: u32| {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse_stat(&String::from_utf8_lossy(&text))?))
    };
    pids.filter_map(stat).collect()
}

// The name may hold anything, parentheses and spaces too: what counts begins after the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = (11..=14).map(number).sum::<Option<u64>>()?;
    Some(Stat { parent: fields.get(1)?.parse().ok()?, ticks })
}

fn status_kib(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_lines() {
        for (text, expected) in [
            (
                "7 (a) S 3 7 7 0 -1 0 1 1 1 1 10 20 3 4 20 0 1 0",
                Some(Stat { parent: 3, ticks: 37 }),
            ),
            ("7 (a) b) (c) S 3 7 7 0 -1 0 1 1 1 1 1 0 0 0 20", Some(Stat { parent: 3, ticks: 1 })),
            ("7 (a) S 3", None),
            ("", None),
        ] {
            assert_eq!(parse_stat(text), expected, "{text:?}");
        }
    }

    #[test]
    fn this_process_has_memory_and_no_such_process_is_none() {
        assert!(Usage::of_tree(std::process::id()).unwrap().rss_peak_kib > 0);
        assert_eq!(Usage::of_tree(u32::MAX), None);
    }
}
