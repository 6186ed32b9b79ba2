# How to run, test and measure Stockade. `make` alone lists the targets; CI calls the same ones.
#
# REDIS_URL, LOCK_URLS, DATABASE_URL and the STOCKADE_* settings reach `make up` from the
# environment or as `make up REDIS_URL=...`.

DIR ?= .stockade
LISTEN ?=
HOST ?=
REQUESTS ?= 100000
STOCK ?= 10000
MIX ?= rush=35,retry-storm=15,limit-abusers=10,window-shoppers=10,whole-life=10,returns=10,carts=10
MIX_STOCK ?= 1000
BOUND_MS ?= 50
CROWD ?= 1000000
SEQUENCES ?= 300000
SEED ?= 7
FAULTS ?= 100
PROFILE ?= sentinel
# The older commit that `make upgrade` replaces. Its schema has no sinks, processes or counts of
# requests.
UPGRADE_FROM ?= c53076130ca56ccdff8f45f0ffb6b6f43dda52c1
COMPOSE_STOCK ?= 60000
COMPOSE_FAULTS ?=
ARGS ?=

TARGET := $(or $(CARGO_TARGET_DIR),target)
# In CI, Cargo.lock must already name what is built.
CARGO_FLAGS := $(if $(CI),--locked)
# Each program has a separate cargo run: a joint build would use the union of their features, and
# earlier builds would be repeated.

# rustup installs here, but a shell that was opened before does not have it in PATH.
ifeq (,$(shell command -v cargo 2>/dev/null))
export PATH := $(HOME)/.cargo/bin:$(PATH)
endif

export DIR HOST CARGO_FLAGS PROFILE

.DEFAULT_GOAL := help
.PHONY: help up shop oscar test busy soak lint openapi clients settings api-check model chaos compose upgrade postmortem rush load hostile storm capacity bench growth bench-lock fmt doc book

help:
	@echo 'usage: make TARGET [VARIABLE=value ...]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo 'up     DIR=$(DIR) keeps its data; LISTEN=127.0.0.1:8080 is its address; with REDIS_URL, LOCK_URLS'
	@echo '       and DATABASE_URL it uses your servers instead of private ones'
	@echo 'oscar  STOCKADE_BIN=target/debug/stockade; ARGS="--only plain,conditional"'
	@echo 'test   ARGS="-p stock" tests one crate'
	@echo 'soak   SEQUENCES=$(SEQUENCES); STOCKADE_SEED=... begins where a failure was found'
	@echo 'chaos  SEED=$(SEED) decides everything, FAULTS=$(FAULTS); ARGS="--only redis-cut,ledger-cut --stages server" and so on'
	@echo 'compose  PROFILE=cluster sells from a Redis Cluster; REQUESTS=$(REQUESTS) of a rush; COMPOSE_STOCK=$(COMPOSE_STOCK); COMPOSE_FAULTS="master-kill order-cut"'
	@echo 'rush   HOST=http://... selects another target; REQUESTS=$(REQUESTS) STOCK=$(STOCK); ARGS="--users 64" and so on'
	@echo 'load   MIX=carts alone, or MIX=rush=60,retry-storm=40 weighted; MIX_STOCK=$(MIX_STOCK) of each item; the rest as rush'
	@echo 'storm  CROWD=$(CROWD) buyers of the sold-out item; ARGS="--rounds 3 --hostile 40" and so on'
	@echo 'bench  ARGS="--only P1,P2 --repeats 3 --seconds 5 --connections 1024"; exits 1 if a goal is not met; needs an otherwise idle machine'
	@echo 'growth  ARGS="--items 20000 --orders 10000000 --holds 500000 --ledger postgres,sqlite"; the defaults take some 25 minutes'
	@echo 'capacity  BOUND_MS=$(BOUND_MS); HOST=http://... selects another target; ARGS="--step-seconds 10" and so on'

up: ## start here: install missing programs, start everything with a demo item, and serve until Ctrl-C
	@scripts/setup.sh run
	cargo build --release -p stockade $(CARGO_FLAGS)
	@exec '$(TARGET)/release/stockade' up --dir '$(DIR)' $(if $(LISTEN),--listen '$(LISTEN)')

shop: ## a small shop that sells with the Stockade of `make up`, in another terminal: http://127.0.0.1:8090
	@exec examples/shop/run --dir '$(DIR)'

oscar: ## a real shop, django-oscar on PostgreSQL, under a rush: its own checkout, a conditional UPDATE, and Stockade; target/oscar/summary.json
	@scripts/setup.sh test
	$(if $(STOCKADE_BIN),,cargo build -p stockade $(CARGO_FLAGS))
	@scripts/oscar.sh $(ARGS)

test: ## the whole suite, on real servers (Redis, Redis Cluster, PostgreSQL, MariaDB, etcd, ZooKeeper, NATS, RabbitMQ, pgbouncer)
	@scripts/setup.sh test
	@scripts/test.sh $(ARGS)

busy: ## the whole suite beside as many spinning processes as there are cores, which finds tests that fail on a busy machine
	@scripts/setup.sh test
	@scripts/busy.sh scripts/test.sh $(ARGS)

soak: ## random sequences of stock operations, on real Redis and on a model (the suite runs 10000)
	@REDIS_URL= scripts/setup.sh run
	STOCKADE_SEQUENCES=$(SEQUENCES) RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc_for_tests.sh \
	  cargo test -p stock --test it $(CARGO_FLAGS) -- --nocapture the_scripts_and_their_model_agree

