#!/usr/bin/env bash
# Runs `cargo test` on the whole workspace, or with the arguments given, and ends with a line that counts the tests.
#
# Fails if a test failed, if a test program ended without a result, and if no test ran at all.
set -euo pipefail
cd "$(dirname "$0")/.."
have() { command -v "$1" >/dev/null 2>&1; }
have cargo || PATH=${HOME:-/root}/.cargo/bin:$PATH

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

[ $# -gt 0 ] || set -- --workspace
# The backend on etcd is built where protoc is.
case " $* " in *' --workspace '* | *' stockade '*)
  # shellcheck disable=SC2206 # flags, or nothing
  features=(${LOCK_FEATURES:-})
  set -- "${features[@]}" "$@" ;;
esac

log=$(mktemp "${TMPDIR:-/tmp}/stockade-test.XXXXXX")
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
# shellcheck disable=SC2086 # flags, or nothing
cargo test ${CARGO_FLAGS:-} --no-fail-fast "$@" 2>&1 </dev/null | tee "$log" || status=$?

# `     Running unittests src/lib.rs (target/debug/deps/domain-0123)`, `   Doc-tests domain`
# `test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.10s`
read -r passed failed skipped unfinished < <(awk '
  { gsub(/\033\[[0-9;]*m/, "") }
  /^ +Running .*\/deps\/.*\)$|^ +Doc-tests / { programs++; open = 1 }
  /^test result: / { passed += $4; failed += $6; skipped += $8; finished += open; open = 0 }
  END { print passed + 0, failed + 0, skipped + 0, programs - finished }
' "$log")

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
