#!/usr/bin/env bash
# The checks of `make lint` that are not cargo's. All of them run, and the last line counts them.
#
#   scripts/checks.sh
#
# A check that lacks a program prints a line that begins with SKIPPED, and is counted as such. With
# NO_SKIPS=1 that is a failure, for machines that have everything.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

dependencies() {
  if ! cargo deny --version >/dev/null 2>&1; then
    echo 'SKIPPED: cargo deny (advisories, licences, bans, sources): cargo install --locked cargo-deny installs it'
    return
  fi
  cargo deny check advisories licenses bans sources
}

shell_scripts() {
  if ! command -v shellcheck >/dev/null 2>&1; then
    echo 'SKIPPED: shellcheck: scripts/setup.sh lint installs it'
    return
  fi
  shellcheck scripts/*.sh .ci/run deploy/compose/*.sh deploy/kubernetes/*.sh examples/shop/run examples/oscar/run
}

clients() { scripts/clients.py --check; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed='' skipped=0
for check in scripts/check_layers.sh scripts/check_words.sh scripts/check_clocks.sh scripts/check_doctests.sh scripts/check_runner.sh scripts/check_openapi.sh scripts/check_types.sh scripts/check_kubernetes.sh clients dependencies shell_scripts; do
  echo "--- $check"
  if ! "$check" 2>&1 | tee "$log"; then
    failed="$failed $check"
  elif grep -q '^SKIPPED' "$log"; then
    skipped=$((skipped + 1))
  else
    passed=$((passed + 1))
  fi
done

[ -z "$failed" ] || echo "failed:$failed"
echo "checks: $passed passed, $(wc -w <<<"$failed" | tr -d ' ') failed, $skipped skipped"
[ -z "$failed" ] || exit 1
if [ -n "${NO_SKIPS:-}" ] && [ "$skipped" -gt 0 ]; then
  echo 'checks: NO_SKIPS is set, so a skipped check is a failure' >&2
  exit 1
fi
