# Faults under load: the services and PostgreSQL as children of one program that kills them.
.PHONY: chaos
SEED ?= 1
SEEDS ?= 10
chaos: ## kills, cuts and delays under load, then checks the invariants; SEED=7 SEEDS=1 repeats one
	@.ci/setup
	$(CARGO) build --release --locked --workspace --bins --features ensemble-chassis/jemalloc
	./target/release/ensemble-chaos --seed $(SEED) --seeds $(SEEDS)
