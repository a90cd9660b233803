#!/usr/bin/env bash
# Read-write lock (Curator InterProcessReadWriteLock): a reader waits for older writers, a writer
# for everybody older. The place is a sequential key of a session, so it goes with its process.
#
#   leasehold session -- ./rwlock.sh hold read|write NAME CMD...
if [[ ${1:-} == hold ]]; then
  kind=$2 lock=$3
  shift 3
  me=$lock/$(printf %019d "$(leasehold seq "$lock" "$kind" --session "$LEASEHOLD_SESSION")")
  ahead() {
    leasehold kv get "$lock/" --prefix |
      awk -F'\t' -v me="$me" -v kind="$kind" '$1 >= me {exit} kind == "write" || $2 == "write" {last = $1} END {print last}'
  }
  while before=$(ahead) && [[ -n $before ]]; do leasehold kv watch "$before" --until absent; done
  exec "$@"
fi
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
cat >"$DIR/work" <<'SH'
echo "$1 in" >>"$DIR/log"; until [ -e "$DIR/go-$1" ]; do sleep 0.02; done; echo "$1 out" >>"$DIR/log"
SH
begin() { leasehold session -- "$0" hold "$1" "$NAME" sh "$DIR/work" "$2" & }
queued() { [[ $(leasehold kv get "$NAME/" --prefix --count) == "$1" ]]; }
begin read r1
soon "r1 reads" grep -q 'r1 in' "$DIR/log"
begin read r2
soon "r2 reads beside it" grep -q 'r2 in' "$DIR/log"
begin write w1
soon "w1 waits" queued 3
begin read r3
soon "r3 waits behind w1" queued 4
want "nobody else is in" "r1 in r2 in" "$(paste -sd' ' "$DIR/log")"
touch "$DIR/go-r1" "$DIR/go-r2" "$DIR/go-w1" "$DIR/go-r3"
wait
want "the writer was alone, and before the younger reader" "w1 in w1 out r3 in r3 out" "$(tail -4 "$DIR/log" | paste -sd' ')"
