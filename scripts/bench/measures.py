"""The measurements: each takes a lab and a subject's name, and gives its figures for one round."""

import http.client
import json
import pathlib
import subprocess
import sys
import time

from bench import processes

STREAMS_SCRIPT = pathlib.Path(__file__).with_name("streams.py")
# Lines are written by then.
SETTLE_S = 0.3
# About what a piece of `streams.py` takes: 16 vectors of 384 numbers.
PIECE_BYTES = 65_000
LARGE_BODY_BYTES = 200_000_000
CHAT_PATH = "/v1/chat/completions"
LOAD_LIMIT_S = 120

CHAT = {
    "model": "SmolLM2-135M-Instruct.Q4_1",
    "messages": [
        {"role": "system", "content": "You are the keeper of a lighthouse on a rocky coast. You answer "
         "in plain words, and you never make up what you do not know about ships, tides or weather."},
        {"role": "user", "content": "The barometer has fallen by twelve hectopascal since this morning "
         "and the wind has backed to the south-east. Should the fishing boats leave the harbour at "
         "six o'clock as planned, or wait for the next tide? Say why, in two short sentences."},
    ],
    "max_tokens": 64, "temperature": 0.7, "top_p": 0.95, "seed": 7, "stream": False,
}


class Bed:
    """The upstreams, the load generator and how much of everything is sent."""

    def __init__(self, lab, subjects, sizes, ports):
        self.lab, self.subjects, self.sizes, self.ports = lab, subjects, sizes, ports

    def load(self, port, connections, requests, stream=False):
        """A closed loop of the lab's load generator; fails unless every answer is a 200."""
        body = json.dumps({**CHAT, "stream": stream}, separators=(",", ":"))
        command = [str(self.lab), "load", f"http://127.0.0.1:{port}{CHAT_PATH}", "-c",
                   str(connections), "-n", str(requests), "-H", "Content-Type: application/json",
                   "-H", "X-Request-Id: bench", "--body", body]
        report = json.loads(subprocess.run(command, capture_output=True, check=True,
                                           timeout=LOAD_LIMIT_S).stdout)
        if report["errors"] or report["statuses"] != {"200": requests}:
            raise SystemExit(f"bench: {report['errors']} {report['statuses']}")
        return report

    def read_streams(self, running, streams, events_per_s):
        """Delays, and the CPU time of the events without the streams' beginnings and ends."""
        command = ["timeout", str(LOAD_LIMIT_S), sys.executable, str(STREAMS_SCRIPT), "read",
                   *map(str, (running.port, streams, events_per_s, self.sizes["streams_s"]))]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            client.stdout.readline()
            with Metered(running) as cpu:
                client.stdout.readline()
            said, _ = client.communicate()
        finally:
            processes.end(client)
        if client.returncode:
            raise SystemExit("bench: the stream client failed")
        return cpu, json.loads(said)


class Metered:
    """CPU time of a subject over a `with` block."""

    def __init__(self, running):
        self.pid = running.pid
        self.us = None

    def __enter__(self):
        self.before_us = processes.cpu_us(self.pid) if self.pid else None
        return self

    def __exit__(self, *_):
        if self.pid:
            self.us = processes.cpu_us(self.pid) - self.before_us

    def per(self, count):
        return self.us / count if self.pid else None


