#!/usr/bin/env bash
# clippy and rustdoc of the whole workspace. Fails if one of them warns.
#
#   scripts/lint_rust.sh
#
# scripts/rustc_for_tests.sh lints and reads the documentation when it compiles. So this builds what
# the tests need, if it is not built yet, and looks for warnings, which cargo repeats.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

export RUSTC_WORKSPACE_WRAPPER=${RUSTC_WORKSPACE_WRAPPER:-$PWD/scripts/rustc_for_tests.sh}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2046,SC2086 # flags, or nothing
cargo test --no-run --workspace $(scripts/lock_features.sh) ${CARGO_FLAGS:-} 2>&1 | tee "$log"
if grep -qE '^(warning|error)' "$log"; then
  echo 'clippy or rustdoc warns: see above' >&2
  exit 1
fi
