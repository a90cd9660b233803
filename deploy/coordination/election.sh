#!/usr/bin/env bash
# shellcheck disable=SC2016 # the commands expand their variables
# Leader election (Curator LeaderSelector, etcdctl elect, Consul leader election, Kubernetes Lease):
# one leads, others stand by, everybody can see who. For Go programs with client-go's election:
# ownership/examples/clientgo.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
leasehold elect -l "$NAME" >"$DIR/seen" &
observer=$!
leasehold elect "$NAME" a:80 -- sh -c 'echo "a $LEASEHOLD_TOKEN" >>"$DIR/led"; exec sleep 60' 2>/dev/null &
a=$!
soon "a leads" grep -q '^a ' "$DIR/led"
leasehold elect "$NAME" b:80 -- sh -c 'echo "b $LEASEHOLD_TOKEN" >>"$DIR/led"; exec sleep 60' 2>/dev/null &
b=$!
soon "b stands by" bash -c '[ "$(leasehold kv get "$NAME/" --prefix --count)" = 2 ]'
soon "the observer saw a" grep -q '^a:80$' "$DIR/seen"
want "only one leads" 1 "$(wc -l <"$DIR/led")"
kill "$a" # it steps down when its work has ended
soon "b leads" grep -q '^b ' "$DIR/led"
soon "the observer saw both" grep -q '^b:80$' "$DIR/seen"
want "who led" "a:80 b:80" "$(grep -v '^$' "$DIR/seen" | tr '\n' ' ' | sed 's/ $//')"
cut -d' ' -f2 "$DIR/led" >"$DIR/tokens"
rising "$DIR/tokens"
kill "$b" "$observer"
wait "$a" "$b" "$observer" || true
