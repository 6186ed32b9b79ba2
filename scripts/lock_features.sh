#!/usr/bin/env bash
# The flags with which cargo builds every backend of the lock and every sink of events, for the
# whole workspace or for some of its crates.
#
#   scripts/lock_features.sh [CRATE...]
#
# They are the features of each crate that are not on by default: `stockade` has Redlock, Redis,
# PostgreSQL, SQLite and the Redis stream by default; the others cost a fresh `make up` a minute.
# etcd's is left out where protoc is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# The features of this manifest that are not on by default, without internal ones.
features_of() {
  awk '/^\[/ { inside = $0 == "[features]" }
    inside && /^default = / { on = $0; next }
    inside && /^[a-z]/ { names[++count] = $1 }
    END { for (i = 1; i <= count; i++) if (!index(on, "\"" names[i] "\"")) print names[i] }' "$1"
}

[ $# -gt 0 ] || set -- stockade stockade-lab acceptance

flags=
for crate; do
  for feature in $(features_of ./*/"$crate"/Cargo.toml); do
    [ "$feature" != etcd ] || command -v protoc >/dev/null 2>&1 || continue
    flags=$flags,$crate/$feature
  done
done
echo "${flags:+--features ${flags#,}}"
