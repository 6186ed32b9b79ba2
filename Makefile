# How to run, test and measure Stockade. `make` alone lists the targets; CI calls the same ones.
#
# REDIS_URL, LOCK_URLS, DATABASE_URL and the STOCKADE_* settings reach `make up` from the environment or as `make up REDIS_URL=...`.

DIR ?= .stockade
LISTEN ?=
HOST ?=
REQUESTS ?= 100000
STOCK ?= 10000
MIX ?= rush=40,retry-storm=20,limit-abusers=10,window-shoppers=10,whole-life=10,returns=10
MIX_STOCK ?= 1000
BOUND_MS ?= 50
SEQUENCES ?= 300000
SEED ?= 7
FAULTS ?= 100
ARGS ?=

TARGET := $(or $(CARGO_TARGET_DIR),target)
# Stockade has every backend of the lock but etcd's, which needs protoc to be built; `make test` installs it.
LOCK_FEATURES = $(if $(shell command -v protoc 2>/dev/null),--features stockade/etcd)
# Where nobody watches, Cargo.lock must already say what is built.
CARGO_FLAGS := $(if $(CI),--locked)

# rustup installs here; a shell that was open before does not know yet.
ifeq (,$(shell command -v cargo 2>/dev/null))
export PATH := $(HOME)/.cargo/bin:$(PATH)
endif

export DIR HOST CARGO_FLAGS LOCK_FEATURES

.DEFAULT_GOAL := help
.PHONY: help up test soak lint model chaos postmortem rush load capacity bench bench-lock fmt doc

help:
	@echo 'usage: make TARGET [VARIABLE=value ...]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'up     DIR=$(DIR) keeps its data; LISTEN=127.0.0.1:8080 is where it serves; with REDIS_URL, LOCK_URLS'
	@echo '       and DATABASE_URL it uses your servers instead of private ones'
	@echo 'test   ARGS="-p stock" tests one crate'
	@echo 'soak   SEQUENCES=$(SEQUENCES); STOCKADE_SEED=... begins where a failure was found'
	@echo 'chaos  SEED=$(SEED) decides everything, FAULTS=$(FAULTS); ARGS="--only redis-cut,ledger-cut --stages server" and so on'
	@echo 'rush   HOST=http://... aims elsewhere; REQUESTS=$(REQUESTS) STOCK=$(STOCK); ARGS="--users 64" and so on'
	@echo 'load   MIX=returns alone, or MIX=rush=60,retry-storm=40 weighted; MIX_STOCK=$(MIX_STOCK) of each item; the rest as rush'
	@echo 'bench  ARGS="--only P1,P2 --repeats 3 --seconds 5 --connections 1024"; exits 1 if a goal is not met; wants a machine that does nothing else'
	@echo 'capacity  BOUND_MS=$(BOUND_MS); HOST=http://... aims elsewhere; ARGS="--step-seconds 10" and so on'

up: ## try it: installs what is missing, starts everything, opens a demo item and serves until Ctrl-C
	@scripts/setup.sh run
	cargo build --release -p stockade $(CARGO_FLAGS)
	@exec '$(TARGET)/release/stockade' up --dir '$(DIR)' $(if $(LISTEN),--listen '$(LISTEN)')

test: ## the whole suite, on real servers (Redis, Redis Cluster, PostgreSQL, MariaDB, etcd, ZooKeeper)
	@scripts/setup.sh test
	@scripts/test.sh $(ARGS)

soak: ## random sequences of everything that happens to stock, on real Redis and on a model (the suite plays 10000)
	@REDIS_URL= scripts/setup.sh run
	STOCKADE_SEQUENCES=$(SEQUENCES) cargo test -p stock --test it $(CARGO_FLAGS) -- --nocapture the_scripts_and_their_model_agree

lint: ## format, clippy, docs, licences: what a change must pass besides the tests
	@scripts/setup.sh lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets $(LOCK_FEATURES) $(CARGO_FLAGS) -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps $(LOCK_FEATURES) $(CARGO_FLAGS)
	@if cargo deny --version >/dev/null 2>&1; then \
	  echo 'cargo deny check licenses bans sources' && cargo deny check licenses bans sources; \
	else \
	  echo 'SKIPPED: cargo deny (licences, bans, sources): `cargo install --locked cargo-deny` brings it'; \
	fi
	@if command -v shellcheck >/dev/null 2>&1; then \
	  echo 'shellcheck scripts/*.sh .ci/run' && shellcheck scripts/*.sh .ci/run; \
	else \
	  echo 'SKIPPED: shellcheck: not installed'; \
	fi

rush: ## a flash sale: a crowd of buyers against `make up`, or against one started for it
	@scripts/load.sh rush --requests '$(REQUESTS)' --stock '$(STOCK)' $(ARGS)

load: ## several crowds at once: they storm, abuse limits, look, pay, cancel, forget, return; against what `make rush` finds
	@scripts/load.sh run --mix '$(MIX)' --requests '$(REQUESTS)' --stock '$(MIX_STOCK)' $(ARGS)

capacity: ## the highest rate of orders at which p99 stays within BOUND_MS, open loop; a table, and a chart in target/capacity
	@scripts/load.sh capacity --bound-ms '$(BOUND_MS)' $(ARGS)

bench: ## every performance goal beside its baseline, measured in turn: one table of ratios, and target/bench/results.json
	@scripts/setup.sh bench
	cargo build --release -p stockade -p bench $(CARGO_FLAGS)
	@'$(TARGET)/release/bench' $(ARGS)

bench-lock: ## what a lock costs: one table, every backend, rslock and the hand-written ones (stockade locks compare --faults off)
	@scripts/setup.sh test
	@scripts/bench_lock.sh $(ARGS)

model: ## the lock's protocol, every interleaving, at a size that takes minutes (the suite checks a smaller one)
	@scripts/setup.sh build
	cargo test -p lock --test it $(CARGO_FLAGS) -- --ignored --nocapture the_ballot_is_sound_at_a_larger_size

chaos: ## breaks everything that Stockade runs on, in the middle of a rush, and proves that nothing was lost, oversold or stranded
	@scripts/setup.sh test
	cargo build --release -p stockade -p chaos $(CARGO_FLAGS)
	@'$(TARGET)/release/chaos' --seed '$(SEED)' --faults '$(FAULTS)' --out target/chaos $(ARGS)

postmortem: ## the lab: every oversell post-mortem on real servers, the way that failed and each remedy; a page in target/postmortem
	@scripts/setup.sh test
	cargo build --release -p stockade $(CARGO_FLAGS)
	@'$(TARGET)/release/stockade' postmortem --all --report target/postmortem $(ARGS)

fmt: ## format the code
	cargo fmt --all

doc: ## build the API docs of all crates
	cargo doc --workspace --no-deps $(CARGO_FLAGS)
