#!/usr/bin/env bash
# Semaphore (Curator InterProcessSemaphoreV2, consul lock -n): at most N at once.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
mkdir "$DIR/in"
# The first waits for a second one to come in beside it.
cat >"$DIR/work" <<'SH'
: >"$DIR/in/$$"; set -- "$DIR"/in/*; echo $# >>"$DIR/seen"; if [ $# -ge 2 ]; then : >"$DIR/two"; fi
for i in $(seq 1000); do if [ -e "$DIR/two" ]; then break; fi; sleep 0.02; done
sleep 0.1; rm "$DIR/in/$$"
SH
for _ in 1 2 3 4; do leasehold semaphore "$NAME" 2 -- sh "$DIR/work" & done
wait
want "all had their turn" 4 "$(wc -l <"$DIR/seen")"
want "never more than two" 2 "$(sort -n "$DIR/seen" | tail -1)"
