#!/usr/bin/env bash
# Double barrier (Curator DistributedDoubleBarrier, etcd recipe DoubleBarrier): nobody begins before
# all have come, nobody leaves before all have finished. The readiness key is what late lookers see
# although the first has left already.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
cat >"$DIR/member" <<'SH'
me=$NAME/in/$1
leasehold kv put "$me" here --session "$LEASEHOLD_SESSION" >/dev/null
n=$(leasehold kv get "$NAME/in/" --prefix --count)
if [ "$n" -ge 3 ]; then leasehold kv put "$NAME/ready" yes >/dev/null; fi
leasehold kv watch "$NAME/ready" --until present
echo "$1 began" >>"$DIR/log"
leasehold kv del "$me" >/dev/null
leasehold kv watch "$NAME/in/" --prefix --until absent
echo "$1 left" >>"$DIR/log"
SH
for i in a b c; do leasehold session -- sh "$DIR/member" "$i" & done
wait
want "all began before one left" "began began began left left left" "$(cut -d' ' -f2 "$DIR/log" | paste -sd' ')"
leasehold kv del "$NAME/" --prefix >/dev/null
