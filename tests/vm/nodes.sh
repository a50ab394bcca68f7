# nodes_up N: N nodes in one guest, to be sourced. Node i has the address 10.0.0.i at the interface `e$i`, with the RDMA
# device `d$i`; its cable `v$i` is in the bridge `br0`. They share one network namespace, since the kernel's RDMA over
# Ethernet in software knows only the first; routes by source address make what goes between them really cross the
# cables. So a client has to say which address it goes from.
# shellcheck shell=bash

# shellcheck source=/dev/null
source "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/await.sh"

# Waits until an RDMA device goes by the address of its interface, which is 10.0.0.NUMBER.
await_address() { # await_address DEVICE NUMBER
  await "the device $1 goes by its address, 10.0.0.$2" \
    sh -c "grep -qs '^0000:0000:0000:0000:0000:ffff:0a00:000$2$' /sys/class/infiniband/$1/ports/1/gids/*"
}

nodes_up() {
  local count=$1 i
  local all=net.ipv4.conf.all default=net.ipv4.conf.default
  sysctl -qw $all.rp_filter=0 $default.rp_filter=0 $all.accept_local=1 $default.accept_local=1 $all.arp_ignore=1 \
    $all.arp_announce=2
  ip link add br0 type bridge
  ip link set br0 up
  for i in $(seq "$count"); do
    ip link add "e$i" type veth peer name "v$i"
    ip link set "v$i" master br0 up
    ip addr add "10.0.0.$i/24" dev "e$i"
    ip link set "e$i" up
    ip route add 10.0.0.0/24 dev "e$i" src "10.0.0.$i" table $((100 + i))
    ip rule add pref 10 iif "e$i" lookup local
    ip rule add pref 20 from "10.0.0.$i" to 10.0.0.0/24 iif lo lookup $((100 + i))
    ip rule add pref 18 from "10.0.0.$i" to "10.0.0.$i" iif lo lookup local # a node to itself
  done
  ip rule add pref 15 iif lo from all to 127.0.0.0/8 lookup local
  ip rule add pref 100 lookup local
  ip rule del pref 0
  for i in $(seq "$count"); do rdma link add "d$i" type rxe netdev "e$i" || return 1; done
  for i in $(seq "$count"); do await_address "d$i" "$i"; done
}
