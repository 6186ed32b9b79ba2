#!/usr/bin/env bash
# Runs a command beside as many spinning processes as there are cores: a busy machine, to find tests
# that fail on one.
#
#   scripts/busy.sh COMMAND [ARGUMENT...]
set -euo pipefail

spinners=()
trap 'kill "${spinners[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Ends with us, however we end.
spin() {
  local n
  while kill -0 $$ 2>/dev/null; do
    for ((n = 0; n < 100000; n++)); do :; done
  done
}

for ((core = 0; core < $(getconf _NPROCESSORS_ONLN); core++)); do
  spin &
  spinners+=($!)
done
"$@"
