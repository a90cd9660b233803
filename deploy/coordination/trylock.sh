#!/usr/bin/env bash
# Try-lock (Curator acquire with a timeout, consul lock -try): exit code 5 if somebody else has it.
# shellcheck source=deploy/coordination/lib.sh
. "$(dirname "$0")/lib.sh"
code=0
# shellcheck disable=SC2016
leasehold lock "$NAME" -- bash -c 'leasehold lock "$NAME" --wait 0 -- true || echo $? >"$DIR/code"' || code=$?
want "the outer one" 0 "$code"
want "the inner one was refused" 5 "$(cat "$DIR/code")"
leasehold lock "$NAME" --wait 0 -- true
want "it is free again" 0 $?
