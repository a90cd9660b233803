#!/usr/bin/env bash
# Configuration watch (Curator NodeCache, etcdctl watch, consul watch, Kubernetes ConfigMap): read it
# once, follow it from there, and change it only if nobody else has.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
rev=$(leasehold kv put "$NAME" 'limit: 100')
leasehold kv watch "$NAME" --rev "$rev" --limit 3 >"$DIR/seen" &
second=$(leasehold kv cas "$NAME" --if-rev "$rev" 'limit: 200')
code=0
leasehold kv cas "$NAME" --if-rev "$rev" 'limit: 300' 2>"$DIR/refused" || code=$?
want "an edit of an old version is refused" 5 "$code"
grep -q "revision $second" "$DIR/refused"
printf 'limit: 400\nburst: 7\n' | leasehold kv cas "$NAME" --if-value 'limit: 200' - >/dev/null
wait
want "every version was seen, once" 'limit: 100|limit: 200|"limit: 400\nburst: 7\n"' "$(cut -f4 "$DIR/seen" | paste -sd'|')"
want "as it was" 'limit: 100' "$(leasehold kv get "$NAME" --rev "$rev")"
