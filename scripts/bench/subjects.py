"""What is measured: how each proxy is configured and started, and how its version is known."""

import contextlib
import dataclasses
import pathlib
import string
import subprocess
import tempfile

from bench import processes

HERE = pathlib.Path(__file__).parent
PROXIES = ["ours", "nginx", "haproxy"]


@dataclasses.dataclass
class Running:
    """A proxy in front of an upstream; `pid` is None for no proxy at all."""

    port: int
    pid: int | None = None
    start_ms: float | None = None
    log: pathlib.Path | None = None

    def lines_count(self):
        return self.log.read_bytes().count(b"\n")


class Subjects:
    """Starts the proxies by name."""

    def __init__(self, binary, litellm=None):
        self.binary = binary
        self.litellm = litellm

    @contextlib.contextmanager
    def start(self, name, upstream_port):
        """Puts the proxy of this name in front of the upstream, with a new access log."""
        if name == "direct":
            yield Running(upstream_port)
            return
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            folder, port = pathlib.Path(folder), processes.free_port()
            # nginx gives up its rights and has to enter.
            folder.chmod(0o755)
            out, log = folder / "out.log", folder / "access.log"
            # haproxy's lines are its standard output.
            log = out if name == "haproxy" else log
            command = getattr(self, f"{name}_command")(folder, log, port, upstream_port)
            with processes.running(command, port, out) as (child, start_ms):
                yield Running(port, child.pid, start_ms, log)

    def ours_command(self, _, log, port, upstream):
        return [str(self.binary), "proxy", f"127.0.0.1:{upstream}", "--listen", f"127.0.0.1:{port}",
                "--log", str(log)]

    def nginx_command(self, folder, log, port, upstream):
        config = fill("nginx.conf", folder, dir=folder, log=log, port=port, upstream=upstream)
        return ["nginx", "-c", str(config), "-e", str(folder / "nginx-error.log")]

    def haproxy_command(self, folder, _, port, upstream):
        config = fill("haproxy.cfg", folder, port=port, upstream=upstream)
        return ["haproxy", "-db", "-f", str(config)]

    def litellm_command(self, folder, _, port, upstream):
        config = fill("litellm.yaml", folder, upstream=upstream)
        return [str(self.litellm), "--config", str(config), "--host", "127.0.0.1",
                "--port", str(port), "--num_workers", "1"]

    def versions(self):
        ours = said([str(self.binary), "--version"])
        return {"ours": ours, "nginx": said(["nginx", "-v"]), "haproxy": said(["haproxy", "-v"])}


def fill(template, folder, **values):
    path = folder / template
    path.write_text(string.Template((HERE / template).read_text()).substitute(values))
    return path


def said(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).splitlines()[0]
