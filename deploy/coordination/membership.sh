#!/usr/bin/env bash
# Group membership (Curator GroupMember, etcd key with a lease, Consul session): a member is a key of
# its session, and goes with it: at once when it leaves, after the TTL when it was killed.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
join() { leasehold session --ttl 5s -- sh -c "leasehold kv put $NAME/$1 up --session \$LEASEHOLD_SESSION >/dev/null; exec sleep 60" 2>/dev/null & }
join a
a=$!
join b
b=$!
leasehold kv watch "$NAME/" --prefix --until 2
want "two members" "$NAME/a $NAME/b" "$(leasehold kv get "$NAME/" --prefix --keys-only | paste -sd' ')"
kill "$a"
wait "$a" || true
want "a has left" "$NAME/b" "$(leasehold kv get "$NAME/" --prefix --keys-only)"
kill -9 "$b"
wait "$b" 2>/dev/null || true
leasehold kv watch "$NAME/" --prefix --until absent
want "b is gone" 0 "$(leasehold kv get "$NAME/" --prefix --count)"
