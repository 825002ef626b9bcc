# The interface in the hands of programs that others wrote: validators, generators, a fuzzer.
.PHONY: interface-test
interface-test: ## validates docs/openapi.json, generates clients from it and runs them (needs Go and Java too)
	@.ci/setup
	$(CARGO) build --locked -p ensemble-cli -p ensemble-doubles --bins
	tests/interface/check
	FUZZ_BIN=target/debug FUZZ_EACH=10 tests/fuzz/fuzz-api 1000
