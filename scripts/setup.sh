#!/usr/bin/env bash
# Installs the missing programs to build, run, test or measure Stockade. A second run has nothing to
# do.
#
#   scripts/setup.sh [--dry-run] [build|run|lint|api|test|bench|compose]
#
# Only the programs are needed: Stockade and its tests start private servers on free ports, in
# private folders. So no service starts while its package is being installed, and no service of a
# new package starts at the next boot. The script does not install Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# By scripts/setup.sh of Stockade, until its packages are installed.'
REDIS_MAJOR_MIN=7

say() { printf 'setup: %s\n' "$*"; }
fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

dry_run=
profile=run
for argument; do
  case $argument in
    --dry-run) dry_run=yes ;;
    build | run | lint | api | test | bench | compose) profile=$argument ;;
    *) fail "usage: scripts/setup.sh [--dry-run] [build|run|lint|api|test|bench|compose]" ;;
  esac
done

# Whether sudo may ask for a password.
interactive=
if [ -t 0 ] && [ -z "${CI:-}" ]; then interactive=yes; fi

# Debian keeps some programs here, and not every user's PATH does.
PATH=$PATH:/usr/sbin:/sbin
have cargo || PATH=${HOME:-/root}/.cargo/bin:$PATH

# --- what is installed ----------------------------------------------------------------------------

# A compiler without the C library's headers is found, and useless.
compiles_c() {
  if [ "$(uname)" = Darwin ]; then
    xcode-select -p >/dev/null 2>&1
    return
  fi
  have cc || return
  local object status=0
  object=$(mktemp)
  echo '#include <stdlib.h>' | cc -x c -c -o "$object" - 2>/dev/null || status=$?
  rm -f "$object"
  return "$status"
}

# `Redis server v=7.0.15 sha=...`
redis_version() { redis-server --version 2>/dev/null | sed -n 's/.* v=\([0-9.]*\).*/\1/p'; }

redis_is_new_enough() {
  local version
  version=$(redis_version) && [ -n "$version" ] && [ "${version%%.*}" -ge "$REDIS_MAJOR_MIN" ]
}

# PostgreSQL refuses to run as root; tests started by root run it as the user that its packages
# create.
has_postgres() {
  [ "$(id -u)" != 0 ] || id postgres >/dev/null 2>&1 || return
  have postgres && have psql && return
  local file
  for file in /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres \
    /opt/homebrew/opt/postgresql@*/bin/postgres /usr/local/opt/postgresql@*/bin/postgres; do
    [ -x "$file" ] && [ -x "${file%/*}/psql" ] && return
  done
  return 1
}

has_mariadb() {
  local folder
  if have mariadb-install-db && have mariadb; then
    for folder in '' /usr/libexec/; do have "${folder}mariadbd" && return; done
  fi
  for folder in /opt/homebrew/opt/mariadb/bin /usr/local/opt/mariadb/bin; do
    [ -x "$folder/mariadbd" ] && [ -x "$folder/mariadb-install-db" ] && [ -x "$folder/mariadb" ] && return
  done
  return 1
}

# The library as Debian has it, or a release; in either case with a Java that runs. macOS has a stub
# that only prints where to get Java.
has_zookeeper() {
  local found='' java folder
  [ -f /usr/share/java/zookeeper.jar ] && [ -f /usr/share/java/slf4j-simple.jar ] && found=yes
  for folder in /opt/homebrew/opt/zookeeper/libexec /usr/local/opt/zookeeper/libexec; do
    [ -d "$folder/lib" ] && found=yes
  done
  if [ -n "${ZOOKEEPER_HOME:-}" ]; then
    found=
    [ -d "$ZOOKEEPER_HOME/lib" ] && found=yes
  fi
  [ -n "$found" ] || return
  for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} /opt/homebrew/opt/openjdk/bin/java /usr/local/opt/openjdk/bin/java java; do
    "$java" -version >/dev/null 2>&1 && return
  done
  return 1
}

# Without the types that every protoc should know, it is found, and useless.
compiles_protobuf() {
  local folder status=0
  folder=$(mktemp -d)
  printf '%s\n' 'syntax = "proto3";' 'import "google/protobuf/empty.proto";' 'message A { google.protobuf.Empty b = 1; }' >"$folder/a.proto"
  "${PROTOC:-protoc}" -I "$folder" ${PROTOC_INCLUDE:+-I "$PROTOC_INCLUDE"} -o "$folder/a" "$folder/a.proto" 2>/dev/null || status=$?
  rm -rf "$folder"
  return "$status"
}

