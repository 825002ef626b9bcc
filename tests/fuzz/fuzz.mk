# Fuzzing: of the parsers with cargo-fuzz, of the interface with Schemathesis.
.PHONY: fuzz fuzz-api
FUZZ_SECONDS ?= 60
# No sanitizer: our code has no `unsafe`, and without one the fuzzer sees several times as many inputs.
CARGO_FUZZ := $(CARGO) +nightly fuzz run --fuzz-dir . --sanitizer none
fuzz: ## drives every parser of outside input with cargo-fuzz (nightly) for FUZZ_SECONDS each
	@.ci/setup
	@$(CARGO) +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	@# The very versions that the product has.
	@cp Cargo.lock tests/fuzz/cargo-fuzz/Cargo.lock
	cd tests/fuzz/cargo-fuzz && for target in $$($(CARGO) +nightly fuzz list --fuzz-dir .); do \
	  mkdir -p ../../../.cache/fuzz/$$target; \
	  $(CARGO_FUZZ) $$target ../../../.cache/fuzz/$$target ../corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 || exit 1; done

FUZZ_CASES ?= 20000
fuzz-api: ## Schemathesis with all checks against the running edge and its OpenAPI document
	@.ci/setup
	$(CARGO) build --release --locked -p ensemble-cli -p ensemble-doubles --bins
	tests/fuzz/fuzz-api $(FUZZ_CASES)
