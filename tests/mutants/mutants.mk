# Mutation testing: the rules are changed in one place at a time, and the unit tests have to notice it.
.PHONY: mutants
PACKAGES ?=
mutants: ## changes the rules of the services in one place at a time; the tests must notice 90 % of the changes
	@command -v cc >/dev/null || .ci/setup
	tests/mutants/mutants $(PACKAGES)
