# await WHAT COMMAND...: waits until the command succeeds; to be sourced. If it does not in 30 s, says so of WHAT.
# shellcheck shell=bash

await() {
  local _
  for _ in $(seq 300); do
    ! "${@:2}" || return 0
    sleep 0.1
  done
  echo "not in time: $1" >&2
  return 1
}
