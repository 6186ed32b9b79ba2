#!/bin/sh
# sentinel.sh NAME MASTER: starts the Sentinel NAME, which watches the stock. It keeps its votes
# beside its configuration.
set -eu
file=/data/sentinel.conf
if [ ! -f "$file" ]; then
  cat >"$file.new" <<END
port 26379
protected-mode no
dir /data
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $1
sentinel monitor stock $2 6379 2
sentinel down-after-milliseconds stock 2000
sentinel failover-timeout stock 10000
sentinel parallel-syncs stock 1
END
  mv "$file.new" "$file"
fi
exec redis-server "$file" --sentinel
