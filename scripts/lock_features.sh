#!/usr/bin/env bash
# The flags with which cargo builds every backend of the lock and every sink of events, for the
# whole workspace or for some of its crates.
#
#   scripts/lock_features.sh [CRATE...]
#
# `stockade` has Redlock, Redis, PostgreSQL, SQLite and the Redis stream by default; the others cost
# a fresh `make up` a minute. etcd's is left out where protoc is missing.
set -euo pipefail

[ $# -gt 0 ] || set -- stockade stockade-lab acceptance
etcd=
if command -v protoc >/dev/null 2>&1; then etcd=etcd; fi

features=
for crate; do
  case $crate in
    stockade-lab) backends=$etcd ;;
    stockade) backends="mysql zookeeper consul $etcd nats amqp" ;;
    publisher) backends='nats amqp' ;;
    *) backends="mysql zookeeper consul $etcd" ;;
  esac
  for backend in $backends; do features=$features,$crate/$backend; done
done
echo "${features:+--features ${features#,}}"