# Under any of its names. What a snap brings does not see /tmp, where tests write.
has_browser() {
  local name
  [ -z "$no_browser" ] || return 0
  for name in chromium google-chrome chromium-browser; do
    have "$name" && [ "$(basename "$(readlink -f "$(command -v "$name")")")" != snap ] && "$name" --version >/dev/null 2>&1 && return
  done
  if have apt-cache && apt_knows_packages && ! apt_offers_chromium; then
    do_without_browser
    return
  fi
  for name in Chromium 'Google Chrome'; do [ -x "/Applications/$name.app/Contents/MacOS/$name" ] && return; done
  return 1
}

# Ubuntu has none but the snap.
apt_offers_chromium() { apt_offers chromium; }

# apt_offers PACKAGE: as more than a wrapper of a snap
apt_offers() {
  case $(LC_ALL=C apt-cache policy "$1" | sed -n 's/^ *Candidate: *//p') in '' | '(none)' | *snap*) return 1 ;; esac
}

# Without a browser there is nothing to drive, and not every system that has one packages its
# driver.
has_browser_driver() {
  [ -z "$no_browser" ] || return 0
  have chromedriver && return
  if have apt-cache && apt_knows_packages && ! apt_offers chromium-driver; then
    say "this system's packages have no chromedriver, so the test that uses the pages is skipped"
    return
  fi
  return 1
}

apt_knows_packages() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

# Everything else can be tested without one.
do_without_browser() {
  no_browser=yes
  say "this system's packages have no Chromium, so tests that open a page in a browser are skipped;"
  say '  Google Chrome works as well: https://www.google.com/chrome/'
}

# The ledger and the lock use unhex() (3.41) and unixepoch('subsec') (3.42).
has_sqlite() {
  local folder status=0
  folder=$(mktemp -d)
  printf '%s\n' '#include <sqlite3.h>' '#if SQLITE_VERSION_NUMBER < 3042000' '#error too old' '#endif' \
    'int main(void) { return sqlite3_libversion_number() < 3042000; }' >"$folder/a.c"
  cc -o "$folder/a" "$folder/a.c" -lsqlite3 2>/dev/null || status=$?
  rm -rf "$folder"
  return "$status"
}

# In CI there is no terminal to ask for a password on.
may_install() {
  [ "$(id -u)" = 0 ] || { have sudo && { [ -n "$interactive" ] || sudo -n true 2>/dev/null; }; }
}

can_install() { { have apt-get && may_install; } || have brew; }

has_certificates() { [ "$(uname)" = Darwin ] || [ -d /etc/pki/tls/certs ] || [ -s /etc/ssl/certs/ca-certificates.crt ]; }

uses_only_own_redis() { [ -n "${REDIS_URL:-}" ] && [ -n "${LOCK_URLS:-}" ]; }

# --- what is missing ------------------------------------------------------------------------------

missing='' reasons='' apt_packages='' brew_packages=''
# Set where the system's packages have none.
no_browser=

# need NAME WHY APT_PACKAGES BREW_PACKAGES CHECK
need() {
  "$5" && return
  missing="$missing $1"
  reasons="$reasons$1: $2"$'\n'
  apt_packages="$apt_packages $3"
  brew_packages="$brew_packages $4"
}

