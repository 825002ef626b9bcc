# The benchmark: release builds beside pgbench and nginx, on one machine, in one run.
.PHONY: bench
bench: ## load against the release services beside pgbench and nginx; ROWS="append edge" measures only those
	@.ci/setup wrk nginx slowhttptest
	$(CARGO) build --release --locked --workspace --bins
	./target/release/with-postgres --durable ./target/release/ensemble-bench $(ROWS)
