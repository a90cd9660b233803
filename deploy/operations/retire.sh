#!/usr/bin/env bash
# Take a server out of the cluster for good, whether it still runs or not.
# usage: retire.sh ID
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

id=${1:?usage: retire.sh ID}
# An answer that was lost, with a leader that went, may have been that it is out.
late=
remove() {
  local rc=0
  lh raft remove "$id" --yes || rc=$?
  case $rc in
    0) return 0 ;;
    1 | 3) late=yes && return 1 ;;
    4) [[ -n $late ]] && return 0 ;;
  esac
  exit "$rc" # refused: asking again would not help
}
within "the cluster lets $id go" remove
within "$id is out" is_gone "$id"
site_stop "$id" || say "$id could not be stopped: it is harmless, but make sure that it does not stay"
lh raft peers
