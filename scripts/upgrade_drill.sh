#!/usr/bin/env bash
# Upgrades an older program to this one during a rush, role by role, on real servers.
#
#   scripts/upgrade_drill.sh REV
#
# Builds `stockade` of REV in a worktree with a target folder of its own, below target/upgrade, and
# keeps both: a second run of the same commit builds nothing. The drill is `upgrade::` of
# lab/acceptance; its output counts the answers of each phase.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# != 1 ]; then
  echo 'usage: scripts/upgrade_drill.sh REV' >&2
  exit 2
fi
if ! commit=$(git rev-parse --short=12 --verify --quiet "$1^{commit}"); then
  echo "upgrade_drill.sh: this clone has no $1; \`git fetch --unshallow\` gets the history of a shallow one" >&2
  exit 2
fi
folder=$PWD/target/upgrade/$commit
target=$folder/target
if [ ! -x "$target/debug/stockade" ]; then
  # Forced: git still knows a worktree whose folder was removed with `target`.
  [ -e "$folder/source/Cargo.toml" ] || git worktree add --force --detach "$folder/source" "$commit"
  # Its manifest, but not the settings of this folder's cargo: the old lock file decides.
  (cd "$folder/source" && CARGO_TARGET_DIR=$target cargo build --locked -p stockade)
fi

# shellcheck disable=SC2086 # flags, or nothing
cargo build ${CARGO_FLAGS:-} -p stockade
log=$folder/log
# shellcheck disable=SC2086 # flags, or nothing
STOCKADE_OLD_PROGRAM=$target/debug/stockade cargo test ${CARGO_FLAGS:-} -p acceptance --test it -- \
  upgrade:: --ignored --nocapture --test-threads 1 2>&1 | tee "$log"
# A filter that matches no test succeeds, too.
if ! grep -qE '^test result: ok\. [1-9][0-9]* passed; 0 failed;' "$log"; then
  echo 'upgrade_drill.sh: no drill ran' >&2
  exit 1
fi
echo "upgraded from $commit"
