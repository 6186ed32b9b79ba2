#!/usr/bin/env bash
# Fails when a crate depends on one of a layer above it.
#
#   crates/    on crates/ only
#   services/  on crates/ and services/
#   lab/       on anything, but lab/judge on crates/client only, and lab/reporting on none of ours
#   load-tests/  on crates/client, lab/judge and lab/reporting only; lab/chaos on these and
#                lab/testbed
#
# Tests of crates/ and services/ may use the lab's helpers; `stockade` itself uses nothing of the
# lab. crates/lock and crates/client can be used by other projects, so they depend on no other crate
# of ours. In what we ship there is one provider of cryptography, ring: with two of them rustls
# panics.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo >/dev/null 2>&1 || PATH=${HOME:-/root}/.cargo/bin:$PATH

HELPERS=' ablation cost testbed testkit testkit-macros '
status=0

wrong() {
  echo "$1" >&2
  status=1
}

# folder_of CRATE: crates/lock
folder_of() {
  local manifest
  for manifest in crates/"$1"/Cargo.toml services/"$1"/Cargo.toml lab/"$1"/Cargo.toml "$1"/Cargo.toml; do
    if [ -f "$manifest" ]; then
      echo "${manifest%/Cargo.toml}"
      return
    fi
  done
}

# ours CRATE KINDS: the crates of this workspace that it names in those tables of its manifest
ours() {
  # shellcheck disable=SC2086 # flags, or nothing
  cargo tree ${CARGO_FLAGS:-} --all-features --package "$1" --edges "$2" --depth 1 --prefix none --format '{p}' |
    awk -v root="$PWD/" 'NR > 1 && index($0, "(" root) { print $1 }' | sort -u
}

# check CRATE ALLOWED KINDS EXCEPT
check() {
  local dependency folder
  for dependency in $(ours "$1" "$3"); do
    folder=$(folder_of "$dependency")
    case " $2 " in *" ${folder%%/*} "*) continue ;; esac
    case $4 in *" $dependency "*) continue ;; esac
    wrong "$(folder_of "$1") depends on $folder ($3)"
  done
}

for manifest in crates/*/Cargo.toml services/*/Cargo.toml; do
  folder=${manifest%/Cargo.toml}
  crate=${folder#*/}
  case $folder in
    crates/lock | crates/client) check "$crate" '' normal,build '' ;;
    crates/*) check "$crate" crates normal,build '' ;;
    services/*) check "$crate" 'crates services' normal,build '' ;;
  esac
  case $folder in
    services/stockade) check "$crate" 'crates services' dev '' ;;
    *) check "$crate" 'crates services' dev "$HELPERS" ;;
  esac
done

# What judges Stockade from outside must not depend on the code that it judges.
check judge '' normal,build ' client '
check reporting '' normal,build ''
check chaos '' normal,build ' client judge reporting testbed '
check load-tests '' normal,build ' client judge reporting '

# The compiler of the tests knows crates by their names.
often_run=$(sed -n "s/^OFTEN_RUN='\(.*\)'$/\1/p" scripts/rustc_for_tests.sh)
for crate in $often_run; do
  [ -n "$(folder_of "$crate")" ] || wrong "scripts/rustc_for_tests.sh: there is no crate $crate"
done

# `load-tests` has the provider that goose asks for.
# shellcheck disable=SC2086 # flags, or nothing
if cargo tree ${CARGO_FLAGS:-} --workspace --exclude load-tests --all-features --edges all --prefix none --format '{p}' |
  grep -E '^aws-lc-(rs|sys) '; then
  wrong 'aws-lc is a dependency again: select the ring feature of every dependency instead'
fi

[ "$status" -ne 0 ] || echo 'no dependency points up, and ring is the only provider of cryptography'
exit "$status"
