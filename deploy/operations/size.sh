#!/usr/bin/env bash
# Say how large the cluster is, how much room its servers have, and, with
# "bench", what a machine like this one can bear: that starts clusters of its
# own on loopback, so run it on a machine that has nothing else to do.
# usage: size.sh [bench]
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

[[ -z ${1:-} || $1 == bench ]] || die "want bench or nothing, not $1"
lh status
lh workers ls -o wide
for what in disk fsync lease; do lh check "$what" || true; done # a warning is part of the answer
[[ ${1:-} == bench ]] || exit 0
for what in assign sessions handoff; do leasehold bench "$what"; done
