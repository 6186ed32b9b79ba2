#!/usr/bin/env bash
# Notes a test program instead of running it: scripts/test.sh gives this to cargo as the runner, and
# runs what was noted.
#
#   STOCKADE_TEST_QUEUE=FOLDER scripts/queue_test.sh PROGRAM [ARGUMENT...]
#
# cargo has set the folder and the environment that the program expects.
set -euo pipefail

# A test in the documentation is a temporary program, and waits for nothing.
case $1 in
  */deps/*) ;;
  *) exec "$@" ;;
esac

# FOLDER/NAME-HASH is a script. Its arguments go to the program.
job=$STOCKADE_TEST_QUEUE/${1##*/}
{
  printf 'cd %q\n' "$PWD"
  export -p | grep -E '^declare -x (CARGO|LD_LIBRARY_PATH|DYLD_)' || true
  printf 'exec'
  printf ' %q' "$@"
  # shellcheck disable=SC2016 # for the script
  echo ' "$@"'
} >"$job"
