#!/usr/bin/env bash
# The figures of the README, measured side by side in one run: orders and refusals over HTTP beside a bare axum handler, and the
# stock crate beside redis-benchmark. Everything runs on this machine, so quote the ratios.
set -euo pipefail
cd "$(dirname "$0")/.."

SECONDS_EACH=${SECONDS_EACH:-10}
CONNECTIONS=${CONNECTIONS:-256}
ORDERS=${ORDERS:-1000000}
TARGET=${CARGO_TARGET_DIR:-target}
work=$(mktemp -d "${TMPDIR:-/tmp}/stockade-bench.XXXXXX")
# The program under load, if one runs.
child=

stop() {
  end
  # The servers end with their standard input, and take what they have started with them.
  exec 8>&- 9>&-
  wait
  rm -rf "$work"
}

runs() { jobs -pr | grep -qx "$child"; }

# Ends the program under load, unless it has ended by itself: its number may be somebody else's by now. TERM, because bash starts what
# runs in the background with INT ignored.
end() {
  [ -n "$child" ] || return 0
  if runs; then kill -TERM "$child"; fi
  wait "$child" 2>/dev/null || true
  child=
}
trap stop EXIT

cargo build --release --quiet -p stockade -p order -p stock -p testbed --examples --bins
stockade=$TARGET/release/stockade
examples=$TARGET/release/examples

# wrk's requests per second, and how many of its answers were not 2xx.
load() { # URL ITEM RUN
  ITEM=$2 TOKENS=$work/tokens RUN=$3 wrk -t1 -c"$CONNECTIONS" -d"${SECONDS_EACH}s" --latency -s load-tests/wrk/order.lua "$1" >"$work/wrk"
  awk '/Requests\/sec/ { rate = $2 } /50%/ { p50 = $2 } /99%/ { p99 = $2 } /Non-2xx/ { other = $NF } /requests in/ { n = $1 }
       END { printf "%.0f %s %s %d %d\n", rate, p50, p99, n - other, other }' "$work/wrk"
}

row() { printf '| %-38s | %9s | %8s | %8s | %9s | %9s | %6s | %s\n' "$@"; }

http_rows() { # NAME DATABASE_URL or nothing
  local dir=$work/$1 url admin rate p50 p99 ok other
  mkdir "$dir"
  DATABASE_URL=${2:-} "$stockade" --dir "$dir" up --listen 127.0.0.1:0 >"$dir/out" 2>"$dir/log" 8>&- 9>&- &
  child=$!
  for _ in $(seq 300); do grep -q '^ready' "$dir/out" && break; sleep 0.1; done
  url=$(awk '/^ready/ { print $2 }' "$dir/out")
  admin=$("$stockade" --dir "$dir" token admin)
  create() { curl -sf "$url/items" -H "Authorization: Bearer $admin" -d "$1" >/dev/null; }
  create '{"id":"bench","stock":100000000,"segments":2}'
  create '{"id":"empty","stock":0,"segments":2}'
  : >"$work/tokens"
  for buyer in $(seq 64); do "$stockade" --dir "$dir" token buyer "buyer-$buyer" >>"$work/tokens"; done
  load "$url" bench warm >/dev/null
  read -r rate p50 p99 ok other < <(load "$url" bench run)
  row "recorded orders, $1" "$rate" "$p50" "$p99" "$ok" "$other" "$(ratio "$rate" "$bare")" "$("$stockade" --dir "$dir" audit bench | tail -1)"
  read -r rate p50 p99 ok other < <(load "$url" empty run)
  row "sold-out answers, $1" "$rate" "$p50" "$p99" "$ok" "$other" "$(ratio "$rate" "$bare")" "$("$stockade" --dir "$dir" audit empty | tail -1)"
  end
}

# Starts the bare handler where nothing else listens: it ends at once if the port is taken.
start_bare() {
  for _ in $(seq 20); do
    bare_port=$((20000 + RANDOM % 12000))
    "$examples/bare" "127.0.0.1:$bare_port" 2>/dev/null &
    child=$!
    sleep 0.5
    if runs; then return; fi
    end
  done
  echo 'the bare handler does not start' >&2
  return 1
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }

echo "$(cores) cores, $(awk -F': ' '/model name/ { print $2; exit }' /proc/cpuinfo 2>/dev/null), $(uname -sr); wrk -t1 -c$CONNECTIONS -d${SECONDS_EACH}s"
echo
row 'over HTTP' 'answers/s' p50 p99 2xx 'not 2xx' ratio audit
row -------------------------------------- --------- -------- -------- --------- --------- ------ -----
echo none >"$work/tokens"
start_bare
read -r bare p50 p99 ok other < <(load "http://127.0.0.1:$bare_port" bench run)
end
row 'bare axum handler (the ceiling)' "$bare" "$p50" "$p99" "$ok" "$other" 1.00 -

http_rows SQLite
mkfifo "$work/hold"
"$examples/server" postgres bench <"$work/hold" >"$work/postgres" &
exec 9>"$work/hold"
for _ in $(seq 100); do [ -s "$work/postgres" ] && break; sleep 0.1; done
http_rows PostgreSQL "$(cat "$work/postgres")"
exec 9>&-

mkfifo "$work/hold-redis"
"$examples/server" redis <"$work/hold-redis" >"$work/redis" &
exec 8>"$work/hold-redis"
for _ in $(seq 100); do [ -s "$work/redis" ] && break; sleep 0.1; done
redis_url=$(cat "$work/redis")
port=${redis_url##*:}
echo
echo "the stock crate alone (whole order step, Redis with appendfsync always), $ORDERS orders:"
"$examples/rate" --redis "$redis_url" --orders "$ORDERS" --concurrency 1024 --segments 1
"$examples/rate" --redis "$redis_url" --orders "$ORDERS" --concurrency 64 --segments 1
sha=$(redis-cli -p "$port" SCRIPT LOAD "local n = tonumber(redis.call('GET', KEYS[1]) or '0') if n >= tonumber(ARGV[1]) then return redis.call('DECRBY', KEYS[1], ARGV[1]) end return -1")
redis-cli -p "$port" SET minimal 1000000000 >/dev/null
echo "redis-benchmark, EVALSHA of a minimal check-and-decrement (no idempotency, no limit, no log), same server:"
for pipeline in 1 64; do
  printf '  64 connections, pipelined by %-3s ' "$pipeline"
  redis-benchmark -p "$port" -c 64 -P "$pipeline" -n "$ORDERS" -q EVALSHA "$sha" 1 minimal 1 | tr '\r' '\n' | tail -1
done
exec 8>&-
