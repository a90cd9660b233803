#!/usr/bin/env bash
# Barrier (Curator DistributedBarrier, etcd recipe Barrier): everybody waits until it is removed.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
leasehold kv put "$NAME" closed >/dev/null
for i in 1 2; do (leasehold kv watch "$NAME" --until absent && echo "$i" >>"$DIR/through") & done
sleep 0.3
want "nobody is through" "" "$(cat "$DIR/through" 2>/dev/null)"
leasehold kv del "$NAME" >/dev/null
wait
want "all are through" 2 "$(wc -l <"$DIR/through")"
