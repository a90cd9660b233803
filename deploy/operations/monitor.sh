#!/usr/bin/env bash
# Write a directory that Prometheus can be started on: its configuration, the
# rules, and whom to ask, which are all servers and the workers that are named.
# Run it again when servers or workers change: Prometheus reads those two files
# while it runs.
# usage: monitor.sh DIRECTORY [WORKER=HOST:PORT]…
# shellcheck source=deploy/operations/lib.sh
source "$(dirname "$0")/lib.sh"

dir=${1:?usage: monitor.sh DIRECTORY [WORKER=HOST:PORT]…}
shift
: "${CLUSTER:=leasehold}" # its name in dashboards and alerts
: "${LISTEN:=127.0.0.1:9090}"

# targets FILE NAME=HOST:PORT… is in place whole or not at all.
targets() {
  local file=$1 all=() sep='' it
  shift
  for it in "$@"; do
    [[ $it == ?*=?*:?* ]] || die "want WORKER=HOST:PORT, not $it"
    all+=("$sep  {\"targets\": [\"${it#*=}\"], \"labels\": {\"cluster\": \"$CLUSTER\", \"instance\": \"${it%%=*}\"}}")
    sep=$',\n'
  done
  printf '[\n%s\n]\n' "$(printf '%s' "${all[@]}")" >"$file.tmp"
  mv "$file.tmp" "$file"
}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cp "$here"/../prometheus/*.yml "$dir"
servers=()
for id in $SERVERS; do servers+=("$id=$(site_addr "$id" http)"); done
targets "$dir/servers.json" "${servers[@]}"
targets "$dir/workers.json" "$@"
promtool check config "$dir/prometheus.yml" >&2
echo "prometheus --config.file=$dir/prometheus.yml --storage.tsdb.path=$dir/data --web.listen-address=$LISTEN"
