#!/usr/bin/env bash
# A real shop under a rush: django-oscar on PostgreSQL, gunicorn with 4 workers of 6 threads, 40
# guests at the same moment, 10 units.
#
#   scripts/oscar.sh [--trial] [--only plain,conditional,stockade] [--rounds 3] [--faults on|off]
#                    [--out FOLDER]
#
# It runs oscar's own checkout, the same with a conditional UPDATE, and the one of examples/oscar
# behind Stockade. What each has sold and charged is in target/oscar/summary.json, and what happened
# when in rushes.json. The tests of clients/django run first, with the same program: STOCKADE_BIN,
# target/debug/stockade by default. With --trial, which is the first argument, they do not.
set -euo pipefail
cd "$(dirname "$0")/.."
ROOT=$PWD
OUT=${CARGO_TARGET_DIR:-target}/oscar

STOCKADE_BIN=$(realpath -m "${STOCKADE_BIN:-${CARGO_TARGET_DIR:-target}/debug/stockade}")
export STOCKADE_BIN
if [ ! -x "$STOCKADE_BIN" ]; then
  echo "oscar.sh: $STOCKADE_BIN is missing: cargo build -p stockade makes it" >&2
  exit 2
fi

VENV=$(scripts/oscar_venv.sh)

# Never the user's servers or secrets.
unset REDIS_URL LOCK_URLS DATABASE_URL
while IFS= read -r name; do
  case $name in STOCKADE_BIN) ;; STOCKADE_* | SHOP_* | PG*) unset "$name" ;; esac
done < <(compgen -e)

export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$ROOT/scripts/oscar:$ROOT/examples/oscar:$ROOT/clients/django:$ROOT/clients/python
VENV=$(cd "$VENV" && pwd)
if [ "${1:-}" = --trial ]; then
  shift
else
  (cd clients/django && DJANGO_SETTINGS_MODULE=tests.settings "$VENV/bin/python3" -m django test --verbosity 0)
fi
exec "$VENV/bin/python3" scripts/oscar/run.py --out "$OUT" "$@"
