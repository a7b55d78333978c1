"""Runs llama.cpp's own HTTP server on loopback, for the demo, the tests and the benchmarks.

Prints `ready PORT` on standard output once /health says so; logs go to standard error. Ends on
SIGTERM or SIGINT, and when the process that started it is gone, so that no run leaves one behind.
"""

import argparse
import os
import pathlib
import signal
import time
import urllib.error
import urllib.request

import xllamacpp

HEALTH_TIMEOUT_S = 300
ORPHAN_CHECK_S = 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--port", type=int, default=0, help="0: any free port (default)")
    parser.add_argument("--slots", type=int, default=2, help="requests served at once")
    parser.add_argument("--ctx", type=int, default=2048, help="tokens, shared evenly by the slots")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--embeddings", action="store_true", help="serve embeddings (mean pooling)")
    return parser.parse_args()


def parameters(args):
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    # Else every answer names the model by its whole path.
    params.model_alias = {pathlib.Path(args.model).stem}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.slots
    params.n_ctx = args.ctx
    params.cpuparams.n_threads = args.threads
    params.cpuparams_batch.n_threads = args.threads
    params.endpoint_slots = True
    params.endpoint_metrics = True
    params.offline = True
    params.ui = False
    # The default prompt cache takes up to 8 GiB, on a machine that may have 4.
    params.cache_ram_mib = 64
    if args.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    return params


def wait_until_healthy(address):
    deadline = time.monotonic() + HEALTH_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.05)
    raise SystemExit(f"llama.cpp did not become healthy at {address} in {HEALTH_TIMEOUT_S} s")


def main():
    args = arguments()
    parent = os.getppid()
    ends = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the server's threads exist: they inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    server = xllamacpp.Server(parameters(args))
    wait_until_healthy(server.listening_address)
    print("ready", server.listening_address.rsplit(":", 1)[1], flush=True)
    while signal.sigtimedwait(ends, ORPHAN_CHECK_S) is None and os.getppid() == parent:
        pass
    # Not a return: the server's destructor would wait for a prompt that is still being evaluated.
    os._exit(0)


main()
