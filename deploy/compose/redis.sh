#!/bin/sh
# redis.sh NAME [MASTER]: starts the Redis server NAME of the stock, at first as a replica of
# MASTER.
#
# Sentinel changes roles while the servers run, and Redis writes its role to this file. So the file
# is made once and kept beside the data: a server that restarts is what it was before.
set -eu
file=/data/redis.conf
if [ ! -f "$file" ]; then
  {
    # No port is published, and the network is internal.
    echo 'protected-mode no'
    echo 'dir /data'
    # A taken unit is on disk before Redis replies.
    echo 'appendonly yes'
    echo 'appendfsync always'
    # Full memory refuses writes instead of evicting keys; an order takes some 170 bytes.
    echo "maxmemory ${REDIS_MEMORY:-1gb}"
    echo 'maxmemory-policy noeviction'
    # A container has another address after a restart, and keeps its name.
    echo "replica-announce-ip $1"
    if [ -n "${2:-}" ]; then echo "replicaof $2 6379"; fi
  } >"$file.new"
  mv "$file.new" "$file"
fi
exec redis-server "$file"