has_make() { have make; }
has_curl() { have curl; }
has_ps() { have ps; }
has_etcd() { have etcd; }
has_nats() { have nats-server; }
has_pgbouncer() { have pgbouncer || [ -x /usr/sbin/pgbouncer ]; }
# What PATH has insists on a user of its own. The tests start the program behind it.
has_rabbitmq() {
  local folder
  for folder in /usr/lib/rabbitmq/bin /opt/homebrew/opt/rabbitmq/sbin /usr/local/opt/rabbitmq/sbin; do
    [ -x "$folder/rabbitmq-server" ] && have epmd && return
  done
  return 1
}
has_prometheus() { have prometheus && have promtool; }
has_wrk() { have wrk; }
has_haproxy() { have haproxy; }
# The clients need these versions.
has_node() { node -e 'process.exit(Number(process.versions.node.split(".")[0] < 18))' 2>/dev/null; }
# It runs on Node.js, and the test of the types does.
has_tsc() { has_node && tsc --version >/dev/null 2>&1; }
has_shellcheck() { have shellcheck; }
# Debian has the part of Python that makes environments in a package of its own.
has_venv() { has_python && python3 -c 'import ensurepip, venv' 2>/dev/null; }
has_python() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_missing() {
  missing='' reasons='' apt_packages='' brew_packages=''
  need make 'runs the targets' make make has_make
  need cc 'builds the C parts of TLS and the allocator' 'gcc libc6-dev' '' compiles_c
  need certificates 'cargo downloads over HTTPS' ca-certificates '' has_certificates
  # Where it cannot be installed, SQLite is built like the other dependencies. macOS has it, or an
  # older one.
  if [ "$profile" != build ] && have apt-get && may_install; then
    need sqlite 'is a ledger; building it takes a minute' libsqlite3-dev '' has_sqlite
  fi
  # Where they cannot be installed, the checks that need them are skipped.
  if uses_tools && can_install; then
    need python3-venv 'runs tools from PyPI; version 3.11 or newer' 'python3 python3-venv' python has_venv
    if [ "$profile" = lint ]; then
      need shellcheck 'lints the scripts' shellcheck shellcheck has_shellcheck
      need protoc 'builds the client of etcd' 'protobuf-compiler libprotobuf-dev' protobuf compiles_protobuf
      need tsc 'checks the types of the client for JavaScript' 'nodejs node-typescript' typescript has_tsc
    fi
  fi
  case $profile in build | lint) return ;; esac
  need curl 'talks to the service' curl curl has_curl
  if [ "$profile" != run ] || ! uses_only_own_redis; then
    need redis-server "holds the stock and the locks; version $REDIS_MAJOR_MIN or newer" redis-server redis redis_is_new_enough
  fi
  case $profile in run | api) return ;; esac
  need postgresql 'is a ledger that the tests start' postgresql postgresql@17 has_postgres
  if [ "$profile" = compose ]; then
    need haproxy 'passes requests on to the services' haproxy haproxy has_haproxy
    need prometheus 'watches the services' prometheus prometheus has_prometheus
    return
  fi
  need mariadb 'is a ledger that the tests start' 'mariadb-server-core mariadb-client-core' mariadb has_mariadb
  need etcd 'is a lock backend that the tests start' etcd-server etcd has_etcd
  need zookeeper 'is a lock backend that the tests start' 'libzookeeper-java default-jre-headless' zookeeper has_zookeeper
  need pgbouncer 'pools connections in a test' pgbouncer pgbouncer has_pgbouncer
  need nats-server 'takes events in the tests' nats-server nats-server has_nats
  need rabbitmq 'takes events in the tests' rabbitmq-server rabbitmq has_rabbitmq
  need protoc 'builds the client of etcd' 'protobuf-compiler libprotobuf-dev' protobuf compiles_protobuf
  need chromium 'renders the pages that the tests write' chromium google-chrome has_browser
  need chromedriver 'uses the pages in a browser' chromium-driver chromedriver has_browser_driver
  need prometheus 'checks the alerts, and scrapes a process in a test' prometheus prometheus has_prometheus
  need node 'runs the client for JavaScript; version 18 or newer' nodejs node has_node
  need python3 'runs the client for Python and the example shop; version 3.11 or newer' python3 python has_python
  need ps 'shows the tests which servers still run' procps '' has_ps
  case $profile in test) return ;; esac
  need wrk 'loads the service with requests' wrk wrk has_wrk
}

# --- Rust -----------------------------------------------------------------------------------------

check_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  have cargo || fail "Rust is not installed. Get it from https://rustup.rs, then run this again:" \
    "  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  found=$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
  older "$found" "$wanted" && fail "Rust $wanted or newer is needed, found $found: run \`rustup update stable\`"
  case $profile in lint | test) check_rust_components ;; esac
}

