#!/usr/bin/env bash
# Installs django-oscar and what it needs into target/oscar/venv, at the pinned versions, and prints that folder.
set -euo pipefail
cd "$(dirname "$0")/.."
VENV=${CARGO_TARGET_DIR:-target}/oscar/venv
LIST=examples/oscar/requirements.txt

if ! cmp -s "$LIST" "$VENV/installed.txt"; then
  rm -rf "$VENV"
  mkdir -p "$(dirname "$VENV")"
  python3 -m venv "$VENV" >&2
  "$VENV/bin/python3" -m pip install --quiet --disable-pip-version-check --requirement "$LIST" >&2
  cp "$LIST" "$VENV/installed.txt"
fi
echo "$VENV"
