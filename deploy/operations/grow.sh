#!/usr/bin/env bash
# Let a new server, with an empty data directory, into the cluster. It takes
# everything in before it has a vote.
# usage: grow.sh ID
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

id=${1:?usage: grow.sh ID}
[[ " $SERVERS " == *" $id "* ]] || SERVERS+=" $id"
give_keyring "$id"
site_start "$id"
within "the cluster sees $id" lh raft add "$id" --timeout 2s
within "$id has caught up and is a voter" is_voter "$id"
lh raft peers
