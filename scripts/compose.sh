#!/usr/bin/env bash
# Starts docker-compose.yml, kills its containers and cuts their networks in the middle of a rush,
# and audits what is left.
#
#   scripts/compose.sh [OPTION OF THE LOAD TEST...]
#
# PROFILE=cluster sells from a Redis Cluster, instead of from a master that Sentinel watches.
# REQUESTS and STOCK are those of one rush; rushes are repeated until each fault of FAULTS (default:
# all) has been injected during one. The last line is GOOD, with exit status 0, or NOT GOOD, with
# exit status 1. The containers have a project of their own and are removed; their logs stay in
# target/compose. PROGRAMS is the folder with `stockade` and `load-tests`, if they are not to be
# built.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

PROFILE=${PROFILE:-sentinel}
REQUESTS=${REQUESTS:-100000} STOCK=${STOCK:-60000}
OUT=${CARGO_TARGET_DIR:-target}/compose
READY_SECONDS=120
# A rush that has not ended by then never will.
RUSH_SECONDS=1800
RUSHES_MAX=12

case $PROFILE in
  sentinel) ALL_FAULTS='order-kill recorder-kill reconciler-kill publisher-kill proxy-kill lock-kill sentinel-kill ledger-kill
    master-kill replica-kill order-cut recorder-cut reconciler-cut lock-cut ledger-cut master-cut' ;;
  cluster) ALL_FAULTS='order-kill recorder-kill reconciler-kill lock-kill ledger-kill master-kill replica-kill order-cut recorder-cut
    ledger-cut master-cut' ;;
  *)
    echo "PROFILE: expected sentinel or cluster, found $PROFILE" >&2
    exit 2
    ;;
esac
read -ra faults <<<"$(tr '\n' ' ' <<<"${FAULTS:-$ALL_FAULTS}")"

say() { printf '%s %s\n' "$(date +%T)" "$*"; }
not_good() {
  printf 'compose: %s\nNOT GOOD\n' "$*"
  exit 1
}

# --- the project ----------------------------------------------------------------------------------

project=stockade-$$
if docker compose version >/dev/null 2>&1; then
  compose=(docker compose)
else
  compose=(docker-compose)
fi
compose+=(--project-name "$project" --profile watch --profile cluster)

random() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
STOCKADE_JWT_SECRET=$(random) STOCKADE_ADMIN_TOKEN=$(random) STOCKADE_PAYMENT_SECRET=$(random) STOCKADE_POSTGRES_PASSWORD=$(random)
# Free ports, so that a project of the same file may run beside this one. Docker would choose
# another one whenever a container starts.
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)) && (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}
STOCKADE_PORT=$(free_port) STOCKADE_OPERATORS_PORT=$(free_port) STOCKADE_PROMETHEUS_PORT=$(free_port)
STOCKADE_IMAGE=$project STOCKADE_REDIS_URL=
# The limits of the file are tried, whatever the caller has set.
unset STOCKADE_RATE_PER_BUYER STOCKADE_RATE_PER_PEER STOCKADE_TRUSTED_PROXIES STOCKADE_RATE_EXEMPT_PEERS
address=http://127.0.0.1:$STOCKADE_PORT
export STOCKADE_JWT_SECRET STOCKADE_ADMIN_TOKEN STOCKADE_PAYMENT_SECRET STOCKADE_POSTGRES_PASSWORD STOCKADE_PORT STOCKADE_OPERATORS_PORT \
  STOCKADE_PROMETHEUS_PORT STOCKADE_IMAGE STOCKADE_REDIS_URL

stores='stock-1 stock-2 sentinel-1 sentinel-2 sentinel-3'
if [ "$PROFILE" = cluster ]; then
  stores='cluster-1 cluster-2 cluster-3 cluster-4 cluster-5 cluster-6 cluster'
  STOCKADE_REDIS_URL=redis+cluster://cluster-1:6379,cluster-2:6379,cluster-3:6379
fi
stores="$stores lock-1 lock-2 lock-3 lock-4 lock-5 ledger migrate"
services='order recorder reconciler publisher proxy prometheus'

# A container of `run` is none of the project's services.
containers() {
  docker ps --all --filter "label=com.docker.compose.project=$project" --filter label=com.docker.compose.oneoff=False "$@"
}
# container SERVICE [NUMBER]
container() {
  containers --quiet --filter "label=com.docker.compose.service=$1" --filter "label=com.docker.compose.container-number=${2:-1}"
}

