#!/usr/bin/env bash
# Form a cluster of the servers in SERVERS, which hold no data yet.
# usage: form.sh
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

n=$(wc -w <<<"$SERVERS")
for id in $SERVERS; do
  say "start $id"
  site_start "$id"
done
# Each server waits until it is told. All must see each other, or this is
# refused and changes nothing. An answer that came too late may have been that
# there is a cluster now: the next call is refused, and all of them vote.
late=
form() {
  local rc=0
  lh cluster init --expect "$n" --timeout 2s || rc=$?
  case $rc in
    0) return 0 ;;
    5) [[ -n $late && $(peers | awk '$3 == "yes" { n++ } END { print n + 0 }') == "$n" ]] ;;
    *) late=yes && return 1 ;;
  esac
}
within "the servers see each other" form
for id in $SERVERS; do within "$id is ready" is_ready "$id"; done
lh raft peers
