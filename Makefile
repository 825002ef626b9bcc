# The commands that people and the continuous integration use. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
CACHE := .cache
# Clippy's compiler in place of the plain one, for the crates of the workspace: one pass lints and builds. What it builds is
# for tests only, because it leaves out an optimisation (docs/BUILD.md).
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__

.PHONY: help setup run test lint docs-check openapi proto bench fuzz-api fuzz chaos mutants

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

setup: ## installs what the tests need (Debian and Ubuntu as root; elsewhere it names what is missing)
	@.ci/setup

run: ## builds and starts everything on http://127.0.0.1:8080
	@command -v cc >/dev/null || .ci/setup
	ENSEMBLE_BUILD_WEB=1 $(CARGO) build --profile quick --locked -p ensemble-cli
	./target/quick/ensemble up

test: setup web ## everything, on SQLite and on a private PostgreSQL; FILTER="session-store api" runs only those programs
	$(LINTED) $(CARGO) build --locked --workspace --all-targets
	$(LINTED) ./target/debug/with-postgres .ci/suite "$(FILTER)"

lint: web-check ## formatting, clippy, rules of the repository and its dependencies
	@command -v cc >/dev/null || .ci/setup
	$(CARGO) fmt --check
	$(LINTED) $(CARGO) build --locked --workspace --all-targets
	$(LINTED) .ci/suite tidy

docs-check: ## links in the documentation of the code; the workflow runs it once a day
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --locked --workspace --no-deps --quiet

openapi: ## writes docs/openapi.json from the route tables
	$(CARGO) run --locked -q -p ensemble-all-in-one --bin write-openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

proto: ## writes crates/rpc/src/generated from the contracts in proto/
	$(CARGO) run --locked -q --manifest-path proto/generate/Cargo.toml --target-dir $(CACHE)/proto

-include deploy/voice-agent/voice.mk deploy/deploy.mk tests/bench/bench.mk tests/bench/chaos.mk tests/fuzz/fuzz.mk tests/interface/interface.mk \
	tests/mutants/mutants.mk web/web.mk
