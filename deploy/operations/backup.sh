#!/usr/bin/env bash
# Save the cluster's state into a directory, check what was written, and keep
# the newest KEEP backups. Run it from a timer.
# usage: backup.sh DIRECTORY
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

dir=${1:?usage: backup.sh DIRECTORY}
: "${KEEP:=7}"
mkdir -p "$dir"
file=$dir/leasehold-$(date -u +%Y%m%dT%H%M%S.%NZ).backup
lh backup save "$file"
leasehold backup verify "$file"
# Only what has this form is ever deleted, and never the newest.
find "$dir" -maxdepth 1 -name 'leasehold-*Z.backup' | sort -r | tail -n "+$((KEEP + 1))" | while read -r old; do
  rm -f "$old"
done
echo "$file"
