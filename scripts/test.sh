#!/usr/bin/env bash
# Tests the whole workspace, or what the arguments name, and ends with a line that counts the tests.
#
#   scripts/test.sh [ARGUMENT OF `cargo test`...]
#
# Fails if a test failed, if a test program ended without a result, and if no test ran at all.
#
# A test of the whole suite that failed runs once more, alone, after all others. If it passes then,
# the run says `FLAKY name` near its end, and may be green. More than FLAKY_MAX of them are a
# failure.
#
# With TEST_BUILT=FILE it creates the file once everything is built.
#
# Most tests wait for leases and servers. So the whole suite is built first, and then several test
# programs run concurrently: TEST_JOBS of them, each with RUST_TEST_THREADS tests.
set -euo pipefail
cd "$(dirname "$0")/.."
have() { command -v "$1" >/dev/null 2>&1; }
have cargo || PATH=${HOME:-/root}/.cargo/bin:$PATH

TEST_JOBS=${TEST_JOBS:-4}
FLAKY_MAX=3
# So many failures are no accident of a busy machine, and what hangs alone hangs for a reason.
RERUN_MAX=20 RERUN_SECONDS=600
# Crates whose tests take longest, so that none of them is still running when the others have ended.
# Those that wait most come before those that compute most: side by side, each would be slower. Models
# give way to all others, so they begin early.
LONGEST_FIRST='acceptance models stockade-lab reconciler lock order stock testbed ledger publisher bench recorder locks'

# Homebrew and some Linux packages keep psql beside the server, off the PATH.
if ! have psql; then
  for folder in /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin /usr/lib/postgresql/*/bin; do
    [ ! -x "$folder/psql" ] || PATH=$PATH:$folder
  done
fi

# Many connections to many servers, and macOS allows 256 files.
if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt 8192 ]; then
  ulimit -Sn 8192 2>/dev/null || ulimit -Sn "$(ulimit -Hn)" || true
fi

# The servers of the tests flush to disk at each commit, and none of them outlives the tests. So their
# folders are in memory where there is plenty of it, and where programs may be run.
memory=/dev/shm MEMORY_KB=$((12 * 1024 * 1024))
has_memory() {
  local probe status=0
  [ "$(df -Pk "$memory" 2>/dev/null | awk 'NR == 2 { print $4 }')" -ge "$MEMORY_KB" ] 2>/dev/null || return 1
  [ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" -ge "$MEMORY_KB" ] || return 1
  probe=$(mktemp "$memory/stockade-test.XXXXXX") || return 1
  printf '#!/bin/sh\n' >"$probe"
  chmod u+x "$probe"
  "$probe" || status=1
  rm -f "$probe"
  return "$status"
}
if [ -z "${TMPDIR:-}" ] && has_memory; then export TMPDIR=$memory; fi

# Plain cargo has artifacts of its own, beside these.
export RUSTC_WORKSPACE_WRAPPER=${RUSTC_WORKSPACE_WRAPPER:-$PWD/scripts/rustc_for_tests.sh}

folder=$(mktemp -d "${TMPDIR:-/tmp}/stockade-test.XXXXXX")
log=$folder/log
trap 'rm -rf "$folder"' EXIT
: >"$folder/flaky"
trap 'exit 130' INT
trap 'exit 143' TERM

# queue ARGUMENT...: builds test programs, and notes them in $folder/jobs instead of running them.
# Tests in the documentation run at once: there are few.
queue() {
  # shellcheck disable=SC2086 # flags, or nothing
  STOCKADE_TEST_QUEUE=$folder/jobs cargo test ${CARGO_FLAGS:-} --no-fail-fast "$@" \
    --config "target.'cfg(all())'.runner = ['$PWD/scripts/queue_test.sh']" 2>&1 </dev/null |
    grep --line-buffered -v '^ *Running '
}

# The longest first.
sorted_jobs() {
  local crate job
  for crate in $LONGEST_FIRST; do
    for job in "$folder"/jobs/*; do
      if grep -q "CARGO_PKG_NAME=\"$crate\"" "$job"; then echo "$job"; fi
    done
  done
  printf '%s\n' "$folder"/jobs/*
}

whole_suite() {
  local features
  # shellcheck disable=SC2207 # words
  features=($(scripts/lock_features.sh))
  mkdir "$folder/jobs" "$folder/status"
  # In one build: of a part of the workspace, dependencies have other features, and are built again.
  local status=0
  queue --workspace "${features[@]}" || status=1
  # Nothing is noted unless everything could be built.
  [ -n "$(ls "$folder/jobs")" ] || return 1
  [ -z "${TEST_BUILT:-}" ] || touch "$TEST_BUILT"
  sorted_jobs | awk '!seen[$0]++' | xargs -n 1 -P "$TEST_JOBS" scripts/run_queued_test.sh
  return "$status"
}

# The tests of a job that failed. A program that was killed has no result, and fails whatever its
# tests say.
failed_tests() {
  local output=$folder/${1##*/}.output
  grep -q '^test result: ' "$output" || return 0
  sed -n 's/^test \([^ ]*\).* \.\.\. FAILED.*/\1/p' "$output"
}

