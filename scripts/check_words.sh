#!/usr/bin/env bash
# Fails when the prose names no component as its subject: whoever, somebody, nobody, anybody,
# everybody.
set -euo pipefail
cd "$(dirname "$0")/.."

LINES_MAX=18

found=$(grep -rniE '\b(whoever|somebody|nobody|anybody|everybody)\b' \
  --include='*.rs' --include='*.lua' --include='*.sql' --include='*.md' --exclude-dir=target --exclude-dir=.git . || true)
count=$(printf '%s' "$found" | grep -c '' || true)
if [ "$count" -gt "$LINES_MAX" ]; then
  printf '%s\n' "$found"
  echo "$count lines say whoever, somebody, nobody, anybody or everybody; at most $LINES_MAX may: name the component that acts" >&2
  exit 1
fi
