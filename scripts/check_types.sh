#!/usr/bin/env bash
# Checks the types of the clients for Python and JavaScript. Without mypy or tsc it says so and
# succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/target/tools/bin:$PATH

python_types() {
  if ! command -v mypy >/dev/null 2>&1; then
    echo 'SKIPPED: the types of clients/python: scripts/setup.sh lint installs mypy'
    return
  fi
  mypy --strict --cache-dir target/mypy clients/python/stockade
}

# An older node runs no tests.
has_tests() { node -e 'process.exit(Number(process.versions.node.split(".")[0] < 18))'; }

# The declarations by themselves, and then what a shop writes against them.
javascript_types() {
  if ! tsc --version >/dev/null 2>&1 || ! has_tests; then
    echo 'SKIPPED: the types of clients/js: scripts/setup.sh lint installs tsc'
    return
  fi
  tsc --noEmit --strict --target es2022 --lib es2022,dom,dom.iterable --module node16 --moduleResolution node16 \
    clients/js/src/index.d.ts
  local name='the types fit what a shop writes' result status=0
  result=$(node --test --test-reporter=tap --test-name-pattern="$name" clients/js/test/packaging.test.js) || status=$?
  if [ "$status" -ne 0 ] || ! grep -q "^ok .* - $name\$" <<<"$result"; then
    printf '%s\n' "$result"
    echo "clients/js: $name: failed, or there is no such test" >&2
    return 1
  fi
  echo 'clients/js: the declarations are sound, and fit what a shop writes'
}

python_types
javascript_types