# older 1.93 1.94
older() {
  local major=${1%%.*} minor=${1#*.} major_min=${2%%.*} minor_min=${2#*.}
  [ "$major" -lt "$major_min" ] || { [ "$major" -eq "$major_min" ] && [ "${minor%%.*}" -lt "${minor_min%%.*}" ]; }
}

check_rust_components() {
  cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 && return
  if ! have rustup; then
    # Tests run without them.
    [ "$profile" = lint ] || return 0
    fail 'rustfmt and clippy are missing: install them the way that you installed Rust'
  fi
  say 'rustfmt or clippy is missing: rustup component add rustfmt clippy'
  [ -n "$dry_run" ] || rustup component add rustfmt clippy || [ "$profile" != lint ]
}

# --- SQLite ---------------------------------------------------------------------------------------

CARGO_CONFIG=.cargo/config.toml
CARGO_CONFIG_MARK='# By scripts/setup.sh: this system has SQLite. Without this file cargo builds it from source.'

# Every cargo run in this folder must use the same SQLite, or each run builds the ledger again.
choose_sqlite() {
  if [ -e "$CARGO_CONFIG" ] && ! grep -qF "$CARGO_CONFIG_MARK" "$CARGO_CONFIG"; then return; fi
  if ! has_sqlite; then
    rm -f "$CARGO_CONFIG"
    return
  fi
  [ ! -e "$CARGO_CONFIG" ] || return 0
  mkdir -p "${CARGO_CONFIG%/*}"
  printf '%s\n[env]\nLIBSQLITE3_SYS_USE_PKG_CONFIG = "1"\n' "$CARGO_CONFIG_MARK" >"$CARGO_CONFIG"
}

# --- tools from PyPI ------------------------------------------------------------------------------

# An environment of their own: Debian's and Homebrew's Python refuse packages from elsewhere.
TOOLS=target/tools
TOOLS_LIST=scripts/tools.txt

uses_tools() { case $profile in lint | api) ;; *) return 1 ;; esac; }
has_tools() { cmp -s "$TOOLS_LIST" "$TOOLS/installed.txt" && "$TOOLS/bin/python3" -c '' 2>/dev/null; }

# Without them, the checks that need them say so and are skipped.
install_tools() {
  if ! uses_tools || has_tools; then return 0; fi
  say "installing $TOOLS_LIST into $TOOLS"
  [ -z "$dry_run" ] || return 0
  rm -rf "$TOOLS"
  mkdir -p "${TOOLS%/*}"
  if has_venv && python3 -m venv "$TOOLS" && "$TOOLS/bin/python3" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement "$TOOLS_LIST" </dev/null; then
    cp "$TOOLS_LIST" "$TOOLS/installed.txt"
    return
  fi
  rm -rf "$TOOLS"
  say 'that failed: the checks that need these tools will be skipped'
}

# --- installing -----------------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif [ -n "$interactive" ]; then
    sudo "$@"
  else
    sudo -n "$@"
  fi
}

# Shows errors immediately, and the rest of the output only on failure.
apt() {
  local log status=0
  log=$(mktemp)
  as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -o DPkg::Lock::Timeout=300 -qq "$@" </dev/null >"$log" || status=$?
  [ "$status" -eq 0 ] || cat "$log"
  rm -f "$log"
  return "$status"
}

# without_package PACKAGE: $apt_packages without it
without_package() {
  local packages="$apt_packages "
  packages=${packages/ $1 / }
  printf '%s' "${packages% }"
}

apt_has() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_with_apt() {
  if [ "$(id -u)" != 0 ] && ! have sudo; then
    fail 'neither root nor sudo: ask an administrator to run' "  apt-get install --no-install-recommends$apt_packages"
  fi
  say "apt-get install --no-install-recommends$apt_packages"
  [ -z "$dry_run" ] || return 0
  apt update || say 'apt-get update failed; continuing with the existing package lists'
  case " $apt_packages " in *' redis-server '*) check_redis_candidate ;; esac
  case " $apt_packages " in *' chromium '*) apt_offers_chromium || { do_without_browser && apt_packages=$(without_package chromium); } ;; esac
  case " $apt_packages " in *' chromium-driver '*) apt_offers chromium-driver || apt_packages=$(without_package chromium-driver) ;; esac
  [ -n "${apt_packages// /}" ] || return 0
  local services
  services=$(new_services)
  hold_services
  make_room_for_java
  # Without its linters, `lint` skips checks; everything else needs what is missing.
  # shellcheck disable=SC2086 # a list of names
  apt install -y --no-install-recommends $apt_packages || uses_tools || exit
  release_services
  keep_stopped "$services"
}

