# The benchmark: release builds against pgbench and nginx, on one machine, in one run.
BENCH := ./target/release/with-postgres --durable ./target/release/ensemble-bench
# The figures of the release before. `make bench-last` writes them.
BENCH_LAST := tests/bench/last.json
# Four minutes together, in two rounds of two seconds.
BENCH_QUICK := append history lists runs run-latency voice live-latency edge

.PHONY: bench bench-quick bench-last bench-build
bench: bench-build ## load on the release services, compared with pgbench and nginx; ROWS="append edge" measures only those
	$(BENCH) $(ROWS)

bench-quick: bench-build ## four minutes of the benchmark, compared with the release before; says what became slower, and does not fail for it
	$(BENCH) --rounds 2 --seconds 2 --before $(BENCH_LAST) $(BENCH_QUICK)

bench-last: bench-build ## for a release: the whole benchmark, whose figures bench-quick compares with; ROWS="append edge" renews only those
	$(BENCH) --write $(BENCH_LAST) $(ROWS)

bench-build:
	@.ci/setup wrk nginx slowhttptest
	$(CARGO) build --release --locked --workspace --bins --features ensemble-chassis/jemalloc

.PHONY: bench-page
bench-page: web ## how soon the page is ready, in a real browser on the machine of the release program
	$(CARGO) build --release --locked -p ensemble-cli -p ensemble-bench --features ensemble-cli/jemalloc
	ENSEMBLE=$(CURDIR)/target/release/ensemble ENSEMBLE_BENCH=$(CURDIR)/target/release/ensemble-bench node web/tests/bench/ready.mjs
