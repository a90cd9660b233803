#!/usr/bin/env bash
# Unique names (ZooKeeper create without sequence, etcd txn on version 0, Consul cas=0): whoever
# creates the key has the name. Under a session the name comes free when its owner is gone.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
for i in 1 2 3; do (leasehold kv cas "$NAME/alice" --if-absent "owner $i" >/dev/null 2>&1 && echo "$i" >>"$DIR/won") & done
wait
want "one has it" 1 "$(wc -l <"$DIR/won")"
want "it is the one who was told so" "owner $(cat "$DIR/won")" "$(leasehold kv get "$NAME/alice")"
# shellcheck disable=SC2016
leasehold session -- sh -c 'leasehold kv cas "$NAME/bob" --if-absent me --session "$LEASEHOLD_SESSION" >/dev/null'
code=0
leasehold kv get "$NAME/bob" >/dev/null 2>&1 || code=$?
want "bob is free again" 4 "$code"
