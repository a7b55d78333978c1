"""Child processes that end with the benchmark, and what /proc says of them."""

import contextlib
import glob
import pathlib
import socket
import subprocess
import time

START_WAIT_S = 120
STOP_WAIT_S = 40
CONNECT_PAUSE_S = 0.0002


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(command, port, out_path):
    """A child that listens on `port`; yields it when it does, and how long that took in ms."""
    with open(out_path, "ab") as out:
        begun = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 close_fds=False)
    try:
        wait_until_listening(child, port, out_path)
        yield child, (time.monotonic() - begun) * 1000
    finally:
        end(child)


def wait_until_listening(child, port, out_path):
    deadline = time.monotonic() + START_WAIT_S
    while time.monotonic() < deadline and child.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        time.sleep(CONNECT_PAUSE_S)
    said = pathlib.Path(out_path).read_text(errors="replace")[-2000:]
    raise SystemExit(f"bench: {child.args[0]} did not start; it said:\n{said}")


def end(child):
    child.terminate()
    try:
        child.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def tree(pid):
    """The process and its descendants."""
    pids = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        for child in pathlib.Path(path).read_text().split():
            pids += tree(int(child))
    return pids


def cpu_us(pid):
    """CPU time of every thread of the tree, from the scheduler's nanoseconds."""
    paths = [path for one in tree(pid) for path in glob.glob(f"/proc/{one}/task/*/schedstat")]
    return sum(int(pathlib.Path(path).read_text().split()[0]) for path in paths) / 1000


def memory_mb(pid, key="VmRSS:"):
    """Resident memory of the tree in MiB; `VmHWM:` is its peak."""
    return sum(kib(f"/proc/{one}/status", key) for one in tree(pid)) / 1024


def pss_mb(pid):
    """Resident memory with shared pages shared out: what a master's and worker's really take."""
    return sum(kib(f"/proc/{one}/smaps_rollup", "Pss:") for one in tree(pid)) / 1024


def kib(path, key):
    lines = pathlib.Path(path).read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def forget_peak(pid):
    for one in tree(pid):
        pathlib.Path(f"/proc/{one}/clear_refs").write_text("5")