lint: ## format, clippy, docs, layers, words, scripts, licences: the checks of a change besides the tests (NO_SKIPS=1)
	@scripts/setup.sh lint
	cargo fmt --all --check
	@scripts/lint_rust.sh
	@scripts/checks.sh

openapi: ## write docs/openapi.json, the description of the API that a test holds against the code
	STOCKADE_WRITE_OPENAPI=1 cargo test -p order --lib $(CARGO_FLAGS) -- http::meta

clients: openapi ## write the models and the codes of problems into the clients, from the description and the service's table
	STOCKADE_WRITE_OPENAPI=1 cargo test -p order --lib $(CARGO_FLAGS) -- http::codes
	@scripts/clients.py

settings: ## write the tables of docs/settings.md, which a test holds against the declarations
	STOCKADE_WRITE_SETTINGS=1 cargo test -p stockade --bin stockade $(CARGO_FLAGS) -- settings::page

api-check: ## try the API of a real service against its description, with schemathesis (EXAMPLES=50 SEED=1)
	@scripts/setup.sh api
	cargo build -p stockade $(CARGO_FLAGS)
	scripts/check_api.sh '$(TARGET)/debug/stockade' $(ARGS)

rush: ## a flash sale: a crowd of buyers against `make up`, or against a temporary instance
	@scripts/load.sh rush --requests '$(REQUESTS)' --stock '$(STOCK)' $(ARGS)

load: ## several concurrent crowds: retry storms, limit abusers, window shoppers, whole orders, returns, carts; same target as `make rush`
	@scripts/load.sh run --mix '$(MIX)' --requests '$(REQUESTS)' --stock '$(MIX_STOCK)' $(ARGS)

hostile: ## the same rush without and with hostile clients, alternately: what they cost the buyers, and what of that the service; same target as `make rush`
	@scripts/load.sh hostile $(ARGS)

storm: ## the same rush without and with a storm of returns to an item that sold out to CROWD buyers (a million: minutes and a gigabyte); same target as `make rush`
	@scripts/load.sh storm --crowd '$(CROWD)' $(ARGS)

capacity: ## the highest rate of orders at which p99 stays within BOUND_MS, open loop; a table, and a chart in target/capacity
	@scripts/load.sh capacity --bound-ms '$(BOUND_MS)' $(ARGS)

bench: ## every performance goal and its baseline, measured alternately: a table of ratios, and target/bench/results.json
	@scripts/setup.sh bench
	cargo build --profile dist -p stockade $(CARGO_FLAGS)
	cargo build --profile dist -p stockade-lab $(CARGO_FLAGS)
	@'$(TARGET)/dist/stockade-lab' bench $(ARGS)

growth: ## idle time, orders, audits and lists as items and orders become more (P12): a table of every step in target/growth/growth.md, and a chart in growth.svg
	@scripts/setup.sh bench
	cargo build --profile dist -p stockade $(CARGO_FLAGS)
	cargo build --profile dist -p stockade-lab $(CARGO_FLAGS)
	@'$(TARGET)/dist/stockade-lab' bench --only P12 --out '$(TARGET)/growth' $(ARGS)

bench-lock: ## the cost of a lock: one table with every backend, rslock and the hand-written ones (stockade-lab locks compare --faults off)
	@scripts/setup.sh test
	@scripts/bench_lock.sh $(ARGS)

model: ## every protocol, every interleaving, at a size that takes minutes: all models that the suite ignores
	@scripts/setup.sh build
	cargo test -p models --test it $(CARGO_FLAGS) -- --ignored --nocapture

chaos: ## inject faults into every server during a sale, and check that nothing was lost, oversold or stranded
	@scripts/setup.sh test
	cargo build --release -p stockade --features nats,amqp $(CARGO_FLAGS)
	cargo build --release -p stockade-lab $(CARGO_FLAGS)
	@'$(TARGET)/release/stockade-lab' chaos --seed '$(SEED)' --faults '$(FAULTS)' $(ARGS)

compose: ## start docker-compose.yml, kill its containers and cut its networks in the middle of a rush, and audit what is left
	@REQUESTS='$(REQUESTS)' STOCK='$(COMPOSE_STOCK)' FAULTS='$(COMPOSE_FAULTS)' scripts/compose.sh $(ARGS)

upgrade: ## build an older commit (UPGRADE_FROM), and replace it by this one during a rush, role by role
	@scripts/setup.sh test
	@scripts/upgrade_drill.sh '$(UPGRADE_FROM)'

postmortem: ## the lab: every oversell post-mortem on real servers, the variant that failed and each remedy; a page in target/postmortem
	@scripts/setup.sh test
	cargo build --release -p stockade $(CARGO_FLAGS)
	cargo build --release -p stockade-lab $(CARGO_FLAGS)
	@'$(TARGET)/release/stockade-lab' postmortem --all --report target/postmortem $(ARGS)

fmt: ## format the code
	cargo fmt --all

doc: ## build the API docs of all crates
	cargo doc --workspace --no-deps $(CARGO_FLAGS)

book: ## build the manual from docs/ into target/book
	@if mdbook --version >/dev/null 2>&1; then \
	  mdbook build docs --dest-dir '$(abspath $(TARGET))/book' && echo 'built $(TARGET)/book/index.html'; \
	else \
	  echo 'mdbook is not installed: `cargo install --locked mdbook` installs it'; exit 1; \
	fi