crate_of() { sed -n 's/^.* CARGO_PKG_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' "$1"; }

# A job without a status was killed. Without a build there is no job.
job_passed() { [ ! -e "$1" ] || [ "$(cat "$folder/status/${1##*/}" 2>/dev/null)" = 0 ]; }

# Notes which tests are flaky, and which failed both times: lines of "JOB TEST".
rerun_failures() {
  local job test again=0 last_rerun=$((SECONDS + 2 * RERUN_SECONDS))
  for job in "$folder"/jobs/*; do
    ! job_passed "$job" || continue
    while IFS= read -r test; do
      again=$((again + 1))
      [ "$again" -le "$RERUN_MAX" ] && [ "$SECONDS" -lt "$last_rerun" ] || return 0
      printf '\n     Running once more, alone: %s: %s\n' "$(crate_of "$job")" "$test"
      if rerun "$job" "$test"; then echo "${job##*/} $test" >>"$folder/flaky"; fi
    done < <(failed_tests "$job")
  done
}

# A filter that finds no test is no proof.
rerun() {
  local limit=() status=0
  if have timeout; then limit=(timeout --kill-after=10 "$RERUN_SECONDS"); fi
  ${limit[@]+"${limit[@]}"} bash "$1" --exact "$2" </dev/null >"$folder/rerun" 2>&1 || status=$?
  cat "$folder/rerun"
  [ "$status" -eq 0 ] && grep -q '^test result: ok\. 1 passed' "$folder/rerun"
}

is_flaky() { grep -qxF "${1##*/} $2" "$folder/flaky" 2>/dev/null; }

# Whether everything passed, or passed when it ran alone.
all_passed() {
  local job test tests
  for job in "$folder"/jobs/*; do
    ! job_passed "$job" || continue
    tests=$(failed_tests "$job")
    [ -n "$tests" ] || return 1
    while IFS= read -r test; do is_flaky "$job" "$test" || return 1; done <<<"$tests"
  done
}

status=0
flaky=0
if [ $# -eq 0 ]; then
  whole_suite 2>&1 | tee "$log" || status=$?
  rerun_failures
  all_passed || status=1
  flaky=$(wc -l <"$folder/flaky" | tr -d ' ')
else
  # Tests that start the program need it, with every backend; `--workspace` builds it anyway.
  case " $* " in
    *' -p acceptance '*)
      # shellcheck disable=SC2046 # flags
      set -- -p stockade $(scripts/lock_features.sh stockade acceptance) "$@" ;;
    *' -p publisher '*)
      # shellcheck disable=SC2046 # flags
      set -- $(scripts/lock_features.sh publisher) "$@" ;;
    *' -p stockade-lab '*) set -- -p stockade "$@" ;;
  esac
  # shellcheck disable=SC2086 # flags, or nothing
  cargo test ${CARGO_FLAGS:-} --no-fail-fast "$@" 2>&1 </dev/null | tee "$log" || status=$?
fi

# `     Running unittests src/lib.rs (target/debug/deps/domain-0123)`, `   Doc-tests domain` `test
# result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s`
read -r passed failed skipped unfinished < <(awk '
  { gsub(/\033\[[0-9;]*m/, "") }
  /^ +Running .*\/deps\/.*\)$|^ +Doc-tests / { programs++; open = 1 }
  /^test result: / { passed += $4; failed += $6; skipped += $8; finished += open; open = 0 }
  END { print passed + 0, failed + 0, skipped + 0, programs - finished }
' "$log")

# They are named together, since what they printed is far above.
awk '
  FILENAME == ARGV[1] { flaky[$0]; next }
  { gsub(/\033\[[0-9;]*m/, "") }
  /^ +Running / { crate = $2; job = $3; sub(/.*\//, "", job); sub(/\)$/, "", job) }
  /^test .* \.\.\. FAILED/ { print (job " " $2 in flaky ? "FLAKY " : "FAILED: ") crate ": " $2 }
' "$folder/flaky" "$log"
passed=$((passed + flaky))
failed=$((failed - flaky))

echo
# They count as passed: libtest cannot skip a test while it runs.
unchecked=$(grep -c '^SKIPPED' "$log" || true)
[ "$unchecked" -eq 0 ] || echo "$unchecked check(s) of the tests lacked a program: see SKIPPED above"
if [ "$status" -ne 0 ] && [ "$unfinished" -gt 0 ]; then
  echo "$unfinished test program(s) ended without a result; each counts as a failure"
  failed=$((failed + unfinished))
fi
if [ "$flaky" -gt "$FLAKY_MAX" ]; then
  echo "$flaky tests passed only when they ran alone; at most $FLAKY_MAX may"
  status=1
fi
if [ $((passed + failed)) -eq 0 ]; then
  [ "$status" -eq 0 ] || echo 'the tests could not be built: see above'
  echo 'no test ran'
  status=1
fi
if [ "$failed" -gt 0 ] && [ "$status" -eq 0 ]; then status=1; fi
if [ "$skipped" -gt 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
exit "$status"
