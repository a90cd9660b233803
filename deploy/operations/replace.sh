#!/usr/bin/env bash
# Give a server an empty data directory: its disk was lost or is damaged. Under
# its old id it comes back without a vote, is caught up, and takes the place of
# its former self.
# usage: replace.sh ID
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

id=${1:?usage: replace.sh ID}
others=0
for other in $SERVERS; do
  if [[ $other != "$id" ]] && is_ready "$other"; then others=$((others + 1)); fi
done
n=$(wc -w <<<"$SERVERS")
((others > n / 2)) || die "only $others of the other servers are ready, less than a majority of $n: do not empty $id, see recover.sh"

site_stop "$id" || say "$id could not be stopped; going on"
site_wipe "$id"
give_keyring "$id"
site_start "$id"
within "$id has caught up" is_ready "$id"
within "$id is a voter again" is_voter "$id"
lh raft peers
