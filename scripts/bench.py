"""Measures the proxy beside no proxy, nginx and haproxy, in turn in the same run; see `--help`.

Results go to bench-runs/DATE-proxy.md and .json (DATE-proxy-one-core with `--one-core`), those of
`--quick` to target/bench.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

# The tree stays as it is checked out.
sys.dont_write_bytecode = True

from bench import litellm, measures, processes, results, subjects

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
NAMES = ["direct", *subjects.PROXIES]
FULL = {"rounds": 7, "chat_16_requests": 20_000, "chat_1_requests": 4_000, "streams_64_turns": 1,
        "stream_events": 150, "streams_s": 4, "starts": 3}
QUICK = {"rounds": 2, "chat_16_requests": 4_000, "chat_1_requests": 1_000, "streams_64_turns": 1,
         "stream_events": 100, "streams_s": 2, "starts": 2}


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def arguments():
    parser = argparse.ArgumentParser(description="Measures the proxy beside nginx and haproxy.")
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--rounds", type=int, help="at least 5 for a figure to believe")
    parser.add_argument("--one-core", action="store_true",
                        help="everything on one core: no idle core is woken, so figures scatter less")
    parser.add_argument("--only", nargs="+", choices=measures.ALL, help="these measurements only")
    parser.add_argument("--binary", type=pathlib.Path, help="instead of that of `make release`")
    parser.add_argument("--lab", type=pathlib.Path, help="instead of a release build of it")
    parser.add_argument("--litellm", action="store_true", help="LiteLLM from PyPI once, for scale")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the results")
    return parser.parse_args()


def build(args):
    """The two binaries, built if they were not given."""
    if not args.binary:
        subprocess.run(["make", "-C", ROOT, "release"], check=True, stdout=sys.stderr)
    if not args.lab:
        subprocess.run(["cargo", "build", "--locked", "--release", "-p", "inferwatch-lab"],
                       check=True, cwd=ROOT)
    return (args.binary or TARGET / "x86_64-unknown-linux-gnu/release/inferwatch",
            args.lab or TARGET / "release/inferwatch-lab")


def start_upstreams(stack, lab, sizes):
    """One for whole answers (about 650 bytes), one for streams, one with send times."""
    ports = {name: processes.free_port() for name in ("chat", "streams", "stamped")}
    instant = [str(lab), "upstream", "--instant", "--listen"]
    events = ["--events", str(sizes["stream_events"]), "--events-per-s", "50"]
    commands = {
        "chat": [*instant, f"127.0.0.1:{ports['chat']}", "--events", "32"],
        "streams": [*instant, f"127.0.0.1:{ports['streams']}", *events],
        "stamped": [sys.executable, str(measures.STREAMS_SCRIPT), "serve", str(ports["stamped"])],
    }
    for name, command in commands.items():
        out = TARGET / "bench" / f"upstream-{name}.log"
        stack.enter_context(processes.running(command, ports[name], out))
    return ports


def load_average():
    return pathlib.Path("/proc/loadavg").read_text().strip()


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [text.split(":")[1].strip() for text in info if text.startswith("model name")]
    return {"cpu": names[0] if names else platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release()}


def one_round(bed, number, chosen, names):
    """Every measurement of every subject, beginning with another one each time."""
    turn = number % len(names)
    measured = {"load_average": load_average(), "measures": {}}
    for measure in chosen:
        say(f"round {number + 1}: {measure}")
        figures = {name: measures.ALL[measure](bed, name) for name in names[turn:] + names[:turn]}
        measured["measures"][measure] = figures
    return measured


def measure_all(args, sizes, binary, lab):
    """The whole run, as it goes into the JSON."""
    chosen = args.only or list(measures.ALL)
    run = subjects.Subjects(binary)
    found = {"begun": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
             "machine": machine(), "versions": run.versions(), "sizes": sizes, "subjects": NAMES,
             "one_core": args.one_core,
             "binary": relative(binary), "binary_bytes": binary.stat().st_size}
    with contextlib.ExitStack() as stack:
        bed = measures.Bed(lab, run, sizes, start_upstreams(stack, lab, sizes))
        found["rounds"] = [one_round(bed, number, chosen, NAMES)
                           for number in range(sizes["rounds"])]
        if args.litellm:
            found["litellm"] = litellm.once(bed, one_round)
    return found


def relative(path):
    path = path.resolve()
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def write(found, folder):
    """The table to standard output, the table and the raw values to files."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{found['begun'][:10]}-proxy{'-one-core' if found['one_core'] else ''}"
    page = results.page(found)
    stem.with_suffix(".md").write_text(page)
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    print(page)
    say(f"written to {stem}.md and .json")


def main():
    # Unwinds like an exception, so that the children are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    args = arguments()
    sizes = dict(QUICK if args.quick else FULL)
    sizes["rounds"] = args.rounds or sizes["rounds"]
    subprocess.run([ROOT / "scripts/apt-need.sh", "nginx=nginx", "haproxy=haproxy"], check=True)
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    binaries = build(args)
    if args.one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    found = measure_all(args, sizes, *binaries)
    write(found, args.out or (TARGET / "bench" if args.quick else ROOT / "bench-runs"))


if __name__ == "__main__":
    main()