finish() {
  local status=$?
  trap '' INT TERM
  [ -z "$rush" ] || { kill "$rush" 2>/dev/null && wait "$rush"; } || true
  "${compose[@]}" logs --no-color >"$OUT/$PROFILE.log" 2>&1 || true
  "${compose[@]}" down --volumes --remove-orphans --timeout 10 >"$OUT/down.log" 2>&1 || cat "$OUT/down.log" >&2
  docker image rm "$STOCKADE_IMAGE" >/dev/null 2>&1 || true
  exit "$status"
}

wait_until() {
  local deadline=$((SECONDS + READY_SECONDS))
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$deadline" ] || return 1
    sleep 0.5
  done
}

# --- its health -----------------------------------------------------------------------------------

is_healthy() { ! containers --format '{{.Status}}' | grep -E 'unhealthy|starting|Restarting|Exited \([1-9]'; }
is_ready() { [ "$(curl -fsS -m 5 "$address/readyz")" = ready ]; }

# The service that is the master now, and the one that follows it.
stock_master() { docker exec "$(container sentinel-2)" redis-cli -p 26379 sentinel get-master-addr-by-name stock | head -n 1; }
stock_replica() { [ "$(stock_master)" = stock-1 ] && echo stock-2 || echo stock-1; }
# of_cluster ROLE: some server of the cluster that has this role
of_cluster() {
  local node
  for node in cluster-1 cluster-2 cluster-3 cluster-4 cluster-5 cluster-6; do
    if docker exec "$(container "$node")" redis-cli role 2>/dev/null | head -n 1 | grep -qx "$1"; then
      echo "$node"
      return
    fi
  done
}
master() { if [ "$PROFILE" = cluster ]; then of_cluster master; else stock_master; fi; }
replica() { if [ "$PROFILE" = cluster ]; then of_cluster slave; else stock_replica; fi; }

# Every server of the stock is a master with a replica, or a replica that has what its master has.
stock_is_whole() {
  local service role info
  for service in $stores; do
    case $service in stock-* | cluster-*) ;; *) continue ;; esac
    info=$(docker exec "$(container "$service")" redis-cli info replication) || return
    role=$(sed -n 's/^role:\([a-z]*\).*/\1/p' <<<"$info")
    case $role in
      master) grep -q 'state=online' <<<"$info" || return ;;
      *) grep -q '^master_link_status:up' <<<"$info" || return ;;
    esac
  done
  [ "$PROFILE" = cluster ] || docker exec "$(container "$(stock_master)")" redis-cli role | head -n 1 | grep -qx master
}

is_whole() { is_healthy && is_ready && stock_is_whole; }

# --- faults ---------------------------------------------------------------------------------------

# kill_one SERVICE [NUMBER]: SIGKILL, and some seconds until it is there again
kill_one() {
  local id
  id=$(container "$@")
  docker kill "$id" >/dev/null
  sleep "$fault_seconds"
  docker start "$id" >/dev/null
}

# cut_one SERVICE [NUMBER]: from the network of the stores
cut_one() {
  local id
  id=$(container "$@")
  docker network disconnect "${project}_stores" "$id"
  sleep "$fault_seconds"
  docker network connect --alias "$1" "${project}_stores" "$id"
}

inject() {
  local fault_seconds=3
  case $1 in
    # Longer than Sentinel and the cluster wait before they make a replica the master.
    master-*) fault_seconds=8 ;;
  esac
  case $1 in
    master-kill) kill_one "$(master)" ;;
    master-cut) cut_one "$(master)" ;;
    replica-kill) kill_one "$(replica)" ;;
    lock-kill | sentinel-kill) kill_one "${1%-kill}-1" ;;
    lock-cut) cut_one lock-2 ;;
    *-kill) kill_one "${1%-kill}" ;;
    *-cut) cut_one "${1%-cut}" ;;
    *) return 1 ;;
  esac
}

# --- the sale -------------------------------------------------------------------------------------

programs() {
  if [ -n "${PROGRAMS:-}" ]; then return; fi
  PROGRAMS=${CARGO_TARGET_DIR:-target}/release
  # One at a time: a joint build would use the union of their features.
  # shellcheck disable=SC2086 # flags, or nothing
  cargo build ${CARGO_FLAGS:-} --release -p stockade
  # shellcheck disable=SC2086 # flags, or nothing
  cargo build ${CARGO_FLAGS:-} --release -p load-tests
}

# stockade ARGUMENT...: in the project's network
stockade() { "${compose[@]}" run --rm --no-deps -T order "$@" </dev/null; }

