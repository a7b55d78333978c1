#!/bin/sh
# Makes the seeds of every target from the recordings: an empty line (cut at every byte), then the body.
set -eu
cd "$(dirname "$0")"
recordings=../crates/inferwatch-proxy/tests/recordings

# seed TARGET FILE: takes the head off a recorded exchange.
seed() {
    name=$(echo "$2" | tr '/' '_' | tr -d '.')
    { echo; sed '1,/^\r$/d' "$2"; } >"corpus/$1/$name"
}

for target in json sse ndjson gzip request observer; do
    mkdir -p "corpus/$target"
done
find "$recordings" -name '*.response.http' -size -40k | while read -r file; do
    for target in json sse ndjson gzip observer; do
        seed "$target" "$file"
    done
done
find "$recordings" -name '*.request.http' -size -40k | while read -r file; do
    seed request "$file"
done
