"""LiteLLM from PyPI, once and short: a proxy of another weight class, for scale only."""

import os
import pathlib
import subprocess
import sys

VERSION = "1.80.5"
INSTALL_LIMIT_S = 900
SIZES = {"chat_16_requests": 400, "chat_1_requests": 200, "starts": 1}
# Not those whose events it would write anew, nor the large body that it would parse.
MEASURES = ["chat_16", "chat_1", "streams_64", "start"]
NAMES = ["direct", "ours", "litellm"]


def once(bed, one_round):
    """Its figures beside those of no proxy and of ours, or why there are none."""
    try:
        bed.subjects.litellm = install()
        bed.sizes = {**bed.sizes, **SIZES}
        figures = one_round(bed, 0, MEASURES, NAMES)
    except (subprocess.SubprocessError, OSError, SystemExit) as trouble:
        return {"version": VERSION, "error": str(trouble)}
    return {"version": VERSION, "subjects": NAMES, "sizes": SIZES, **figures}


def install():
    """The command, in a virtual environment that is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    cache = pathlib.Path(os.environ.get("INFERWATCH_CACHE") or pathlib.Path(home) / "inferwatch")
    venv = cache / f"litellm-{VERSION}"
    if not (venv / "complete").exists():
        print(f"bench: installing LiteLLM {VERSION} into {venv}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"litellm[proxy]=={VERSION}"], check=True, timeout=INSTALL_LIMIT_S)
        (venv / "complete").touch()
    return venv / "bin/litellm"
