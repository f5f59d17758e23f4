# The commands of this checkout. `make demo` and `make test` work on a fresh Debian 12; each says what it installs.
.DEFAULT_GOAL := help
.PHONY: help setup demo test conformance bench soak lint docs clean
bin := .venv/bin

help: ## what there is
	@sed -n 's/^\([a-z]*\):[^#]*## /  make \1\t/p' Makefile | expand -t 20

setup: ## system packages, .venv (host) and .guest (torch, triton)
	@scripts/setup.sh

demo: setup ## one search on this machine, then its leaderboard and its replay
	@scripts/demo.sh

test: lint ## lint, then every test but the conformance suite
	$(bin)/pytest -m "not conformance" $(PYTEST_ARGS)

conformance: setup ## hostile and cheating candidates against every sandbox that this machine has
	$(bin)/pytest -m conformance $(PYTEST_ARGS)

bench: setup ## what containers cost here: medians and ratios of one run
	$(bin)/python scripts/bench.py $(BENCH_ARGS)

soak: setup ## the long suites: fuzzing; killed runners, deadlines, many candidates, on both engines (hours)
	$(bin)/python scripts/fuzz.py $(SOAK_ARGS)
	for engine in docker bwrap; do for part in kills deadlines candidates; do \
	  $(bin)/python scripts/soak.py $$part --engine $$engine --out docs/evidence/soak-$$part-$$engine.json || exit 1; done; done

lint: setup ## ruff, mypy strict, import contracts
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/mypy scripts/*.py
	$(bin)/lint-imports --no-cache

docs: setup ## regenerate the reference pages in docs/ from the program
	$(bin)/python scripts/generate_docs.py

clean: ## remove both environments and every cache (never the log in .assay)
	rm -rf .venv .guest .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
