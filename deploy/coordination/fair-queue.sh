#!/usr/bin/env bash
# Fair queue (Curator DistributedQueue, etcd recipe PriorityQueue): items in the order in which they
# were put, each taken by exactly one. The deletion is the claim: it is conditional on the revision.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
for item in first second third fourth; do leasehold seq "$NAME" "$item" >/dev/null; done
cat >"$DIR/consume" <<'SH'
while item=$(leasehold kv get "$NAME/" --prefix --limit 1 2>/dev/null) && [ -n "$item" ]; do
  key=${item%%	*}
  rev=$(leasehold kv ls "$key" | awk 'NR == 2 {print $4}')
  [ -n "$rev" ] || continue # somebody was quicker
  leasehold kv del "$key" --if-rev "$rev" >/dev/null 2>&1 && echo "$1 ${item#*	}" >>"$DIR/taken"
done
SH
bash "$DIR/consume" c1 &
bash "$DIR/consume" c2 &
wait
want "each was taken once" "first fourth second third" "$(cut -d' ' -f2 "$DIR/taken" | sort | paste -sd' ')"
want "the queue is empty" 0 "$(leasehold kv get "$NAME/" --prefix --count)"