def chat(bed, name, connections, requests):
    with bed.subjects.start(name, bed.ports["chat"]) as running:
        warm_up = bed.load(running.port, connections, max(200, requests // 10))["completed_count"]
        with Metered(running) as cpu:
            report = bed.load(running.port, connections, requests)
            time.sleep(SETTLE_S)
        check_log(name, running, warm_up + requests)
        rss_mb = processes.memory_mb(running.pid) if running.pid else None
        total = report["total_ms"]
        return {"cpu_us_per_request": cpu.per(requests), "p50_ms": total["p50"],
                "p99_ms": total["p99"], "max_ms": total["max"],
                "requests_per_s": report["requests_per_s"],
                "rss_after_mb": rss_mb, "answer_bytes": report["bytes_count"] / requests}


def check_log(name, running, requests):
    """A proxy that wrote no line for a request was measured doing less."""
    if running.log and name != "litellm" and running.lines_count() < requests:
        raise SystemExit(f"bench: {name} wrote {running.lines_count()} lines for {requests} requests")


def chat_16(bed, name):
    """Non-streamed chat, 16 connections."""
    return chat(bed, name, 16, bed.sizes["chat_16_requests"])


def chat_1(bed, name):
    """Non-streamed chat, one connection."""
    return chat(bed, name, 1, bed.sizes["chat_1_requests"])


def streams_64(bed, name):
    """64 streams of the lab, which all write within the same few milliseconds."""
    requests = 64 * bed.sizes["streams_64_turns"]
    with bed.subjects.start(name, bed.ports["streams"]) as running:
        bed.load(running.port, 64, 64, stream=True)
        with Metered(running) as cpu:
            report = bed.load(running.port, 64, requests, stream=True)
            time.sleep(SETTLE_S)
        check_log(name, running, requests + 64)
        peak = processes.memory_mb(running.pid, "VmHWM:") if running.pid else None
        gap = report["event_gap_ms"]
        return {"cpu_us_per_event": cpu.per(report["events_count"]), "rss_peak_mb": peak,
                "gap_p99_ms": gap["p99"], "gap_max_ms": gap["max"]}


def scattered(bed, name, streams, events_per_s):
    with bed.subjects.start(name, bed.ports["stamped"]) as running:
        cpu, report = bed.read_streams(running, streams, events_per_s)
        peak = processes.memory_mb(running.pid, "VmHWM:") if running.pid else None
        return {"cpu_us_per_event": cpu.per(report["events"]), "rss_peak_mb": peak, **report}


def scattered_64(bed, name):
    """64 streams of 50 events/s, no two in step."""
    return scattered(bed, name, 64, 50)


def scattered_1000(bed, name):
    """1,000 streams of 4 events/s, no two in step."""
    return scattered(bed, name, 1000, 4)


def fetch(port, pieces):
    """Reads an embedding-like answer as fast as it comes; returns its length."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=LOAD_LIMIT_S)
    body = json.dumps({"model": "lab", "input": ["the run queue fills"]})
    client.request("POST", f"/v1/embeddings?pieces={pieces}", body,
                   {"Content-Type": "application/json"})
    answer, buffer, length_bytes = client.getresponse(), bytearray(1 << 18), 0
    while read := answer.readinto(buffer):
        length_bytes += read
    client.close()
    return length_bytes


def large_body(bed, name):
    """Memory idle, after one small answer, and its peak during a 200 MB answer."""
    with bed.subjects.start(name, bed.ports["stamped"]) as running:
        if not running.pid:
            return {}
        time.sleep(SETTLE_S)
        idle_mb, idle_pss_mb = processes.memory_mb(running.pid), processes.pss_mb(running.pid)
        fetch(running.port, 1)
        before_mb = processes.memory_mb(running.pid)
        processes.forget_peak(running.pid)
        length_bytes = fetch(running.port, LARGE_BODY_BYTES // PIECE_BYTES)
        peak_mb = processes.memory_mb(running.pid, "VmHWM:")
        return {"rss_idle_mb": idle_mb, "pss_idle_mb": idle_pss_mb, "rss_before_mb": before_mb,
                "rss_peak_mb": peak_mb, "growth_mb": peak_mb - before_mb,
                "length_bytes": length_bytes}


def start(bed, name):
    """From exec to the first connection that is accepted; the median of some starts."""
    times_ms = []
    for _ in range(bed.sizes["starts"]):
        with bed.subjects.start(name, bed.ports["chat"]) as running:
            times_ms.append(running.start_ms)
    return {"starts_ms": times_ms} if times_ms[0] else {}


ALL = {measure.__name__: measure for measure in (
    chat_16, chat_1, streams_64, scattered_64, scattered_1000, large_body, start)}