# The services that the packages bring, unless they were there before: " SERVICE..."
new_services() {
  local pair
  for pair in redis-server:redis-server postgresql:postgresql etcd-server:etcd prometheus:prometheus haproxy:haproxy nats-server:nats-server pgbouncer:pgbouncer \
    rabbitmq-server:rabbitmq-server; do
    case " $apt_packages " in *" ${pair%:*} "*) apt_has "${pair%:*}" || printf ' %s' "${pair#*:}" ;; esac
  done
  # RabbitMQ brings Erlang, and Erlang a port mapper.
  case " $apt_packages " in *' rabbitmq-server '*) apt_has erlang-base || printf ' epmd.socket epmd.service' ;; esac
}

# Java's package fails where there is no folder for its manual pages, as in the small images of
# Debian.
make_room_for_java() {
  case " $apt_packages " in *' default-jre-headless '*) as_root mkdir -p /usr/share/man/man1 ;; esac
}

# An older Redis is not worth installing.
check_redis_candidate() {
  local candidate
  candidate=$(LC_ALL=C apt-cache policy redis-server | sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}\([0-9]*\)\..*/\2/p')
  [ -z "$candidate" ] || [ "$candidate" -ge "$REDIS_MAJOR_MIN" ] || fail \
    "This system's packages offer Redis $candidate, and Stockade needs $REDIS_MAJOR_MIN or newer. Two ways out:" \
    "  the packages of Redis itself: https://redis.io/docs/latest/operate/oss_and_stack/install/install-stack/apt/" \
    "  servers of your own: set REDIS_URL and LOCK_URLS, and \`make up\` needs none here"
}

# Debian asks this file before it starts a service. One that is already there is the owner's, and
# stays.
hold_services() {
  if [ -e "$POLICY" ] && ! grep -qF "$POLICY_MARK" "$POLICY"; then return; fi
  trap release_services EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | as_root tee "$POLICY" >/dev/null
  as_root chmod 755 "$POLICY"
}

release_services() {
  if [ -e "$POLICY" ] && grep -qF "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi
}

# keep_stopped " SERVICE..."
keep_stopped() {
  if [ -z "$1" ] || [ ! -d /run/systemd/system ]; then return 0; fi
  say "systemctl disable --now$1 (only the programs are needed; \`systemctl enable --now$1\` undoes it)"
  # shellcheck disable=SC2086 # a list of names
  as_root systemctl --quiet disable --now $1 || say "that failed; see \`systemctl status$1\`"
}

install_with_brew() {
  case " $missing " in
    *' cc '*) fail "the command line tools of Xcode are missing: run \`xcode-select --install\`, then this again" ;;
  esac
  [ -n "${brew_packages// /}" ] || return 0
  say "brew install$brew_packages"
  # shellcheck disable=SC2086 # a list of names
  [ -n "$dry_run" ] || brew install $brew_packages </dev/null
}

install() {
  say "\`$profile\` needs programs that are not installed:"
  printf '%s' "$reasons" | sed 's/^/setup:   /'
  if have apt-get; then
    install_with_apt
  elif have brew; then
    install_with_brew
  elif [ "$(uname)" = Darwin ]; then
    fail 'install Homebrew (https://brew.sh), then run this again'
  else
    fail 'found neither apt-get nor brew: install the programs with your package manager, then run this again'
  fi
}

# --- main -----------------------------------------------------------------------------------------

find_missing
if [ -n "$missing" ]; then
  install
  if [ -n "$dry_run" ]; then
    install_tools
    check_rust
    exit 0
  fi
  hash -r
  find_missing
  # An older distribution has an older SQLite, and an older Python.
  missing=${missing/ sqlite/} missing=${missing/ python3-venv/}
  # The checks of `lint` say which of these they lack.
  if uses_tools; then missing=${missing/ shellcheck/} missing=${missing/ protoc/} missing=${missing/ tsc/}; fi
  [ -z "$missing" ] || fail "installed, but still not usable:$missing"
  check_rust
  choose_sqlite
  install_tools
  say "\`$profile\` has everything it needs now"
else
  check_rust
  [ -n "$dry_run" ] || choose_sqlite
  if uses_tools && ! has_tools; then
    install_tools
  else
    say "\`$profile\` has everything it needs; nothing to install"
  fi
fi
