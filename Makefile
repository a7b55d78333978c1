# Everything a person or the gate runs. Each target installs what it needs and lacks.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help

export CARGO_INCREMENTAL := 0
export CARGO_TARGET_DIR ?= $(CURDIR)/target
STATIC_TARGET := x86_64-unknown-linux-gnu
STATIC_BINARY := $(CARGO_TARGET_DIR)/$(STATIC_TARGET)/release/inferwatch
STATIC_MAX_BYTES := 8388608

# Says how long a step took, also when it failed.
timed = echo "== $@"; TIMEFORMAT="== $@: %0R s"; time
# Not `eval "$(...)"`: that would hide a failure.
with_llama = env=$$(scripts/llama-venv.sh); eval "$$env"

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## real llama.cpp behind the proxy, real requests, one line for each
	@scripts/apt-need.sh cc=gcc python3=python3
	@echo "demo: building the release binary; the first time takes a few minutes" >&2
	@cargo build --locked --release -p inferwatch
	@$(with_llama); python3 scripts/demo.py $(CARGO_TARGET_DIR)/release/inferwatch

.PHONY: test
test: fmt lint unit demo-check doc fuzz-smoke ## all that the gate runs

.PHONY: fmt
fmt:
	@$(timed) cargo fmt --all --check
	@cargo fmt --manifest-path fuzz/Cargo.toml --check

.PHONY: lint
lint:
	@scripts/apt-need.sh cc=gcc
	@$(timed) cargo clippy --locked --workspace --all-targets -- -D warnings

.PHONY: unit
unit:
	@$(with_llama); $(timed) cargo test --locked --workspace --no-fail-fast

# The demo with the debug binary that the tests have just built.
.PHONY: demo-check
demo-check: unit
	@$(with_llama); $(timed) python3 scripts/demo.py $(CARGO_TARGET_DIR)/debug/inferwatch | tail -n 1

.PHONY: doc
doc:
	@RUSTDOCFLAGS="-D warnings" $(timed) cargo doc --locked --workspace --no-deps

.PHONY: fuzz-smoke
fuzz-smoke: ## every fuzz target for 20 s
	@$(timed) scripts/fuzz.sh 20

.PHONY: fuzz
fuzz: ## every fuzz target for ten minutes
	@$(timed) scripts/fuzz.sh 600

# Without advisories: their database is a git repository that cannot be fetched everywhere.
.PHONY: deny
deny: ## licences, bans and sources of every dependency
	@cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked --version 0.20.2
	@cargo deny --locked check licenses bans sources

.PHONY: release
release: ## one static binary, at most 8 MB
	@scripts/apt-need.sh cc=gcc
	@RUSTFLAGS="-C target-feature=+crt-static" \
		cargo build --locked --release --target $(STATIC_TARGET) -p inferwatch
	@ldd $(STATIC_BINARY) 2>&1 | grep -Eq 'statically linked|not a dynamic executable' \
		|| { echo "not static: $(STATIC_BINARY)" >&2; exit 1; }
	@bytes=$$(stat -c %s $(STATIC_BINARY)); echo "$(STATIC_BINARY): static, $$bytes bytes"; \
		((bytes <= $(STATIC_MAX_BYTES))) || { echo "over $(STATIC_MAX_BYTES) bytes" >&2; exit 1; }

.PHONY: bench
bench: ## beside direct, nginx and haproxy, in the same run
	@python3 scripts/bench.py

.PHONY: clean
clean: ## what was built; the cached model server stays
	@cargo clean
	@rm -rf fuzz/corpus fuzz/artifacts
