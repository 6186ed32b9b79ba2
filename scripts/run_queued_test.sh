#!/usr/bin/env bash
# Runs a test program that scripts/queue_test.sh has noted, and prints what it wrote when it has
# ended.
#
#   scripts/run_queued_test.sh FOLDER/jobs/NAME
#
# TEST_TIMES=1 adds to each test how long it took.
set -euo pipefail

job=$1
name=${job##*/}
folder=${job%/jobs/*}
output=$folder/$name.output

crate=$(sed -n 's/^.* CARGO_PKG_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$job")

# The lock's tests wait for leases nearly all of their time. With as many at a time as there are
# cores, they alone would take longer than the rest of the suite.
if [ "$crate" = lock ] && [ -z "${RUST_TEST_THREADS:-}" ]; then
  export RUST_TEST_THREADS=$((2 * $(getconf _NPROCESSORS_ONLN)))
fi

# Models compute, and wait for nothing. So they give way to what waits for servers: a server that is late
# is asked again and again, which costs more than the models do.
polite=()
if [ "$crate" = models ]; then polite=(nice -n 5); fi

# A test that hangs must not hang the suite: its program is killed, and counts as a failure. On a slow
# machine of two cores the longest one takes half an hour.
limit=()
if command -v timeout >/dev/null 2>&1; then limit=(timeout --kill-after=10 "${TEST_PROGRAM_SECONDS:-2700}"); fi

# libtest has no stable option for this, and this variable lets any toolchain use it.
times=()
if [ -n "${TEST_TIMES:-}" ]; then
  export RUSTC_BOOTSTRAP=1
  times=(-Z unstable-options --report-time)
fi

began=$SECONDS
status=0
# Time of the program and of the servers that it has started and stopped.
TIMEFORMAT='%0U s in user code, %0S s in the kernel'
{ time ${limit[@]+"${limit[@]}"} ${polite[@]+"${polite[@]}"} bash "$job" ${times[@]+"${times[@]}"} >"$output" 2>&1 </dev/null || status=$?; } 2>"$folder/$name.time"
echo "$status" >"$folder/status/$name"

# Programs that end in the same moment print one after the other.
until mkdir "$folder/printing" 2>/dev/null; do sleep 0.1; done
echo
echo "     Running $crate (target/debug/deps/$name)"
cat "$output"
echo "($crate: $((SECONDS - began)) s, of the processor $(tail -1 "$folder/$name.time"))"
rmdir "$folder/printing"