# up OPTION... SERVICE...
up() {
  "${compose[@]}" up --detach --no-build "$@" >>"$OUT/up.log" 2>&1 || {
    cat "$OUT/up.log"
    not_good 'the services did not start'
  }
}
is_done() { [ "$(docker inspect --format '{{.State.Status}} {{.State.ExitCode}}' "$(container "$1")")" = 'exited 0' ]; }
stores_are_made() { is_done migrate && { [ "$PROFILE" != cluster ] || is_done cluster; } && is_healthy && stock_is_whole; }
must_become_whole() {
  wait_until "$1" || {
    containers
    not_good "the services are not whole after $READY_SECONDS s"
  }
}

start() {
  say "starting the project $project"
  : >"$OUT/up.log"
  # shellcheck disable=SC2086 # a list
  up $stores
  must_become_whole stores_are_made
  # The stores of the other profile are not needed.
  # shellcheck disable=SC2086 # a list
  up --no-deps $services
  must_become_whole is_whole
  say "$(containers --quiet | wc -l) containers run, and the proxy is ready"
}

begin_rush() {
  rushes=$((rushes + 1))
  item=compose-$rushes
  timeout "$RUSH_SECONDS" "$PROGRAMS/load-tests" rush --host "$address" --requests "$REQUESTS" \
    --stock "$STOCK" --item "$item" --outages --report "$OUT/$item.html" "${options[@]}" >"$OUT/$item.txt" 2>&1 &
  rush=$!
  # Until its buyers are there, a fault hits nothing.
  wait_until has_begun || { cat "$OUT/$item.txt"; not_good 'the load test did not begin'; }
}
has_begun() { stockade_api "items/$item" | grep -qv '"held":0,'; }
stockade_api() { curl -fsS -m 5 "$address/v1/$1" -H "Authorization: Bearer $STOCKADE_ADMIN_TOKEN"; }
is_rushing() { [ -n "$rush" ] && kill -0 "$rush" 2>/dev/null; }

end_rush() {
  local status=0
  wait "$rush" || status=$?
  rush=''
  cat "$OUT/$item.txt"
  [ "$status" -eq 0 ] || not_good "the load test found something at $item (exit status $status)"
  stockade audit --full "$item" || not_good "the audit found something at $item"
}

# Repeats a fault until a rush was still going on when it had ended.
in_a_rush() {
  while [ "$rushes" -le "$RUSHES_MAX" ]; do
    is_rushing || begin_rush
    say "fault: $1"
    inject "$1" || not_good "$1 could not be injected"
    local hit=no
    ! is_rushing || hit=yes
    must_become_whole is_whole
    is_rushing || end_rush
    [ "$hit" = no ] || return 0
    say "$1 came too late, and is repeated in another rush"
  done
  not_good "no rush was long enough for $1: expected more REQUESTS"
}

# Everything that runs is what the files say: without root, and without a file system to write to.
check_product() {
  local service id
  for service in order recorder reconciler publisher; do
    id=$(container "$service")
    [ "$(docker inspect --format '{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.State.Health.Status}}' "$id")" = '10001:10001 true healthy' ] ||
      not_good "$service: expected the user 10001, a read-only root and health"
  done
}

# Three order services, two recorders, two reconcilers and a publisher.
prometheus_sees_all() {
  curl -fsS -m 5 "http://127.0.0.1:$STOCKADE_PROMETHEUS_PORT/api/v1/query?query=sum(up)" | grep -q '"8"\]'
}

# The limits are on, so each order service has the counters, and no honest buyer has met one.
none_was_limited() {
  curl -fsS -m 5 -G "http://127.0.0.1:$STOCKADE_PROMETHEUS_PORT/api/v1/query" \
    --data-urlencode 'query=sum(max_over_time(stockade_requests_limited_total[2h]))' | grep -q ',"0"\]'
}

main() {
  programs
  mkdir -p "$OUT"
  scripts/compose_images.sh "$PROGRAMS/stockade"
  start
  check_product
  stockade preflight || not_good 'preflight found something'
  local fault
  for fault in "${faults[@]}"; do in_a_rush "$fault"; done
  [ -z "$rush" ] || end_rush
  wait_until prometheus_sees_all || not_good 'Prometheus does not see every process'
  none_was_limited || not_good 'a limit of the rate refused a request of an honest buyer, or is off'
  say "${#faults[@]} faults in $rushes rushes of $REQUESTS requests for $STOCK units: nothing was lost"
  echo GOOD
}

options=("$@") rushes=0 rush='' item=''
docker info >/dev/null 2>&1 || not_good 'there is no Docker Engine'
mkdir -p "$OUT"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
main
