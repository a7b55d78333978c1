#!/usr/bin/env bash
# Runs every fuzz target for so many seconds, on seeds from the recordings: fuzz.sh SECONDS.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=$1
# Apart from the rest, since every crate is built again with instrumentation.
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
# Sanitizers are a nightly feature; this lets the stable compiler at hand have them.
export RUSTC_BOOTSTRAP=1

scripts/apt-need.sh c++=g++
cargo fuzz --version >/dev/null 2>&1 || cargo install cargo-fuzz --locked --version 0.13.2
if [ -x fuzz/seed.sh ]; then fuzz/seed.sh; fi
cargo fuzz build --fuzz-dir fuzz --target-dir "$target_dir"

targets=$(cargo fuzz list --fuzz-dir fuzz)
for target in $targets; do
    log=$target_dir/$target.log
    if ! cargo fuzz run --fuzz-dir fuzz --target-dir "$target_dir" "$target" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "fuzz $target: FAILED; the input is in fuzz/artifacts/$target"
        exit 1
    fi
    echo "fuzz $target: $(grep -E '^Done [0-9]+ runs' "$log")"
done
