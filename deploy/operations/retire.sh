#!/usr/bin/env bash
# Take a server out of the cluster for good, whether it still runs or not.
# usage: retire.sh ID
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

id=${1:?usage: retire.sh ID}
lh raft remove "$id" --yes
within "$id is out" is_gone "$id"
site_stop "$id" || say "$id could not be stopped: it is harmless, but make sure that it does not stay"
lh raft peers
