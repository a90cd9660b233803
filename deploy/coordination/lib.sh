# shellcheck shell=bash
# What the recipes share. Each one runs by itself against the servers of LEASEHOLD_SERVER
# (leasehold dev is enough), under keys that begin with NAME, and fails if the recipe does not
# do what it promises.
set -euo pipefail

NAME=${NAME:-recipes/$(basename "$0" .sh)/$$}
DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
export NAME DIR

# want WHAT EXPECTED ACTUAL
want() {
  if [[ $2 != "$3" ]]; then
    printf '%s: want %q, got %q\n' "$1" "$2" "$3" >&2
    exit 1
  fi
  printf 'ok: %s\n' "$1"
}

# soon WHAT COMMAND...: it must succeed within a while.
soon() {
  local what=$1
  shift
  for ((i = 0; i < 600; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.05
  done
  printf 'not in time: %s\n' "$what" >&2
  exit 1
}

# rising FILE: the numbers in it, one a line, only rise.
rising() { sort -c -n -u "$1"; }
