"""The main job on real input: puts `inferwatch proxy` in front of a real llama.cpp, sends it real
requests, prints every line as the proxy writes it, and fails unless there is one for each request.

Usage: demo.py PATH_TO_INFERWATCH, with INFERWATCH_LLAMA_PYTHON and INFERWATCH_LLAMA_MODEL set (see
llama-venv.sh). Lines and captions go to standard output, progress to standard error.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

LINE_WAIT_S = 60
START_WAIT_S = 300
# The proxy lets running requests finish for 30 s.
STOP_WAIT_S = 40
QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
STORY = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]


def say(text):
    print(f"demo: {text}", file=sys.stderr, flush=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def start(stack, command, log_path):
    """Starts a child with its standard output piped here, and ends it when the stack unwinds."""
    log = stack.enter_context(open(log_path, "w"))
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    stack.callback(end, child)
    return child


def end(child):
    """SIGTERM, then SIGKILL if that does not help; returns the exit status."""
    child.terminate()
    try:
        return child.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def start_llama(stack, log_path, *flags):
    """Starts a llama.cpp server and returns its port."""
    python, model = os.environ["INFERWATCH_LLAMA_PYTHON"], os.environ["INFERWATCH_LLAMA_MODEL"]
    script = pathlib.Path(__file__).with_name("llama-server.py")
    server = start(stack, [python, script, "--model", model, *flags], log_path)
    word, _, port = server.stdout.readline().partition(" ")
    if word != "ready":
        raise SystemExit(f"demo: llama.cpp did not start; the end of {log_path}:\n{tail(log_path)}")
    return int(port)


def tail(path):
    return "".join(pathlib.Path(path).read_text(errors="replace").splitlines(keepends=True)[-10:])


class Proxy:
    """A running `inferwatch proxy`; shows each line that it writes, and keeps it."""

    def __init__(self, stack, binary, upstream_port, log_path, captions):
        self.port = free_port()
        self.captions = captions
        self.lines = []
        self.changed = threading.Condition()
        listen = f"127.0.0.1:{self.port}"
        command = [binary, "proxy", f"127.0.0.1:{upstream_port}", "--listen", listen, "--log", "-"]
        self.child = start(stack, command, log_path)
        self.reader = threading.Thread(target=self.read_lines, daemon=True)
        self.reader.start()
        self.wait_until_listening(log_path)

    def read_lines(self):
        for text in self.child.stdout:
            fields = json.loads(text)
            caption = self.captions.get(fields.get("id"), fields.get("kind"))
            # In one piece: two proxies write at once.
            print(f"\n# {caption}\n{text}", end="", flush=True)
            with self.changed:
                self.lines.append(fields)
                self.changed.notify_all()

    def wait_until_listening(self, log_path):
        deadline = time.monotonic() + START_WAIT_S
        while time.monotonic() < deadline and self.child.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            time.sleep(0.02)
        raise SystemExit(f"demo: the proxy did not start; it said:\n{tail(log_path)}")

    def requests(self):
        return [fields for fields in self.lines if fields.get("kind") == "request"]

    def line_of(self, request_id):
        """The line of one request, waited for; `None` if it does not come."""
        def find():
            return next((line for line in self.requests() if line.get("id") == request_id), None)

        with self.changed:
            return self.changed.wait_for(find, LINE_WAIT_S) or None

    def stop(self):
        """Ends the proxy as systemd would; returns its exit status, with every line read."""
        status = end(self.child)
        self.reader.join(LINE_WAIT_S)
        return status


class Demo:
    """Sends requests, and keeps count of what should have a line and of what is wrong."""

    def __init__(self):
        self.captions = {}
        self.complaints = []

    def send(self, proxy, name, caption, path, body, events=None):
        """One request with its name as its id; leaves after `events` stream events, if given."""
        self.captions[name] = f"{name}: {caption}"
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=START_WAIT_S)
        headers = {"Content-Type": "application/json", "X-Request-Id": name}
        connection.request("POST", path, json.dumps(body), headers)
        with contextlib.closing(connection), connection.getresponse() as response:
            if events is None:
                response.read()
                return
            for line in response:
                events -= line.startswith(b"data:")
                if events == 0:
                    return

    def expect(self, proxy, name, **expected):
        """Waits for a request's line, and notes where it is not as expected."""
        fields = proxy.line_of(name)
        if fields is None:
            self.complaints.append(f"{name}: no line")
            return
        for key, value in expected.items():
            if fields.get(key) != value:
                self.complaints.append(f"{name}: {key} is {fields.get(key)!r}, not {value!r}")

    def settle(self, proxies):
        """Stops the proxies and compares what they wrote with what was sent."""
        for status in [proxy.stop() for proxy in proxies]:
            if status != 0:
                self.complaints.append(f"a proxy ended with status {status}")
        sent = sorted(self.captions)
        written = sorted(str(line.get("id")) for proxy in proxies for line in proxy.requests())
        print(f"\n# {len(sent)} requests sent, {len(written)} request lines written", flush=True)
        if written != sent:
            self.complaints.append(f"sent {sent}, but lines for {written}")


