#!/usr/bin/env bash
# Load: crowds of buyers, or orders at a fixed rate. Arguments go to the load tests
# (`target/release/load-tests --help`): `rush`, `capacity`, ...
#
# The target is HOST if it is set, else the `stockade up` that runs in DIR, else a new one on
# private servers in a temporary folder. Exits as the load test does; the folder of one that failed
# is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

DIR=${DIR:-.stockade} HOST=${HOST:-}
PROGRAMS=${CARGO_TARGET_DIR:-target}/release
READY_SECONDS=60

if [ $# -eq 0 ]; then
  echo 'usage: scripts/load.sh SCENARIO [OPTION...], for example scripts/load.sh rush --requests 1000' >&2
  exit 2
fi
LOAD=$1
shift

# Each concurrent buyer is a connection on either side, and macOS allows 256 files. Beside a decoy, both
# ends of each hostile connection are in one process.
files=8192
[ "$LOAD" != hostile ] || files=16384
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt "$files" ]; then
  ulimit -Sn "$files" 2>/dev/null || ulimit -Sn "$(ulimit -Hn)" || true
fi

case $HOST in
  '' | http://* | https://*) ;;
  *)
    echo "HOST: expected a URL such as http://127.0.0.1:8080, found $HOST" >&2
    exit 2
    ;;
esac

# One at a time: a joint build would use the union of their features, and `make up` would build
# again.
build() {
  local package
  for package; do
    # shellcheck disable=SC2086 # flags, or nothing
    cargo build ${CARGO_FLAGS:-} --release -p "$package"
  done
}

# The folder keeps its address file when `up` has ended, and another process may use the port by
# now.
running_in_dir() {
  [ -r "$DIR/address" ] || return
  local address
  address=$(cat "$DIR/address")
  [ "$(curl -fsS -m 2 "$address/healthz" 2>/dev/null)" = ok ] && echo "$address"
}

up_pid='' folder=''

start() {
  folder=$(mktemp -d "${TMPDIR:-/tmp}/stockade-load.XXXXXX")
  : >"$folder/up.log"
  if [ "$LOAD" = hostile ]; then
    # Crowds reach the bound of connections, and all have one address here. Attackers have many.
    export STOCKADE_CONNECTIONS_MAX=${STOCKADE_CONNECTIONS_MAX:-2048} STOCKADE_BODIES_PER_PEER_MAX=${STOCKADE_BODIES_PER_PEER_MAX:-10000}
  fi
  # Never on the user's servers: the ledger is removed with the folder, but the stock would stay
  # there.
  env -u REDIS_URL -u LOCK_URLS -u DATABASE_URL "$PROGRAMS/stockade" up --dir "$folder" --listen 127.0.0.1:0 >>"$folder/up.log" 2>&1 &
  up_pid=$!
  local deadline=$((SECONDS + READY_SECONDS))
  until grep -q '^ready ' "$folder/up.log"; do
    if ! kill -0 "$up_pid" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      cat "$folder/up.log" >&2
      echo 'stockade did not become ready' >&2
      exit 1
    fi
    sleep 0.1
  done
  DIR=$folder
  HOST=$(sed -n 's/^ready //p' "$folder/up.log")
}

finish() {
  local status=$?
  trap '' INT TERM
  if [ -n "$up_pid" ]; then
    kill -TERM "$up_pid" 2>/dev/null || true
    wait "$up_pid" || true
  fi
  if [ -n "$folder" ] && [ "$status" -eq 0 ]; then
    rm -rf "$folder"
  elif [ -n "$folder" ]; then
    echo "kept for inspection: $folder (make up DIR=$folder serves it again)" >&2
  fi
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -n "$HOST" ]; then
  scripts/setup.sh build
  build load-tests
else
  scripts/setup.sh run
  build stockade load-tests
  if HOST=$(running_in_dir); then
    echo "using the running stockade in $DIR: $HOST"
  else
    start
    echo "started a temporary stockade: $HOST"
  fi
fi

"$PROGRAMS/load-tests" "$LOAD" --host "$HOST" --dir "$DIR" "$@"
