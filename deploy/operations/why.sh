#!/usr/bin/env bash
# Say why partitions of a keyspace are where they are: what moved lately and for
# which causes, how load spreads, and for each that has no owner (the first ten)
# the reason.
# usage: why.sh KEYSPACE [SINCE]
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

[[ -n ${1:-} ]] || die "usage: why.sh KEYSPACE [SINCE]"
keyspace=$1 since=${2:-1h}

echo "grants of the last $since by cause:"
lh events --since "$since" --keyspace "$keyspace" --limit 100000 |
  awk '$2 == "grant" { n[$(NF - 1)]++ } END { for (c in n) printf "  %6d  %s\n", n[c], c }' | sort -rn
lh ring show "$keyspace"
lh partitions ls "$keyspace" --unowned 2>/dev/null | awk 'NR > 1 && NR <= 11 { print $1 }' | while read -r p; do
  echo
  lh partitions show "$keyspace/$p" --why
done
