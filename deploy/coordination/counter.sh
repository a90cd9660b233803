#!/usr/bin/env bash
# Counter and sequential ids (Curator DistributedAtomicLong, ZooKeeper sequential nodes): seq draws a
# number that is never given twice. A number that can also go down is a compare-and-set in a loop.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
for _ in 1 2 3 4; do leasehold seq "$NAME/ids" >>"$DIR/ids" & done
wait
want "four ids, all different" 4 "$(sort -u "$DIR/ids" | wc -l)"
leasehold kv del "$NAME/ids/" --prefix >/dev/null
want "not even after all were deleted" 5 "$(leasehold seq "$NAME/ids")"

leasehold kv put "$NAME/n" 0 >/dev/null
cat >"$DIR/add" <<'SH'
until n=$(leasehold kv get "$NAME/n") && leasehold kv cas "$NAME/n" --if-value "$n" $((n + $1)) >/dev/null 2>&1; do :; done
SH
for step in 3 -1 3; do sh "$DIR/add" "$step" & done
wait
want "the sum" 5 "$(leasehold kv get "$NAME/n")"
