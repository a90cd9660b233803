#!/usr/bin/env bash
# Restart or upgrade all servers, one at a time, the leader last. Nothing moves:
# a stopping leader hands on first, and sessions outlive the change.
# usage: roll.sh [restart|upgrade]
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

what=${1:-restart}
[[ $what == restart || $what == upgrade ]] || die "want restart or upgrade, not $what"
for id in $SERVERS; do is_ready "$id" || die "$id is not ready: one server down is enough, see leasehold doctor: $said"; done

last=
leads() { last=$(leader) && [[ -n $last ]]; } # there may be none for a moment
within "somebody leads" leads
order=
for id in $SERVERS; do [[ $id == "$last" ]] || order+=" $id"; done
for id in $order $last; do
  say "$what $id"
  site_stop "$id"
  if [[ $what == upgrade ]]; then site_upgrade "$id"; fi
  site_start "$id"
  within "$id is ready and has caught up" is_ready "$id"
done
lh raft peers -o wide
