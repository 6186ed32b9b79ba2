#!/usr/bin/env bash
# Fails when scripts/test.sh judges a suite wrongly: with a cargo of its own, whose test programs
# pass, fail, or fail once.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/deps"

# Builds nothing, and hands each program to the runner, as cargo does.
cat >"$folder/bin/cargo" <<'END'
#!/usr/bin/env bash
[ "$1" = test ] || exit 0
echo '   Compiling fake'
shopt -s nullglob
for program in "$FAKE_PROGRAMS"/*; do CARGO_PKG_NAME=fake scripts/queue_test.sh "$program"; done
END

# Its name is the list of its tests: `ok`, `bad` always fails, `once` fails at first, `killed` ends
# the program, `lacks` checks nothing.
cat >"$folder/program" <<'END'
#!/usr/bin/env bash
state=$FAKE_STATE/${0##*/} failed=0
tests=${0##*/}
[ "${1:-}" != --exact ] || tests=$2
for test in ${tests//-/ }; do
  result=ok
  case $test in
    bad*) result=FAILED ;;
    once*) [ -e "$state.$test" ] || result=FAILED; touch "$state.$test" ;;
    killed*) exit 137 ;;
    lacks*) printf '\nSKIPPED: a program\n' ;;
  esac
  [ "$result" = ok ] || failed=$((failed + 1))
  echo "test $test ... $result"
done
[ "$failed" -gt 0 ] || result=ok
echo "test result: $result. $(($(wc -w <<<"${tests//-/ }") - failed)) passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
[ "$failed" -eq 0 ]
END
chmod +x "$folder/bin/cargo" "$folder/program"

status=0
# suite LAST-LINE EXIT-STATUS LINE PROGRAM...: LINE must be there, unless it is empty
suite() {
  local last=$1 expected=$2 line=$3 program output found=0
  shift 3
  rm -rf "$folder/state" "$folder/deps"
  mkdir "$folder/state" "$folder/deps"
  for program; do ln -s ../program "$folder/deps/$program"; done
  output=$(PATH=$folder/bin:$PATH FAKE_PROGRAMS=$folder/deps FAKE_STATE=$folder/state CARGO_FLAGS='' TEST_TIMES='' scripts/test.sh 2>&1) || found=$?
  if [ "$(tail -1 <<<"$output")" != "$last" ] || [ "$found" -ne "$expected" ] || { [ -n "$line" ] && ! grep -qxF "$line" <<<"$output"; }; then
    printf '%s\n' "$output"
    echo "scripts/test.sh: $*: expected '$line', '$last' and $expected, and it ended with $found" >&2
    status=1
  fi
}

suite '3 passed, 0 failed' 0 '' ok1-ok2 ok3
suite '1 passed, 1 failed' 1 'FAILED: fake: bad1' ok1-bad1
suite '3 passed, 0 failed' 0 'FLAKY fake: once1' ok1-once1 ok2
suite '3 passed, 0 failed' 0 'FLAKY fake: once3' once1-once2 once3
suite '4 passed, 0 failed' 1 '4 tests passed only when they ran alone; at most 3 may' once1-once2 once3-once4
suite '2 passed, 1 failed' 1 'FAILED: fake: bad1' once1-bad1 ok1
suite '1 passed, 1 failed' 1 '1 test program(s) ended without a result; each counts as a failure' ok1 killed1
suite '1 passed, 1 failed' 1 '1 test program(s) ended without a result; each counts as a failure' once1-killed1 ok1
suite '2 passed, 0 failed' 0 '1 check(s) of the tests lacked a program: see SKIPPED above' ok1 lacks1
suite '0 passed, 0 failed' 1 'no test ran'
exit "$status"
