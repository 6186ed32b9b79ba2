#!/bin/sh
# Joins the six servers of the profile `cluster`: three masters, each with a replica. Does nothing
# if they are joined already.
set -eu
is_joined() {
  for node in 1 2 3 4 5 6; do
    redis-cli -h "cluster-$node" cluster info | grep -q '^cluster_state:ok' || return 1
  done
}

if ! redis-cli -h cluster-1 cluster info | grep -q '^cluster_known_nodes:6'; then
  addresses=
  # Redis joins nodes by address, not by name.
  for node in 1 2 3 4 5 6; do
    # shellcheck disable=SC2046 # ADDRESS NAME
    set -- $(getent hosts "cluster-$node")
    addresses="$addresses $1:6379"
  done
  # shellcheck disable=SC2086 # a list
  redis-cli --cluster create $addresses --cluster-replicas 1 --cluster-yes
fi
until is_joined; do sleep 1; done
echo 'the cluster is complete'
