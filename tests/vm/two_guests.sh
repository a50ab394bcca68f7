#!/usr/bin/env bash
# two_guests.sh LOCHD LOCH: two guests with a kernel each, joined by a cable: lochd in the one, clients in the other.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
lochd=$1
loch=$2
store=verbs://10.0.0.1/test
# shellcheck source=/dev/null
source "$here/nodes.sh"

device() { # device NUMBER: of the guest's only cable, with the address 10.0.0.NUMBER
  ip link set eth0 up
  ip addr add "10.0.0.$1/24" dev eth0
  rdma link add d0 type rxe netdev eth0
  await_address d0 "$1"
}
sent() { cat /sys/class/infiniband/d0/ports/1/hw_counters/sent_pkts; } # packets, by that device

if [[ ${3:-} == host ]]; then
  device 1
  "$loch" create --atomics device test
  "$loch" create finished
  printf 'listen = ["10.0.0.1"]\nopen_to_all = true\nverbs = true\n' >/run/lochd.toml
  "$lochd" --config /run/lochd.toml >/run/lochd.log 2>&1 &
  lochd_id=$!
  tail -f /run/lochd.log &
  # Until the other guest is done: it opens a store that nobody needs, of which the log tells. To ask for it would take
  # a connection each time.
  for _ in $(seq 400); do
    if [[ $(</run/lochd.log) == *": opened finished"* ]]; then
      [[ $("$loch" get "$store" finished) == yes ]]
      kill "$lochd_id"
      wait "$lochd_id"
      exit
    fi
    sleep 0.5
  done
  exit 1
fi

if [[ ${3:-} == client ]]; then
  device 2
  for _ in $(seq 200); do
    if "$loch" exists "$store" nothing >/dev/null 2>&1 || [[ $? == 4 ]]; then break; fi
    sleep 0.5
  done
  "$loch" doctor "$store" >/run/doctor
  grep -E '^(FAIL|....  (RDMA|store))' /run/doctor
  # Whether both ends agree: they do; then this end's packets are smaller; then they do again.
  grep -E '^OK    connection .*: d0/1 here with d0/1 there' /run/doctor
  ip link set eth0 mtu 800
  "$loch" doctor "$store" | grep -E '^WARN  connection .*the MTU is 512 here and 1024 there'
  ip link set eth0 mtu 1500
  # More than a batch of loads.
  for i in $(seq 300); do printf 'key-%d\tvalue-%d\n' "$i" "$i"; done | sort >/run/items
  "$loch" --quiet load "$store" /run/items
  "$loch" --quiet load "$store" /run/items # again: updates
  "$loch" --quiet dump "$store" | sort | cmp - /run/items
  "$loch" check "$store"
  # One that is killed in the midst of it: it has the items many times over, and has sent some.
  for _ in $(seq 30); do cat /run/items; done >/run/again
  before=$(sent)
  "$loch" --quiet load "$store" /run/again &
  # shellcheck disable=SC2317 # await calls it
  has_sent_some() { (($(sent) > before + 500)); }
  await "the load has sent some" has_sent_some
  kill -KILL $!
  killed=0
  wait $! || killed=$?
  [[ $killed == 137 ]]
  "$loch" --quiet dump "$store" | sort | cmp - /run/items
  "$loch" put "$store" finished yes
  "$loch" put tcp://10.0.0.1/finished by client
  exit
fi

# The cable is a socket of the host. Not of TCP, which would hold small packets back.
cable=$(mktemp -d)
first=
# shellcheck disable=SC2317 # the trap calls it
end_all() {
  rm -rf "$cable"
  [[ -z $first ]] || kill -- "-$first" 2>/dev/null || true
}
trap end_all EXIT
trap 'exit 130' INT TERM HUP
guest() { # guest NUMBER OPTION ROLE
  "$here/guest.sh" -t 200 -m "52:54:00:00:00:0$1" -n "stream,$2,addr.type=unix,addr.path=$cable/socket" \
    "$(realpath "${BASH_SOURCE[0]}")" "$lochd" "$loch" "$3" | sed "s/^/$3: /"
}
status=0
set -m # a Ctrl-C is for this process, which ends it
guest 1 server=on host &
set +m
first=$!
await "the first guest has its cable" test -S "$cable/socket"
guest 2 server=off client || status=$?
wait "$first" || status=$?
first=
exit "$status"
