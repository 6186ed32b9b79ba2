#!/usr/bin/env bash
# Tests the whole workspace, or what the arguments name, and ends with a line that counts the tests.
#
#   scripts/test.sh [ARGUMENT OF `cargo test`...]
#
# Fails if a test failed, if a test program ended without a result, and if no test ran at all.
#
# Most tests wait for leases and servers. So the whole suite is built first, and then several test programs run
# concurrently: TEST_JOBS of them, each with RUST_TEST_THREADS tests.
set -euo pipefail
cd "$(dirname "$0")/.."
have() { command -v "$1" >/dev/null 2>&1; }
have cargo || PATH=${HOME:-/root}/.cargo/bin:$PATH

TEST_JOBS=${TEST_JOBS:-3}
# Crates whose tests take longest, so that none of them is still running when the others have ended.
LONGEST_FIRST='acceptance models stock reconciler order stockade-lab lock ledger testbed publisher bench recorder locks'

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

folder=$(mktemp -d "${TMPDIR:-/tmp}/stockade-test.XXXXXX")
log=$folder/log
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# queue ARGUMENT...: builds test programs, and notes them in $folder/jobs instead of running them. Tests in the
# documentation run at once: there are few.
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
  sorted_jobs | awk '!seen[$0]++' | xargs -n 1 -P "$TEST_JOBS" scripts/run_queued_test.sh
  # A job without a status was killed.
  local job
  for job in "$folder"/jobs/*; do
    [ "$(cat "$folder/status/${job##*/}" 2>/dev/null)" = 0 ] || status=1
  done
  return "$status"
}

status=0
if [ $# -eq 0 ]; then
  whole_suite 2>&1 | tee "$log" || status=$?
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

# `     Running unittests src/lib.rs (target/debug/deps/domain-0123)`, `   Doc-tests domain`
# `test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s`
read -r passed failed skipped unfinished < <(awk '
  { gsub(/\033\[[0-9;]*m/, "") }
  /^ +Running .*\/deps\/.*\)$|^ +Doc-tests / { programs++; open = 1 }
  /^test result: / { passed += $4; failed += $6; skipped += $8; finished += open; open = 0 }
  END { print passed + 0, failed + 0, skipped + 0, programs - finished }
' "$log")

# They are named together, since what they printed is far above.
awk '
  { gsub(/\033\[[0-9;]*m/, "") }
  /^ +Running / { crate = $2 }
  /^test .* \.\.\. FAILED$/ { print "FAILED: " crate ": " $2 }
' "$log"

echo
if [ "$status" -ne 0 ] && [ "$unfinished" -gt 0 ]; then
  echo "$unfinished test program(s) ended without a result; each counts as a failure"
  failed=$((failed + unfinished))
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
