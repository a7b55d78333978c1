"""Rounds to figures to a Markdown table. Raw values go in; nothing here measures anything."""

import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the table, taken from the figures `key` of a measure.

    `added` subtracts what no proxy takes, in the same round. `budget` is for ours: at most a value
    ("most"), a multiple of nginx's ("ratio"), or nginx's and so much more ("over")."""

    label: str
    measure: str
    key: str
    added: bool = False
    budget: tuple[str, float] | None = None


ROWS = [
    Row("chat, 16 connections: CPU us/request", "chat_16", "cpu_us_per_request",
        budget=("ratio", 1.25)),
    Row("chat, 1 connection: CPU us/request", "chat_1", "cpu_us_per_request",
        budget=("ratio", 1.25)),
    Row("chat, 1 connection: added p50, ms", "chat_1", "p50_ms", True, ("over", 0.1)),
    Row("chat, 1 connection: added p99, ms", "chat_1", "p99_ms", True, ("over", 0.1)),
    Row("chat, 16 connections: requests/s", "chat_16", "requests_per_s"),
    Row("64 streams in step: CPU us/event", "streams_64", "cpu_us_per_event", budget=("most", 10)),
    Row("64 streams, scattered: CPU us/event", "scattered_64", "cpu_us_per_event",
        budget=("most", 10)),
    Row("1,000 streams: CPU us/event", "scattered_1000", "cpu_us_per_event", budget=("most", 10)),
    Row("64 streams: delay p99, ms", "scattered_64", "p99_ms"),
    Row("64 streams: delay max, ms", "scattered_64", "max_ms"),
    Row("1,000 streams: delay p50, ms", "scattered_1000", "p50_ms"),
    Row("1,000 streams: delay p99, ms", "scattered_1000", "p99_ms"),
    Row("1,000 streams: delay max, ms", "scattered_1000", "max_ms"),
    Row("1,000 streams: p50 of the worst stream, ms", "scattered_1000", "worst_stream_p50_ms"),
    Row("RSS idle, MiB", "large_body", "rss_idle_mb", budget=("most", 10)),
    Row("PSS idle, MiB", "large_body", "pss_idle_mb"),
    Row("RSS after the chats, MiB", "chat_16", "rss_after_mb"),
    Row("RSS peak with 64 streams, MiB", "streams_64", "rss_peak_mb", budget=("most", 20)),
    Row("RSS peak with 1,000 streams, MiB", "scattered_1000", "rss_peak_mb"),
    Row("RSS growth during a 200 MB body, MiB", "large_body", "growth_mb", budget=("most", 2)),
    Row("start to listening, ms", "start", "starts_ms", budget=("most", 50)),
]


def series(rounds, row, name):
    """The row's value in each round; empty where it does not apply."""
    if row.added and name == "direct":
        return []
    values = []
    for measured in rounds:
        value = measured.get(row.measure, {}).get(name, {}).get(row.key)
        if isinstance(value, list):
            value = statistics.median(value)
        if value is not None and row.added:
            value -= measured[row.measure]["direct"][row.key]
        values.append(value)
    return [] if None in values else values


def number(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}" if value else "0"


def cell(values):
    return f"{number(statistics.median(values))} ({number(min(values))})" if values else ""


def ratio(ours, nginx):
    """Median of the ratios of each round."""
    pairs = list(zip(ours, nginx))
    usable = pairs and all(peer > 0 for _, peer in pairs)
    return statistics.median(one / peer for one, peer in pairs) if usable else None


def verdict(row, ours, nginx):
    """What the budget says, and whether it was kept."""
    if not row.budget or not ours:
        return ""
    kind, limit = row.budget
    if kind == "most":
        text, kept = f"<= {limit:g}", statistics.median(ours) <= limit
    elif not nginx:
        return ""
    elif kind == "ratio":
        text, kept = f"<= {limit:g} x nginx", ratio(ours, nginx) <= limit
    else:
        over = statistics.median(one - peer for one, peer in zip(ours, nginx))
        text, kept = f"<= nginx + {limit:g}", over <= limit
    return f"{text}: {'kept' if kept else '**missed**'}"


def line(rounds, row, names, judged):
    values = {name: series(rounds, row, name) for name in names}
    cells = [row.label, *(cell(values[name]) for name in names)]
    return "| " + " | ".join(cells + (judgement(row, values) if judged else [])) + " |"


def judgement(row, values):
    ours, nginx = values["ours"], values["nginx"]
    # A ratio of two small differences says nothing.
    share = None if row.added else ratio(ours, nginx)
    return [f"{share:.2f}" if share is not None else "", verdict(row, ours, nginx)]


def table(rounds, names):
    """Every row that has values, as Markdown; judged if there is nginx to compare with."""
    judged = "nginx" in names
    head = ["", *names, *(["ours / nginx", "budget"] if judged else [])]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    rows = [row for row in ROWS if any(series(rounds, row, name) for name in names)]
    return "\n".join(lines + [line(rounds, row, names, judged) for row in rows])


HOW = """\
How it is measured (scripts/bench.py, scripts/bench/):

* Every subject takes its turn in every round, in an order that changes from round to round, behind a
  fresh process and a warm-up. A cell is the median of the rounds, with the least in brackets; the
  ratio is taken within each round, and its median is shown.
* CPU is the scheduler's own count (`/proc/PID/task/*/schedstat`) over all threads and worker processes,
  divided by the requests or events of the run. Ours reads the tokens and timers of every answer
  besides forwarding it.
* Each proxy has one worker, keeps at most 64 idle connections to the
  upstream for 4 s and 90 requests, buffers nothing, sets TCP_NODELAY, and writes a
  line for each request to a file (the count of lines is checked). nginx's lines are batched (64 KiB,
  100 ms) as ours are; haproxy's go to its standard output one by one.
* Chat and "in step" streams come from the lab's `upstream --instant` and its load generator (closed
  loop). The other streams come from a server that writes the send time into each event, every event
  a write of its own at a random phase; delay is from before that write to the client's read of it,
  so it holds what the client and the machine take, too: compare with `direct`.
* RSS is summed over processes (nginx: master and worker, which share pages: PSS counts those once);
  peaks are the kernel's (`VmHWM`). Growth is the peak during the body less RSS after one small answer.
* A start is timed from the exec to the first connection that is accepted.
"""


def page(found):
    """The whole report of a run."""
    machine, sizes = found["machine"], found["sizes"]
    placement = ("Everything ran on one core" if found["one_core"] else
                 "The scheduler placed what ran; a wake-up of an idle core is in the CPU figures")
    loads = ", ".join(one["load_average"].split()[0] for one in found["rounds"])
    versions = "; ".join(f"{name}: {text}" for name, text in found["versions"].items())
    parts = [
        f"# The proxy beside its peers, {found['begun'][:10]}",
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}. {placement}. "
        f"Load average (1 min) at the start of each of the {len(found['rounds'])} rounds: {loads}. "
        f"{versions}. Sizes: {', '.join(f'{key} {value}' for key, value in sizes.items())}.",
        table([one["measures"] for one in found["rounds"]], found["subjects"]),
        f"Binary: {found['binary_bytes']:,} bytes ({found['binary']}; at most 8,388,608).", HOW]
    if "litellm" in found:
        parts += ["## LiteLLM, once, for scale", litellm_part(found["litellm"])]
    return "\n\n".join(parts)


def litellm_part(litellm):
    if "error" in litellm:
        return f"Could not be run: {litellm['error']}\n"
    return f"Version {litellm['version']}.\n\n{table([litellm['measures']], litellm['subjects'])}\n"
