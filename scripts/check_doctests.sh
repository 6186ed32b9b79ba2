#!/usr/bin/env bash
# Fails when a manifest keeps code in the documentation of its crate from being tested, or has the
# documentation searched for code that it does not have. With `doctest = false` there is no search,
# which reads the whole crate in each run of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
# wrong FOLDER WHY
wrong() {
  echo "$1/Cargo.toml: $2" >&2
  status=1
}

# examples FOLDER: the lines where Rust code begins in the documentation of a crate. Every second
# fence ends a block.
examples() {
  local included
  included=$(sed -n 's/^#!\[doc = include_str!("\(.*\)")\]$/\1/p' "$1/src/lib.rs")
  find "$1/src" -name '*.rs' -exec grep -hE '^ *//[/!] *```' {} + | sed 's|^ *//[/!] *||' | blocks
  [ -z "$included" ] || grep '^```' "$1/src/$included" | blocks
}

blocks() { awk 'NR % 2 == 1 && /^```(rust|no_run|should_panic|compile_fail|edition[0-9]+|,)*$/'; }

for manifest in */*/Cargo.toml; do
  folder=${manifest%/Cargo.toml}
  [ -f "$folder/src/lib.rs" ] || continue
  found=$(examples "$folder" || true)
  if grep -qx 'doctest = false' "$manifest"; then
    [ -z "$found" ] || wrong "$folder" 'remove "doctest = false": the documentation has code'
  else
    [ -n "$found" ] || wrong "$folder" 'add "doctest = false" to [lib]: the documentation has no code'
  fi
done

[ "$status" -ne 0 ] || echo 'all code in the documentation is tested, and no other documentation is read for it'
exit "$status"
