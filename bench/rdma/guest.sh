#!/usr/bin/env bash
# guest.sh LOCHD LOCH LOCH-BENCH-RDMA: in a guest with RDMA in software (tests/vm), what operations take between two nodes, beside what
# the tools of rdma-core's perftest measure there.
set -euo pipefail
# shellcheck source=/dev/null
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../../tests/vm/nodes.sh"
lochd=$1
loch=$2
bench=$3
times=1000 # of each store
stores=3   # of each kind, since how one comes to lie in memory makes a difference
nodes_up 2

perftest_port=4853 # 18515 in hexadecimal digits, as the kernel lists it
floor() { # floor TOOL: the typical latency in us
  local said typical
  timeout 60 "$1" -d d1 -x 1 -n "$times" -F >/dev/null 2>&1 &
  await "$1 listens" grep -qsE ":$perftest_port 0+:0000 0A " /proc/net/tcp /proc/net/tcp6 || return 1
  said=$(timeout 30 "$1" -d d2 -x 1 -n "$times" -F 10.0.0.1 2>&1) || true
  wait || true
  typical=$(awk '$2 == '"$times"' { print $5 }' <<<"$said")
  [[ -n $typical ]] || { echo "$1 tells no latency: $said" >&2; return 1; }
  echo "$typical"
}
read_floor=$(floor ib_read_lat)
atomic_floor=$(floor ib_atomic_lat)

printf 'listen = ["10.0.0.1"]\nopen_to_all = true\nverbs = true\n' >/run/lochd.toml
for ((i = 1; i <= stores; ++i)); do
  "$loch" create --atomics device "far-$i"
  "$loch" create "near-$i"
done
"$lochd" --config /run/lochd.toml >/run/lochd.log 2>&1 &
server=$!
await "lochd lends" grep -q "lends the stores" /run/lochd.log || { cat /run/lochd.log; exit 1; }
for kind in far near; do
  echo
  case $kind in
    far) echo "Stores whose words the device changes:" ;;
    near) echo "Stores whose words the processor changes, by the agent:" ;;
  esac
  urls=()
  for ((i = 1; i <= stores; ++i)); do urls+=("verbs://10.0.0.1/$kind-$i"); done
  "$bench" "${urls[@]}" --from 10.0.0.2 --times "$times" --read-floor "$read_floor" --atomic-floor "$atomic_floor"
done
kill "$server"
wait "$server"
echo
sed 's/^/lochd: /' /run/lochd.log
