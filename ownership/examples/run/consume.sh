#!/bin/sh
# The worker of one partition, in shell. Started by
#
#   STORE=/var/tmp/store leasehold run --keyspace orders -- ./consume.sh
#
# The resource is a directory. Its guard is a file with the highest token seen,
# compared and raised under the same lock as the write.
set -eu
place="${STORE:?set STORE to a directory}/$LEASEHOLD_KEYSPACE-$LEASEHOLD_PARTITION"

# write [LINE] refuses if a higher token has been here, else appends LINE.
write() (
	set -e
	trap '' TERM # what has begun is finished
	exec 9>"$place.lock"
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
)

# guarded [LINE] is write, once more if SIGTERM came before it had begun.
guarded() {
	while :; do
		set +e # the status is looked at
		write "$@"
		status=$?
		set -e
		case $status in
		0) return ;;
		143) ;; # 128 + SIGTERM: it has not begun
		*) exit 1 ;;
		esac
	done
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
