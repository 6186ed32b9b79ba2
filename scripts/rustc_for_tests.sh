#!/usr/bin/env bash
# The compiler of our own crates in scripts/test.sh and in `make lint`, which name it to cargo as the
# wrapper of rustc. It compiles a crate, lints it, and checks its documentation.
#
#   scripts/rustc_for_tests.sh RUSTC [ARGUMENT OF rustc...]
#
# With `cargo clippy` and `cargo doc`, every dependency and every crate of ours would be compiled once
# for the tests, and read once or twice more. cargo keeps the warnings with what it has built, and
# repeats them: scripts/lint_rust.sh looks for them, and fails. Here they are no errors, so that tests run
# whatever a lint says.
#
# The tests run what they test thousands of times, in each process that they start, and themselves
# once. So the libraries below are optimized a little, and no test is. A profile of cargo cannot tell
# a crate from its tests: with it, the tests of these crates would take longer to build than they
# save.
#
# cargo does not see a change of this file: after one, `cargo clean` the crates concerned.
set -euo pipefail

OFTEN_RUN=' audit domain ledger order reconciler recorder stock testkit '

crate='' is_test='' is_optimized=''
for ((i = 2; i <= $#; i++)); do
  case ${!i} in
    --test) is_test=1 ;;
    # A profile that optimizes by itself.
    opt-level=*) is_optimized=1 ;;
    --crate-name)
      next=$((i + 1))
      crate=${!next:-}
      ;;
  esac
done

# What cargo asks the compiler itself.
case $crate in '' | ___) exec "$@" ;; esac

# clippy's driver is rustc with lints.
compiler=(clippy-driver "$@")
if ! command -v clippy-driver >/dev/null 2>&1; then
  compiler=("$@")
  echo "warning: $crate is compiled without lints: install clippy, then \`cargo clean -p $crate\`" >&2
fi
[ -z "$is_test" ] || exec "${compiler[@]}"

# With what a profile without optimization checks.
if [ -z "$is_optimized" ] && [[ $OFTEN_RUN == *" $crate "* ]]; then
  compiler+=(-C opt-level=1 -C debug-assertions=on -C overflow-checks=on)
fi
"${compiler[@]}"
case $crate in build_script_*) exit ;; esac

# The same arguments, without what a compiler writes. Its option `--check`, which writes no pages, is
# not stable.
document=(--check -Z unstable-options)
for ((i = 2; i <= $#; i++)); do
  case ${!i} in
    --emit=*) ;;
    --out-dir | -C) i=$((i + 1)) ;;
    *) document+=("${!i}") ;;
  esac
done
RUSTC_BOOTSTRAP=1 rustdoc "${document[@]}"
