# The benchmark: release builds beside pgbench and nginx, on one machine, in one run.
.PHONY: bench
bench: ## load against the release services beside pgbench and nginx; ROWS="append edge" measures only those
	@.ci/setup wrk nginx slowhttptest
	$(CARGO) build --release --locked --workspace --bins --features ensemble-chassis/jemalloc
	./target/release/with-postgres --durable ./target/release/ensemble-bench $(ROWS)

.PHONY: bench-page
bench-page: web ## how soon the page is ready, in a real browser beside the release program
	$(CARGO) build --release --locked -p ensemble-cli -p ensemble-bench --features ensemble-cli/jemalloc
	ENSEMBLE=$(CURDIR)/target/release/ensemble ENSEMBLE_BENCH=$(CURDIR)/target/release/ensemble-bench node web/tests/bench/ready.mjs
