# The two commands: `make demo` runs the main job, `make test` runs all tests. `make help` lists the rest.
# Set-up happens by itself, idempotently, into the user's cache directory. Demo and tests share one profile; only the
# benchmark builds for release, and only images for size.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export FORGE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/forge
export CARGO_TARGET_DIR := $(FORGE_CACHE)/target
export CARGO_TERM_COLOR ?= auto
# The slice of random cases that tests run is the same everywhere; `make soak` takes others.
test check cluster: export PROPTEST_RNG_SEED ?= 20260101
TOOLS := $(FORGE_CACHE)/tools
FORGE := $(CARGO_TARGET_DIR)/debug/forge
EXAMPLE := examples/platform
SETUP := tools/setup
ON_CLUSTERS := --test cluster --test lua --test platform --test runs
BENCH_BUILD := cargo build --release --locked -p forge -p forge-sandbox -p forge-testkit --bin forge --bin forge-sandbox

.PHONY: help
help: ## List what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: build
build: ## Build everything once
	@$(SETUP) rust
	@tools/stamps cargo build --workspace --all-targets --locked

.PHONY: demo
demo: build ## Show the main job on the example platform: simulated, then on a sandbox (root)
	@FORGE=$(FORGE) EXAMPLE=$(EXAMPLE) tools/demo

.PHONY: check
check: build ## Everything that needs no cluster: format, lints, licences, tests
	@cargo fmt --all --check
	@tools/stamps cargo clippy --workspace --all-targets --locked -- -D warnings
	@tools/stamps cargo clippy --workspace $(ON_CLUSTERS) --locked -- -D warnings
	@tools/stamps cargo test --workspace --locked --no-run
	@tools/stamps cargo test --workspace $(ON_CLUSTERS) --locked --no-run
	@tools/deny
	@tools/ansible-lint
	@$(SETUP) crds
	@cargo test --workspace --locked --quiet
	@cd sandbox/services && CGO_ENABLED=0 go vet . && CGO_ENABLED=0 go test .
	@cd sandbox/oci-client && CGO_ENABLED=0 go vet . && CGO_ENABLED=0 go test .

.PHONY: cluster
cluster: build ## Only the tests that need a cluster, on a sandbox of their own (root)
	@tools/stamps cargo test --workspace $(ON_CLUSTERS) --locked --no-run
	@tools/cluster $(FILTER)

.PHONY: test
test: check cluster ## All tests

.PHONY: bench
bench: ## What operations and runs cost, side by side with what people use today (root, over an hour)
	@$(SETUP) rust kubeconform
	@$(BENCH_BUILD) --bin bench --bin bench-run
	@$(CARGO_TARGET_DIR)/release/bench $(CARGO_TARGET_DIR)/release/forge $(TOOLS)/bin/kubeconform
	@tools/bench-run

.PHONY: bench-run
bench-run: ## Only what runs and refreshes cost, on the real Argo; FORGE_BENCH_SIZES=100 and others choose, see bench-run.rs
	@$(SETUP) rust
	@$(BENCH_BUILD) --bin bench-run
	@tools/bench-run

.PHONY: image
image: ## The executor's and the plugin's image for amd64 and arm64; CHECK=1 builds them twice and runs both, see tools/image
	@tools/image $(if $(CHECK),--check)

.PHONY: soak
soak: build ## Long random campaigns; PARTS="order kill" chooses, SEED=n replays; see tools/soak for lengths
	@tools/stamps cargo test --workspace --locked --no-run
	@tools/stamps cargo test --workspace $(ON_CLUSTERS) --locked --no-run
	@tools/soak

.PHONY: fuzz
fuzz: ## Every fuzz target for SECONDS_EACH seconds (60)
	@$(SETUP) fuzz
	@tools/fuzz

.PHONY: bless
bless: build ## Write again what is generated: example, schemas, CLI reference, golden cases
	@$(CARGO_TARGET_DIR)/debug/example $(EXAMPLE)
	@tools/stamps cargo test --workspace --locked --no-run
	@UPDATE_GOLDEN=1 cargo test --workspace --locked --quiet

.PHONY: clean
clean: ## Remove what was built, not the tools
	@rm -rf $(CARGO_TARGET_DIR)
