#!/usr/bin/env bash
# Makes the images that docker-compose.yml needs and this machine does not have.
#
#   scripts/compose_images.sh [PROGRAM]
#
# PROGRAM is a built `stockade` (default: target/release/stockade); its image is STOCKADE_IMAGE
# (default: stockade). The images of the servers come from a registry. Where there is none they are
# made under the same names, of the programs that are installed here, with the libraries that these
# load and nothing else. STOCKADE_IMAGES=local asks no registry.
set -euo pipefail
cd "$(dirname "$0")/.."

PROGRAM=${1:-${CARGO_TARGET_DIR:-target}/release/stockade}
IMAGE=${STOCKADE_IMAGE:-stockade}
IMAGES=${STOCKADE_IMAGES:-auto}
PULL_SECONDS=120
MIB_MAX=60
REDIS_ID=999 POSTGRES_ID=999 PROXY_ID=99 NOBODY_ID=65534

say() { printf 'images: %s\n' "$*"; }
fail() {
  printf 'images: %s\n' "$@" >&2
  exit 1
}

work=$(mktemp -d "${TMPDIR:-/tmp}/stockade-images.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# --- a root folder --------------------------------------------------------------------------------

# The image that is being made: what it has, and what starts in it.
root='' changes=()

begin() {
  root=$work/root
  rm -rf "$root"
  mkdir -p "$root"/{etc,tmp,usr/bin,usr/lib,usr/lib64,usr/sbin}
  chmod 1777 "$root/tmp"
  local folder
  for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$root/$folder"; done
  printf 'root:x:0:0::/:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\n' >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  changes=(--change 'ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin' --change 'LABEL org.stockade.local=yes')
}

user() {
  printf '%s:x:%s:%s::/:/bin/sh\n' "$1" "$2" "$2" >>"$root/etc/passwd"
  printf '%s:x:%s:\n' "$1" "$2" >>"$root/etc/group"
}

# file FILE [PLACE]: with the libraries that it loads
file() {
  local place=$root${2:-$1} library
  mkdir -p "$(dirname "$place")"
  cp -L "$1" "$place"
  for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*'); do
    [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"; }
  done
}

# program NAME...: from this machine's PATH
program() {
  local name found
  for name; do
    found=$(PATH=$PATH:/usr/sbin:/sbin type -P "$name") || fail "$name is not installed: \`scripts/setup.sh compose\` installs it"
    file "$(readlink -f "$found")" "/usr/bin/$name"
  done
}

shell() {
  program cat mkdir mv rm sleep grep test getent
  file "$(readlink -f "$(command -v dash || command -v sh)")" /usr/bin/sh
}

# folder PATH ID: which belongs to this user
owned=()
folder() {
  mkdir -p "$root$1"
  owned+=(".$1" "$2")
}

change() { changes+=(--change "$1"); }

# commit IMAGE: needs neither a builder nor the right to give files away
commit() {
  local tar=$work/root.tar at
  local leave=()
  for ((at = 0; at < ${#owned[@]}; at += 2)); do leave+=(--exclude "${owned[at]}"); done
  tar -C "$root" --owner=0 --group=0 --numeric-owner "${leave[@]}" -cf "$tar" .
  for ((at = 0; at < ${#owned[@]}; at += 2)); do
    chmod 700 "$root/${owned[at]}"
    tar -C "$root" --owner="${owned[at + 1]}" --group="${owned[at + 1]}" --numeric-owner -rf "$tar" "${owned[at]}"
  done
  owned=()
  docker import "${changes[@]}" "$tar" "$1" >/dev/null
  rm -f "$tar"
}

# --- the images -----------------------------------------------------------------------------------

make_redis() {
  begin
  user redis "$REDIS_ID"
  shell
  program redis-server redis-cli
  folder /data "$REDIS_ID"
  change 'VOLUME /data'
  change 'WORKDIR /data'
  change 'CMD ["redis-server"]'
  commit "$1"
  say "$1: of $(redis-server --version | grep -o 'v=[0-9.]*') of this machine"
}

postgres_bin() {
  local found
  for found in /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres "$(readlink -f "$(command -v postgres || true)")"; do
    [ ! -x "$found" ] || dirname "$found"
  done | tail -n 1
}

# Does what the official image does with the same variables, once.
postgres_entry() {
  cat <<'END'
#!/bin/sh
set -eu
PGDATA=${PGDATA:-/var/lib/postgresql/data}
export PGDATA
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
  initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C >/dev/null
  rm /tmp/password
  echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
  echo "create database \"$POSTGRES_DB\"" | postgres --single -j postgres >/dev/null
fi
exec "$@" -c listen_addresses='*' -c unix_socket_directories=/tmp
END
}

make_postgres() {
  local bin share lib name
  bin=$(postgres_bin)
  [ -n "$bin" ] || fail "PostgreSQL is not installed: \`scripts/setup.sh compose\` installs it"
  share=$("$bin/pg_config" --sharedir) lib=$("$bin/pg_config" --pkglibdir)
  begin
  user postgres "$POSTGRES_ID"
  shell
  for name in postgres initdb pg_isready; do file "$bin/$name"; done
  mkdir -p "$root$lib" "$root$share" "$root/usr/share/zoneinfo" "$root/usr/local/bin"
  for name in "$lib"/{plpgsql,dict_snowball,libpqwalreceiver,*_and_*}.so; do file "$name"; done
  cp -rL "$share"/{postgres.bki,*.sql,*.sample,*.txt,timezonesets,tsearch_data} "$root$share"
  mkdir -p "$root$share/extension"
  cp -L "$share"/extension/plpgsql* "$root$share/extension"
  cp -rL /usr/share/zoneinfo/{UTC,Etc} "$root/usr/share/zoneinfo"
  postgres_entry >"$root/usr/local/bin/docker-entrypoint.sh"
  chmod 755 "$root/usr/local/bin/docker-entrypoint.sh"
  folder /var/lib/postgresql/data "$POSTGRES_ID"
  change "ENV PATH=/usr/local/bin:/usr/bin:/usr/sbin:$bin"
  change 'ENV TZ=UTC'
  change 'USER postgres'
  change 'VOLUME /var/lib/postgresql/data'
  change 'ENTRYPOINT ["docker-entrypoint.sh"]'
  change 'CMD ["postgres"]'
  commit "$1"
  say "$1: of $("$bin/postgres" --version) of this machine"
}

make_haproxy() {
  begin
  user haproxy "$PROXY_ID"
  program haproxy
  change 'USER haproxy'
  change 'CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]'
  commit "$1"
  say "$1: of $(PATH=$PATH:/usr/sbin haproxy -v | sed -n 's/^\(HAProxy version [^ ]*\).*/\1/p') of this machine"
}

make_prometheus() {
  begin
  user nobody "$NOBODY_ID"
  program prometheus promtool
  folder /prometheus "$NOBODY_ID"
  change 'USER nobody'
  change 'VOLUME /prometheus'
  change 'ENTRYPOINT ["prometheus"]'
  change 'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]'
  commit "$1"
  say "$1: of $(prometheus --version | sed -n '1s/^\(.* version [^ ]*\).*/\1/p') of this machine"
}

# What the Dockerfile says after its last COPY, one instruction a line.
last_instructions() { sed -n '/^USER /,$p' Dockerfile | sed -e '/^#/d' -e ':a' -e '/\\$/N; s/\\\n *//; ta'; }

make_product() {
  [ -x "$PROGRAM" ] || fail "$PROGRAM is missing: \`cargo build --release -p stockade\` builds it"
  begin
  user stockade 10001
  file "$PROGRAM" /usr/local/bin/stockade
  strip "$root/usr/local/bin/stockade" 2>/dev/null || true
  file /etc/ssl/certs/ca-certificates.crt
  mkdir -p "$root/srv"
  local instruction
  while IFS= read -r instruction; do change "$instruction"; done < <(last_instructions)
  commit "$IMAGE"
  local size libraries
  size=$(docker image inspect --format '{{.Size}}' "$IMAGE")
  libraries=$((size - $(stat -c %s "$root/usr/local/bin/stockade")))
  say "$IMAGE: $((size >> 20)) MiB, of which $((libraries >> 20)) MiB are libraries of the system"
  # A debug build is not what is shipped.
  case $PROGRAM in */debug/*) return ;; esac
  [ $((size >> 20)) -lt "$MIB_MAX" ] || fail "$IMAGE: expected less than $MIB_MAX MiB"
}

# --- main -----------------------------------------------------------------------------------------

has_image() { docker image inspect "$1" >/dev/null 2>&1; }
# The programs that images are made of, installed at most once.
programs() {
  [ -z "${installed:-}" ] || return 0
  installed=yes
  scripts/setup.sh compose
}
pull() { [ "$IMAGES" != local ] && timeout "$PULL_SECONDS" docker pull --quiet "$1" >/dev/null 2>&1; }

# The images that the file names, besides our own.
server_images() { sed -n 's/^ *image: *\([^$ ]*\)$/\1/p' docker-compose.yml | sort -u; }

for image in $(server_images); do
  if has_image "$image" || pull "$image"; then continue; fi
  programs
  case $image in
    redis:*) make_redis "$image" ;;
    postgres:*) make_postgres "$image" ;;
    haproxy:*) make_haproxy "$image" ;;
    prom/prometheus:*) make_prometheus "$image" ;;
    *) fail "$image: no registry has it, and this script does not know how to make it" ;;
  esac
done
make_product