def chat(messages, max_tokens, **more):
    return {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **more}


CHAT = "/v1/chat/completions"


def one_at_a_time(demo, proxy):
    demo.send(proxy, "chat", "prefill_ms evaluated prompt_tokens; the rest of generate_ms made "
              "completion_tokens.", CHAT, chat(QUESTION, 32))
    demo.expect(proxy, "chat", outcome="ok", status=200)
    demo.send(proxy, "repeat", "the same again: cache_hit, and prefill_ms falls, because "
              "cached_tokens were not evaluated.", CHAT, chat(QUESTION, 32))
    demo.expect(proxy, "repeat", outcome="ok", status=200, cache_hit=True)
    demo.send(proxy, "stream", "ttft_ms is the first token, not the first byte; "
              "decode_tokens_per_s is measured here.", CHAT, chat(STORY, 48, stream=True))
    demo.expect(proxy, "stream", outcome="ok", status=200, finish="length")
    demo.send(proxy, "overflow", "a prompt beyond the slot's context: the server's own 400.",
              CHAT, chat([{"role": "user", "content": "word " * 3000}], 8))
    demo.expect(proxy, "overflow", outcome="rejected", status=400, upstream_status=400)
    demo.send(proxy, "abort", "the client left in mid-stream: status 499, though the server had "
              "answered 200.", CHAT, chat(STORY, 400, stream=True), events=8)
    demo.expect(proxy, "abort", outcome="client_closed", status=499, upstream_status=200)


def three_at_once(demo, proxy):
    names = ["burst-1", "burst-2", "burst-3"]
    caption = "three streams on two slots: the one that had to wait says so in queue_ms."
    body = chat(STORY, 64, stream=True)
    threads = [threading.Thread(target=demo.send, args=(proxy, name, caption, CHAT, body))
               for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        demo.expect(proxy, name, outcome="ok", status=200, stream=True)


def embeddings(demo, proxy):
    inputs = ["the run queue fills", "memory walks toward its limit", "the kernel steps in"]
    demo.send(proxy, "embed", "an encoder fills encode_ms, and batch counts the inputs.",
              "/v1/embeddings", {"input": inputs})
    demo.expect(proxy, "embed", outcome="ok", status=200, batch=len(inputs), completion_tokens=None)


def run(binary, logs):
    demo = Demo()
    with contextlib.ExitStack() as stack:
        say("starting two llama.cpp servers (generator, encoder), about 200 MB of memory each")
        generator = start_llama(stack, logs / "generator.log", "--slots", "2", "--ctx", "2048")
        encoder = start_llama(stack, logs / "encoder.log", "--slots", "1", "--embeddings")
        say("starting a proxy in front of each; the requests take about 10 s")
        proxies = [Proxy(stack, binary, port, logs / f"proxy-{name}.log", demo.captions)
                   for name, port in (("generator", generator), ("encoder", encoder))]
        one_at_a_time(demo, proxies[0])
        three_at_once(demo, proxies[0])
        embeddings(demo, proxies[1])
        demo.settle(proxies)
    for complaint in demo.complaints:
        say(f"FAILED: {complaint}")
    return 1 if demo.complaints else 0


def main():
    # Unwinds like an exception, so that the children are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    logs = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "demo"
    logs.mkdir(parents=True, exist_ok=True)
    sys.exit(run(sys.argv[1], logs))


main()
