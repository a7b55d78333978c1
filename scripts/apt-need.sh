#!/usr/bin/env bash
# Installs the Debian packages whose commands are missing: apt-need.sh COMMAND=PACKAGE...
set -euo pipefail

missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
done
((${#missing[@]})) || exit 0
echo "installing ${missing[*]}" >&2
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
