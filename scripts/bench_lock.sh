#!/usr/bin/env bash
# Measures the cost of a lock on every backend in one run, on private servers.
#
#   scripts/bench_lock.sh [SECONDS_EACH [BACKEND,...]]
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

features=()
if command -v protoc >/dev/null 2>&1; then features=(--features etcd); fi
# shellcheck disable=SC2086 # flags, or nothing
cargo build --release --quiet ${CARGO_FLAGS:-} -p stockade-lab "${features[@]}"
exec "${CARGO_TARGET_DIR:-target}/release/stockade-lab" locks compare --faults off --seconds "${1:-5}" ${2:+--backends "$2"}
