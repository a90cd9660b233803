#!/usr/bin/env bash
# A majority of the servers is lost for good. Make a new cluster from the
# server that is furthest on, of those whose data directories are left.
# usage: recover.sh ID…    (the servers that are left; set SURE=yes)
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

(($# > 0)) || die "usage: recover.sh ID…"
[[ ${SURE:-} == yes ]] || die "what only the lost servers knew is lost with this: set SURE=yes if they cannot come back"

best="" best_at=""
for id in "$@"; do
  site_stop "$id"
  # "log index I, term T" of the last entry that can be read
  at=$(site_run "$id" leasehold backup inspect --data-dir "$(site_data "$id")" |
    awk '$1 == "log" && $2 == "index" && $4 == "term" { printf "%020d %020d", $5, $3 }')
  [[ -n $at ]] || die "cannot tell how far on $id is: see leasehold backup inspect --data-dir $(site_data "$id")"
  say "$id: term and index $at"
  if [[ -z $best || $at > $best_at ]]; then best=$id best_at=$at; fi
done
say "$best is furthest on"
file=$(mktemp "${TMPDIR:-/tmp}/leasehold-recovery-XXXXXX.backup")
site_run "$best" leasehold backup save - --data-dir "$(site_data "$best")" >"$file"
leasehold backup verify "$file"
say "its state is in $file: keep that file"

# The directories are set aside, not deleted, until the new cluster serves.
for id in "$@"; do site_run "$id" mv "$(site_data "$id")" "$(site_data "$id").lost"; done
exec "$here/restore.sh" "$file"
