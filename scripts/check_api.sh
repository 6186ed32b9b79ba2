#!/usr/bin/env bash
# Tries the API of a real service against its description, with schemathesis: every call, with
# bodies and parameters that fit the description and some that do not. For the parameters of lists,
# both must agree on what is allowed: a `state` that the description has and the service refuses is
# a failure, and so is `state=lost` if either lets it pass.
#
# Usage: check_api.sh PROGRAM [ARGUMENTS of `schemathesis run`]
#
# The same SEED makes the same requests. EXAMPLES is their number for each call and phase.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/target/tools/bin:$PATH

EXAMPLES=${EXAMPLES:-50} SEED=${SEED:-1}
READY_SECONDS=120

program=$1
shift
if ! command -v schemathesis >/dev/null; then
  echo 'check_api.sh: scripts/setup.sh api installs schemathesis' >&2
  exit 2
fi

folder=$(mktemp -d)
service=''
stop() {
  if [ -n "$service" ]; then
    kill "$service" 2>/dev/null || true
    wait "$service" 2>/dev/null || true
  fi
  rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
STOCKADE_ADMIN_TOKEN=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
# Without this secret the service answers 503, as it must.
STOCKADE_STRIPE_SECRET=whsec_of_this_check
export STOCKADE_ADMIN_TOKEN STOCKADE_STRIPE_SECRET
# Never on the user's servers.
unset REDIS_URL LOCK_URLS DATABASE_URL
"$program" up --dir "$folder" --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
service=$!

deadline=$((SECONDS + READY_SECONDS))
until url=$(sed -n 's/^ready //p' "$folder/out") && [ -n "$url" ]; do
  if ! kill -0 "$service" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
    cat "$folder/out" "$folder/log" >&2
    echo 'check_api.sh: the service did not become ready' >&2
    exit 2
  fi
  sleep 0.1
done

# One order, so that lists have a row.
buyer=$("$program" --dir "$folder" token buyer ann)
curl --silent --show-error --fail --output /dev/null "$url/v1/items/demo/orders" --header "Authorization: Bearer $buyer" \
  --header 'Idempotency-Key: an-order-of-this-check' --header 'Content-Type: application/json' --data '{"quantity": 1}'

# The description as far as a generator of requests can follow it. Nothing says which cursor exists,
# and a wait for an event takes no minute here. The lists of items are those of an item that exists.
curl --silent --show-error --fail "$url/openapi.json" >"$folder/openapi.json"
python3 - "$folder" <<'END'
import json, sys

def write(name, api):
    with open(f"{sys.argv[1]}/{name}.json", "w") as file:
        json.dump(api, file)

with open(f"{sys.argv[1]}/openapi.json") as file:
    api = json.load(file)
calls = [call for path in api["paths"].values() for call in path.values()]
parameters = [parameter for call in calls for parameter in call.get("parameters", [])]
for parameter in parameters:
    if parameter["name"] == "wait":
        parameter["schema"]["maximum"] = 1
write("all", api)

for call in calls:
    call["parameters"] = [one for one in call.get("parameters", []) if one["name"] != "after"]
for parameter in parameters:
    if (parameter["in"], parameter["name"]) == ("path", "item"):
        parameter["schema"]["enum"] = ["demo"]
write("lists", api)
END

# A request that fits the description may still be refused, for example for the state of an order:
# so that it is accepted is checked for lists only.
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
# try_calls DESCRIPTION TOKEN CHECKS ARGUMENT...
try_calls() {
  local description=$1 token=$2 checks=$3
  shift 3
  schemathesis run "$folder/$description.json" --url "$url" --header "Authorization: Bearer $token" --checks "$checks" \
    --request-timeout 60 --max-examples "$EXAMPLES" --seed "$SEED" "$@"
}

status=0
both=$checks,negative_data_rejection,positive_data_acceptance
try_calls lists "$STOCKADE_ADMIN_TOKEN" "$both" --phases coverage,fuzzing \
  --include-operation-id-regex '^list(Items|ItemOrders|Journal|RefundsDue)$' || status=1
try_calls lists "$buyer" "$both" --phases coverage,fuzzing --include-operation-id-regex '^listOwn(Orders|Carts)$' || status=1
try_calls all "$STOCKADE_ADMIN_TOKEN" "$checks" "$@" || status=1
[ "$status" -eq 0 ]
