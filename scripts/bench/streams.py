"""A stream server whose events carry their send time, and the client that reads the delays.

Usage: streams.py serve PORT; streams.py read PORT STREAMS EVENTS_PER_S SECONDS.
The client prints `begun` and `ended` around the events, then JSON. Both ends are on one machine, so
the monotonic clock is the same. Every event is a write of its own at a random phase: no two streams
are in step.
"""

import asyncio
import gc
import json
import random
import re
import sys
import time
import urllib.parse

STREAM_HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
               b"Transfer-Encoding: chunked\r\n\r\n")
# A chat event of llama-server; the id keeps its 19 digits for the time.
EVENT = (b'data: {"choices":[{"finish_reason":null,"index":0,"delta":{"content":" lighthouse"}}],'
         b'"created":1767225600,"id":"chatcmpl-%019d","model":"SmolLM2-135M-Instruct.Q4_1",'
         b'"system_fingerprint":"b7001-4a3c7bd","object":"chat.completion.chunk"}\n\n')
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
SENT_AT = re.compile(rb'"id":"chatcmpl-(\d{19})"')
# Longer than what the pattern can have matched of a cut event.
TAIL_BYTES = 40
# Events begin when every connection has been there for a while, and streams end a while after them.
CONNECT_S = 1.0
CONNECT_S_PER_STREAM = 0.0025
SETTLE_S = 0.5

VECTOR = b",".join(b"%.7f" % random.uniform(-0.1, 0.1) for _ in range(384))
ITEM = b'{"object":"embedding","index":0,"embedding":[' + VECTOR + b"]},"
PIECE = ITEM * 16
OPENING = b'{"object":"list","model":"lab","data":['
CLOSING = (b'{"object":"embedding","index":1,"embedding":[0.5]}],'
           b'"usage":{"prompt_tokens":8,"total_tokens":8}}')


class Server(asyncio.Protocol):
    """Answers /...?count=&gap_s=&begin_s= with events and /v1/embeddings?pieces= with a large body."""

    def __init__(self):
        self.pending = b""
        self.writable = asyncio.Event()
        self.writable.set()
        self.task = None

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, _):
        if self.task:
            self.task.cancel()

    def pause_writing(self):
        self.writable.clear()

    def resume_writing(self):
        self.writable.set()

    def data_received(self, data):
        self.pending += data
        head, found, body = self.pending.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
        if not found or len(body) < (int(length[1]) if length else 0):
            return
        self.pending = b""
        url = urllib.parse.urlsplit(head.split()[1].decode())
        query = {key: float(value) for key, value in urllib.parse.parse_qsl(url.query)}
        answer = self.embed if "embed" in url.path else self.stream
        self.task = asyncio.ensure_future(answer(**query))

    async def stream(self, count, gap_s, begin_s):
        loop = asyncio.get_running_loop()
        self.transport.write(STREAM_HEAD)
        first = begin_s + random.uniform(0, gap_s)
        loop.call_at(first, self.send_event, loop, first, gap_s, int(count))

    def send_event(self, loop, due, gap_s, left):
        if self.transport.is_closing():
            return
        event = EVENT % time.monotonic_ns()
        self.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        if left > 1:
            loop.call_at(due + gap_s, self.send_event, loop, due + gap_s, gap_s, left - 1)
        else:
            loop.call_later(gap_s + 2 * SETTLE_S, self.transport.write, DONE)

    async def embed(self, pieces):
        length = len(OPENING) + int(pieces) * len(PIECE) + len(CLOSING)
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n" % length + OPENING)
        for _ in range(int(pieces)):
            await self.writable.wait()
            self.transport.write(PIECE)
        self.transport.write(CLOSING)


class Reader(asyncio.Protocol):
    """One stream; collects the delay of each event."""

    def __init__(self):
        self.delays_ms = []
        self.tail = b""
        self.done = asyncio.get_running_loop().create_future()

    def data_received(self, data):
        now = time.monotonic_ns()
        data = self.tail + data
        end = 0
        for found in SENT_AT.finditer(data):
            self.delays_ms.append((now - int(found[1])) / 1e6)
            end = found.end()
        if data.endswith(b"0\r\n\r\n"):
            self.finish()
        self.tail = data[max(end, len(data) - TAIL_BYTES):]

    def connection_lost(self, _):
        self.finish()

    def finish(self):
        if not self.done.done():
            self.done.set_result(None)


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def request(count, gap_s, begin_s):
    body = b'{"stream":true}'
    return (b"POST /v1/chat/completions?count=%d&gap_s=%f&begin_s=%f HTTP/1.1\r\nHost: lab\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (count, gap_s, begin_s, len(body), body))


async def read(port, streams, events_per_s, seconds):
    loop, count, gap_s = asyncio.get_running_loop(), int(events_per_s * seconds), 1 / events_per_s
    begin_s = loop.time() + CONNECT_S + CONNECT_S_PER_STREAM * streams
    readers = []
    for _ in range(streams):
        transport, reader = await loop.create_connection(Reader, "127.0.0.1", port)
        transport.write(request(count, gap_s, begin_s))
        readers.append(reader)
    settled_s = begin_s - SETTLE_S - loop.time()
    if settled_s < 0:
        raise SystemExit("streams: connecting took too long")
    await asyncio.sleep(settled_s)
    print("begun", flush=True)
    await asyncio.sleep(begin_s + seconds + gap_s + SETTLE_S - loop.time())
    print("ended", flush=True)
    await asyncio.gather(*(reader.done for reader in readers))
    if any(len(reader.delays_ms) != count for reader in readers):
        raise SystemExit("streams: events are missing")
    print(json.dumps(figures([reader.delays_ms for reader in readers])))


def rank(values, percent):
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def figures(streams):
    """Delays over all events, and of the stream that fared worst."""
    delays = [delay for stream in streams for delay in stream]
    return {"events": len(delays), "p50_ms": rank(delays, 50), "p99_ms": rank(delays, 99),
            "max_ms": max(delays), "worst_stream_p50_ms": max(rank(one, 50) for one in streams)}


def main():
    # A collection would be a delay of our own making.
    gc.disable()
    mode, port, *numbers = sys.argv[1:]
    if mode == "serve":
        asyncio.run(serve(int(port)))
    else:
        streams, events_per_s, seconds = numbers
        asyncio.run(read(int(port), int(streams), float(events_per_s), float(seconds)))


if __name__ == "__main__":
    main()
