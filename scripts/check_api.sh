#!/usr/bin/env bash
# Tries the API of a real service against its description, with schemathesis: every call, with
# bodies and parameters that fit the description and some that do not.
#
# Usage: check_api.sh PROGRAM [ARGUMENTS of `schemathesis run`]
set -euo pipefail
cd "$(dirname "$0")/.."

program=$1
shift
if ! command -v schemathesis >/dev/null; then
  echo 'check_api.sh: pip install schemathesis installs what it needs' >&2
  exit 2
fi

folder=$(mktemp -d)
stop() {
  kill "$service" 2>/dev/null || true
  wait "$service" 2>/dev/null || true
  rm -rf "$folder"
}
STOCKADE_ADMIN_TOKEN=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
# Without this secret the service answers 503, as it must.
STOCKADE_STRIPE_SECRET=whsec_of_this_check
export STOCKADE_ADMIN_TOKEN STOCKADE_STRIPE_SECRET
"$program" up --dir "$folder" --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
service=$!
trap stop EXIT

url=
for _ in $(seq 300); do
  url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$folder/out" "$folder/log" -h | head -n 1 || true)
  if [ -n "$url" ] && curl --silent --fail --output /dev/null "$url/readyz"; then
    break
  fi
  if ! kill -0 "$service" 2>/dev/null; then
    cat "$folder/log" >&2
    exit 2
  fi
  sleep 0.1
done

# A request that fits the description may still be refused, for example for the state of an order: so
# that it is accepted is not checked.
schemathesis run "$url/openapi.json" \
  --header "Authorization: Bearer $STOCKADE_ADMIN_TOKEN" \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --request-timeout 20 --max-examples "${EXAMPLES:-50}" --seed "${SEED:-1}" "$@"
