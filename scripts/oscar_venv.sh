#!/usr/bin/env bash
# Installs django-oscar and what it needs into target/oscar/venv, at the pinned versions, and prints
# that folder.
#
#   scripts/oscar_venv.sh [--installed]
#
# With --installed it installs nothing, and fails if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${CARGO_TARGET_DIR:-target}/oscar/venv
LIST=examples/oscar/requirements.txt

if ! cmp -s "$LIST" "$VENV/installed.txt"; then
  if [ "${1:-}" = --installed ]; then
    echo 'they are not installed: scripts/oscar_venv.sh installs them' >&2
    exit 1
  fi
  rm -rf "$VENV"
  mkdir -p "$(dirname "$VENV")"
  python3 -m venv "$VENV" >&2
  "$VENV/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$LIST" >&2
  cp "$LIST" "$VENV/installed.txt"
fi
echo "$VENV"
