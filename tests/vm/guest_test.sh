#!/usr/bin/env bash
# guest_test.sh: how guest.sh ends. In the emulator's place is a script that says what a guest would.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=/dev/null
source "$here/await.sh"
command -v cpio >/dev/null || { echo "no guest: cpio is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/kernel"
touch "$work/kernel/vmlinux" "$work/kernel/modules.cpio"

expect() { # expect CODE TEXT GUEST [OPTION...]: guest.sh's exit code, and what is to be in its output
  local code=0
  printf '#!/bin/sh\n%s\n' "$3" >"$work/qemu-system-x86_64"
  chmod +x "$work/qemu-system-x86_64"
  PATH=$work:$PATH LOCH_VM_FOLDER=$work/kernel "$here/guest.sh" -t 1 "${@:4}" true >"$work/output" || code=$?
  [[ $code != "$1" ]] || ! grep -qF "$2" "$work/output" || return 0
  printf 'not %s and "%s", but %s and:\n' "$1" "$2" "$code"
  cat "$work/output"
  exit 1
}
up="echo 'guest: up after 9 s'"
expect 3 "done rc=3" "$up; echo 'guest: done rc=3 after 10 s'"
# shellcheck disable=SC2016 # they are the guest's
expect 0 " loch.limit=1 " 'echo "$@"; echo "guest: done rc=0 after 10 s"'
expect 124 "after 1 s: its command did not end" "$up; exec sleep 60"
expect 124 "after 1 s: it never came up" "exec sleep 60"
expect 125 "code is 0): its command did not end" "$up; echo 'Kernel panic'"
expect 125 "code is 1): it never came up" "exit 1"

# A Ctrl-C of the terminal, and a kill, end the guest and what guest.sh started, and there is no second guest.
expect_end() { # expect_end SIGNAL PREFIX: sent to guest.sh; with the prefix "-" to its group, as a terminal sends it
  local code=0 id alive
  rm -f "$work/started"
  printf '#!/bin/sh\necho started >>%q\nexec sleep 600\n' "$work/started" >"$work/qemu-system-x86_64"
  [[ -p $work/alive ]] || mkfifo "$work/alive"
  timeout 60 cat "$work/alive" & # until all are gone that have it open
  alive=$!
  set -m
  PATH=$work:$PATH LOCH_VM_FOLDER=$work/kernel "$here/guest.sh" -t 300 -u 200 true >"$work/output" 8>"$work/alive" &
  id=$!
  set +m
  await "the guest begins" test -s "$work/started"
  kill "-$1" -- "$2$id"
  wait "$id" || code=$?
  [[ $code == 130 ]] || { echo "guest.sh ended with $code, not 130, of SIG$1"; exit 1; }
  [[ $(<"$work/started") == started ]] || { echo "there were several guests"; exit 1; }
  wait "$alive" || { echo "something that guest.sh started goes on after SIG$1"; exit 1; }
}
expect_end INT -
expect_end TERM ""

# It hangs the first time.
expect 3 "not up after 1 s: once more" \
  "[ -e '$work/tried' ] || { touch '$work/tried'; exec sleep 60; }; $up; echo 'guest: done rc=3 after 10 s'" -t 10 -u 1
expect 3 "done rc=3" "$up; sleep 2; echo 'guest: done rc=3 after 10 s'" -t 10 -u 1
