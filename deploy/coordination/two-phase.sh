#!/usr/bin/env bash
# Two-phase commit (ZooKeeper's recipe): participants vote under the transaction's key, the decision
# is one key that is written once, and everybody follows it. A coordinator that dies in between leaves
# no decision; whoever takes over (election.sh) may only write one if there is none.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
cat >"$DIR/participant" <<'SH'
leasehold kv cas "$NAME/$1/vote/$2" --if-absent "$3" >/dev/null
leasehold kv watch "$NAME/$1/decision" --until present
echo "$2 $(leasehold kv get "$NAME/$1/decision")" >>"$DIR/$1"
SH
decide() { # TX N
  leasehold kv watch "$NAME/$1/vote/" --prefix --until "$2"
  if leasehold kv get "$NAME/$1/vote/" --prefix | grep -qv '	yes$'; then d=abort; else d=commit; fi
  leasehold kv cas "$NAME/$1/decision" --if-absent "$d" >/dev/null
}
for tx in "t1 yes yes" "t2 yes no"; do
  # shellcheck disable=SC2086
  set -- $tx
  sh "$DIR/participant" "$1" a "$2" &
  sh "$DIR/participant" "$1" b "$3" &
  decide "$1" 2
  wait
done
want "both voted yes" "a commit b commit" "$(sort "$DIR/t1" | paste -sd' ')"
want "one voted no" "a abort b abort" "$(sort "$DIR/t2" | paste -sd' ')"
code=0
leasehold kv cas "$NAME/t2/decision" --if-absent commit >/dev/null 2>&1 || code=$?
want "a decision stands" 5 "$code"
