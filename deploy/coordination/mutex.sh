#!/usr/bin/env bash
# Mutex (Curator InterProcessMutex, etcdctl lock, consul lock): one at a time, first come, first
# served, and a token that the resource compares.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
# The resource remembers the highest token that it has seen and refuses less. In a database
# this is a column: ownership/fence.
echo 0 >"$DIR/token"
echo 0 >"$DIR/balance"
cat >"$DIR/add" <<'SH'
read -r seen <"$DIR/token"
if [ "$LEASEHOLD_TOKEN" -lt "$seen" ]; then echo "token $LEASEHOLD_TOKEN is older than $seen" >&2; exit 1; fi
echo "$LEASEHOLD_TOKEN" >"$DIR/token"; echo "$LEASEHOLD_TOKEN" >>"$DIR/tokens"
read -r n <"$DIR/balance"; sleep 0.02; echo $((n + 1)) >"$DIR/balance"
SH
for _ in 1 2 3 4; do leasehold lock "$NAME" -- sh "$DIR/add" & done
wait
want "nothing was lost" 4 "$(cat "$DIR/balance")"
rising "$DIR/tokens"
want "each turn had a higher token" 4 "$(wc -l <"$DIR/tokens")"
