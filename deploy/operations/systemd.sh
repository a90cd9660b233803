# shellcheck shell=bash disable=SC2034
# A site of machines with systemd, reached over ssh: each server is the unit
# leasehold.service of deploy/systemd on a host of the server's own name.
: "${SERVERS:=s1 s2 s3}"
: "${DATA:=/var/lib/leasehold}"

site_run() { local id=$1; shift; ssh -o BatchMode=yes "root@$id" "$(printf '%q ' "$@")"; }
# What root has written there, a restored directory, is given to the server's user.
site_start() { site_run "$1" sh -c "! test -d '$DATA' || chown -R leasehold: '$DATA'; systemctl start leasehold"; }
site_stop() { site_run "$1" systemctl stop leasehold; }
site_data() { printf '%s' "$DATA"; }
site_wipe() { site_run "$1" find "$DATA" -mindepth 1 -delete; }
site_upgrade() { site_run "$1" apt-get install -y --only-upgrade leasehold; }
site_addr() {
  case $2 in
    grpc) echo "$1:7400" ;; raft) echo "$1:7401" ;; gossip) echo "$1:7402" ;; http) echo "$1:7480" ;;
  esac
}
