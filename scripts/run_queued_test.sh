#!/usr/bin/env bash
# Runs a test program that scripts/queue_test.sh has noted, and prints what it wrote when it has ended.
#
#   scripts/run_queued_test.sh FOLDER/jobs/NAME
set -euo pipefail

job=$1
name=${job##*/}
folder=${job%/jobs/*}
output=$folder/$name.output

crate=$(sed -n 's/^\(declare -x \|export \)CARGO_PKG_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\2/p' "$job")

began=$SECONDS
status=0
bash "$job" >"$output" 2>&1 </dev/null || status=$?
echo "$status" >"$folder/status/$name"

# Programs that end in the same moment print one after the other.
until mkdir "$folder/printing" 2>/dev/null; do sleep 0.1; done
echo
echo "     Running $crate (target/debug/deps/$name)"
cat "$output"
echo "($crate: $((SECONDS - began)) s)"
rmdir "$folder/printing"
