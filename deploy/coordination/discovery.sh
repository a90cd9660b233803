#!/usr/bin/env bash
# Service discovery (Curator ServiceDiscovery, etcd naming, Consul services, Kubernetes EndpointSlice):
# an instance registers its address under its session; a client reads the list and follows it from
# that revision on, so that nothing falls in between.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
register() {
  leasehold session -- sh -c "leasehold kv put $NAME/$1 $2 --session \$LEASEHOLD_SESSION >/dev/null; exec sleep 60" 2>/dev/null &
}
register one 10.0.0.1:80
one=$!
leasehold kv watch "$NAME/one" --until present
rev=$(leasehold kv get "$NAME/" --prefix -o json | awk -F'"' '$2 == "revision" {print $4; exit}')
leasehold kv watch "$NAME/" --prefix --rev $((rev + 1)) --limit 2 >"$DIR/changes" &
follower=$!
register two 10.0.0.2:80
two=$!
leasehold kv watch "$NAME/two" --until present
kill "$one"
wait "$follower"
want "the client saw them come and go" "put $NAME/two 10.0.0.2:80 delete $NAME/one" "$(cut -f2- "$DIR/changes" | tr '\t' ' ' | paste -sd' ')"
kill "$two"
wait "$one" "$two" || true
