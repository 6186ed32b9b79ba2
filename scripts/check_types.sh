#!/usr/bin/env bash
# Checks the types of the client for Python. Without mypy it says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/target/tools/bin:$PATH

if ! command -v mypy >/dev/null 2>&1; then
  echo 'SKIPPED: the types of clients/python: scripts/setup.sh lint installs mypy'
  exit 0
fi
mypy --strict --cache-dir target/mypy clients/python/stockade
