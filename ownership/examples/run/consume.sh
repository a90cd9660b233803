#!/bin/sh
# The worker of one partition, in shell. Started by
#
#   STORE=/var/tmp/store leasehold run --keyspace orders -- ./consume.sh
#
# The resource is a directory. Its guard is a file with the highest token seen,
# compared and raised under the same lock as the write.
set -eu
place="${STORE:?set STORE to a directory}/$LEASEHOLD_KEYSPACE-$LEASEHOLD_PARTITION"

# guarded [LINE] refuses if a higher token has been here, else appends LINE.
guarded() {
	(
		trap '' TERM # what has begun is finished
		flock 9
		seen=0
		if [ -s "$place.token" ]; then read -r seen <"$place.token"; fi
		if [ "$LEASEHOLD_TOKEN" -lt "$seen" ]; then
			echo "token $LEASEHOLD_TOKEN is stale: $seen has been here" >&2
			exit 1
		fi
		echo "$LEASEHOLD_TOKEN" >"$place.token.new"
		mv "$place.token.new" "$place.token"
		if [ $# -gt 0 ]; then printf '%s %s\n' "$LEASEHOLD_TOKEN" "$1" >>"$place.log"; fi
	) 9>"$place.lock"
}

guarded # claim: from here on an older owner can write no more

stopping=
trap 'stopping=yes' TERM # the partition moves away: finish and exit 0
n=0
while [ -z "$stopping" ]; do
	n=$((n + 1))
	guarded "order $n"
	sleep 0.1 || : # SIGTERM is for the whole group, sleep too
done
guarded "handed over after $n orders"
