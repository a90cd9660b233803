# shellcheck shell=bash disable=SC2034
# A site of processes on this machine, to try the procedures with: server sN
# has the ports BASE+10N to BASE+10N+3 on loopback, and everything is in DIR.
: "${DIR:?set DIR to a directory for data and logs}"
: "${SERVERS:=s1 s2 s3}"
: "${BASE:=7400}"
: "${ELECTION:=500ms}"
: "${EXPECT:=0}" # for --bootstrap-expect; 0: form with leasehold cluster init

site_run() { shift; "$@"; }
site_data() { printf '%s' "$DIR/$1"; }
site_wipe() { rm -rf "${DIR:?}/$1"; }
site_upgrade() { [[ -z ${NEXT:-} ]] || PROGRAM=$NEXT; } # NEXT is the new program
site_addr() {
  local port=$((BASE + 10 * ${1#s}))
  case $2 in raft) ((port += 1)) ;; gossip) ((port += 2)) ;; http) ((port += 3)) ;; esac
  echo "127.0.0.1:$port"
}
site_start() {
  local id=$1 pid other join=
  # As with any service manager, a second start of what runs does nothing.
  if pid=$(cat "$DIR/$id.pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null; then return 0; fi
  for other in $SERVERS; do join+=${join:+,}$(site_addr "$other" gossip); done
  mkdir -p "$DIR"
  "${PROGRAM:-leasehold}" server --id "$id" --data-dir "$(site_data "$id")" \
    --grpc-addr "$(site_addr "$id" grpc)" --raft-addr "$(site_addr "$id" raft)" \
    --gossip-addr "$(site_addr "$id" gossip)" --http-addr "$(site_addr "$id" http)" \
    --join "$join" --bootstrap-expect "$EXPECT" --election-timeout "$ELECTION" \
    >>"$DIR/$id.log" 2>&1 </dev/null &
  echo $! >"$DIR/$id.pid"
}
site_stop() {
  local pid
  pid=$(cat "$DIR/$1.pid" 2>/dev/null) || return 0
  kill -TERM "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
}
