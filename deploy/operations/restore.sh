#!/usr/bin/env bash
# Make a new cluster from a backup, on the machines of the old one, which is
# given up. Tokens go on above all that the old one granted; nothing is granted
# in strict keyspaces until its longest lease has run out.
# usage: restore.sh FILE    (asks nothing: set SURE=yes)
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

file=${1:?usage: restore.sh FILE}
[[ ${SURE:-} == yes ]] || die "this empties the data directories of $SERVERS: set SURE=yes if you mean it"
leasehold backup verify "$file"

for id in $SERVERS; do site_stop "$id" || die "$id still runs: two clusters must not serve the same workers"; done
first=${SERVERS%% *}
for id in $SERVERS; do site_wipe "$id"; done
# The file is here, the directory there.
site_run "$first" leasehold backup restore - --data-dir "$(site_data "$first")" --id "$first" \
  --raft-addr "$(site_addr "$first" raft)" --yes <"$file"
site_start "$first"
within "$first leads the new cluster" is_ready "$first"
for id in $SERVERS; do
  [[ $id != "$first" ]] || continue
  site_start "$id"
  within "the cluster sees $id" lh raft add "$id" --timeout 2s
  within "$id has caught up and is a voter" is_voter "$id"
done
lh status --wait
