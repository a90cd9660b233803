# shellcheck shell=bash
# Shared by the procedures of this folder; not a program of its own.
#
# The procedures know nothing about how a server is started. That is in a site
# file: SITE names it, systemd.sh is the default. It sets SERVERS, the ids of
# the cluster, and defines
#
#   site_start ID       start the server, and return when the process runs
#   site_stop ID        stop it in order; no error if it does not run
#   site_data ID        print its data directory
#   site_wipe ID        empty its data directory
#   site_run ID CMD…    run a command on its machine, where that directory is
#   site_addr ID PORT   print host:port of its grpc, raft, gossip or http port
#   site_upgrade ID     put the new program in place of the old one
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=/dev/null
source "${SITE:-$here/systemd.sh}"

: "${PATIENCE:=120}" # seconds that any one wait may take
said=                # by the server that was asked last, if it is not ready

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# Every server is asked: which of them runs is what a procedure changes.
addrs() {
  local id all=
  for id in $SERVERS; do all+=${all:+,}$(site_addr "$id" grpc); done
  printf '%s' "$all"
}
lh() { LEASEHOLD_SERVER=$(addrs) leasehold "$@"; }

# within WHAT CMD… repeats a command until it succeeds.
within() {
  local what=$1 until=$((SECONDS + PATIENCE))
  shift
  until "$@"; do
    ((SECONDS < until)) || die "not within $PATIENCE s: $what${said:+: $said}"
    sleep 0.5
  done
}

peers() { lh raft peers -o wide --timeout 2s 2>/dev/null; } # columns: id, role, voter, …

# is_voter asks for the data directory, not for the id: until a wiped server has
# taken its former self's place, that one is still listed, as a voter.
is_voter() {
  local store
  store=$(site_run "$1" cat "$(site_data "$1")/store-id") || return
  peers | awk -v store="$store" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == "STORE") col = i }
    NR > 1 && $col == store && $3 == "yes" { ok = 1 }
    END { exit !ok }'
}
is_gone() { peers | awk -v id="$1" 'NR > 1 { seen = 1 } $1 == id { bad = 1 } END { exit !seen || bad }'; }
leader() { peers | awk '$2 == "leader" { print $1; exit }'; }

# is_ready asks the server itself: it has a leader and has caught up. Else said is
# why not; a server that is empty yet does not know credentials either.
is_ready() {
  local rc=0
  said=$(LEASEHOLD_SERVER=$(site_addr "$1" grpc) leasehold status --wait --timeout 5s 2>&1 >/dev/null) || rc=$?
  case $rc in 2 | 126 | 127) die "$1 cannot be asked: $said" ;; esac
  return "$rc"
}

# give_keyring lets an empty server hear the others: since the key of gossip was
# changed its key file may have an old one.
give_keyring() {
  local other keys
  for other in $SERVERS; do
    if [[ $other == "$1" ]] || ! is_ready "$other"; then continue; fi
    keys=$(site_run "$other" cat "$(site_data "$other")/gossip-keyring" 2>/dev/null) || return 0
    # shellcheck disable=SC2016 # it is for the shell over there
    site_run "$1" sh -c 'umask 077; mkdir -p "$1"; cd "$1"; test -e gossip-keyring || cat >gossip-keyring' sh "$(site_data "$1")" <<<"$keys"
    return 0
  done
}
