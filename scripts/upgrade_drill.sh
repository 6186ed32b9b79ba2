#!/usr/bin/env bash
# Upgrades an older program to this one during a rush, role by role, on real servers.
#
#   scripts/upgrade_drill.sh REV
#
# Builds `stockade` of REV in a worktree with a target folder of its own, below target/upgrade, and keeps both:
# a second run of the same commit builds nothing. The drill is `upgrade::` of lab/acceptance; its output counts
# the answers of each phase.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# != 1 ]; then
  echo 'usage: scripts/upgrade_drill.sh REV' >&2
  exit 2
fi
commit=$(git rev-parse --short=12 --verify "$1^{commit}")
folder=$PWD/target/upgrade/$commit
target=$folder/target
if [ ! -x "$target/debug/stockade" ]; then
  [ -d "$folder/source" ] || git worktree add --detach "$folder/source" "$commit"
  # Its manifest, but not the settings of this folder's cargo: the old lock file decides.
  (cd "$folder/source" && CARGO_TARGET_DIR=$target cargo build --locked -p stockade)
fi

cargo build -p stockade
STOCKADE_OLD_PROGRAM=$target/debug/stockade cargo test -p acceptance --test it -- \
  upgrade:: --nocapture --test-threads 1
echo "upgraded from $commit"
