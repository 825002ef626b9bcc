# Fuzzing: of the parsers with cargo-fuzz, of the interface with Schemathesis.
.PHONY: fuzz fuzz-api
FUZZ_SECONDS ?= 60
fuzz: ## drives every parser of outside input with cargo-fuzz (nightly) for FUZZ_SECONDS each
	@cargo fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	cd tests/fuzz/cargo-fuzz && for target in $$(cargo +nightly fuzz list --fuzz-dir .); do \
	  cargo +nightly fuzz run --fuzz-dir . $$target ../corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 || exit 1; done

FUZZ_CASES ?= 20000
fuzz-api: ## Schemathesis with all checks against the running edge and its OpenAPI document
	@.ci/setup
	$(CARGO) build --release --locked -p ensemble-cli
	tests/fuzz/fuzz-api $(FUZZ_CASES)
