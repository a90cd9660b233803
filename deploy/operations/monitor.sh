#!/usr/bin/env bash
# Write a directory that Prometheus can be started on: its configuration, the
# rules, and whom to ask, which are all servers and the workers that are named.
# Run it again when servers or workers change: Prometheus reads those two files
# while it runs.
#
# Where LEASEHOLD_TLS_CA_FILE is set, servers are asked over TLS, by whoever TOKEN
# names: the file of a reader's credential. Prometheus has to be able to read both.
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

tls=
if [[ -n ${LEASEHOLD_TLS_CA_FILE:-} ]]; then
  [[ -r ${TOKEN:-} ]] || die "set TOKEN to the file of a reader's credential: leasehold credential create prometheus --role reader --out prometheus.token"
  tls="    scheme: https
    tls_config: {ca_file: '$(realpath "$LEASEHOLD_TLS_CA_FILE")'}
    authorization: {credentials_file: '$(realpath "$TOKEN")'}"
fi

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
cp "$here"/../prometheus/*.yml "$dir"
while IFS= read -r line; do
  printf '%s\n' "$line"
  if [[ $line == *"job_name: leasehold-server" && -n $tls ]]; then printf '%s\n' "$tls"; fi
done <"$here/../prometheus/prometheus.yml" >"$dir/prometheus.yml"
servers=()
for id in $SERVERS; do servers+=("$id=$(site_addr "$id" http)"); done
targets "$dir/servers.json" "${servers[@]}"
targets "$dir/workers.json" "$@"
promtool check config "$dir/prometheus.yml" >&2
echo "prometheus --config.file=$dir/prometheus.yml --storage.tsdb.path=$dir/data --web.listen-address=$LISTEN"
