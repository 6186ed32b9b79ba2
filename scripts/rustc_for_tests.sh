#!/usr/bin/env bash
# The compiler of our own crates in scripts/test.sh, which names it to cargo as the wrapper of rustc.
#
#   scripts/rustc_for_tests.sh RUSTC [ARGUMENT OF rustc...]
#
# The tests run what they test thousands of times, in each process that they start, and themselves
# once. So the libraries below are optimized a little, and no test is. A profile of cargo cannot tell
# a crate from its tests: with it, the tests of these crates would take longer to build than they
# save.
#
# cargo does not see a change of this file: after one, `cargo clean` the crates concerned.
set -euo pipefail

OFTEN_RUN=' audit domain ledger order reconciler recorder stock testkit '

crate=''
for ((i = 2; i <= $#; i++)); do
  case ${!i} in
    # A test, or a profile that optimizes by itself.
    --test | opt-level=*) exec "$@" ;;
    --crate-name)
      next=$((i + 1))
      crate=${!next:-}
      ;;
  esac
done
case $OFTEN_RUN in
  # With what a profile without optimization checks.
  *" $crate "*) exec "$@" -C opt-level=1 -C debug-assertions=on -C overflow-checks=on ;;
esac
exec "$@"
