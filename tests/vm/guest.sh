#!/usr/bin/env bash
# guest.sh [-t SECONDS] [-n NETDEV] [-m MAC] COMMAND [ARGUMENT...]: runs a command in a guest of its own, with a kernel that has RDMA over
# Ethernet in software. The guest sees this host's files, read-only, with a /run ($TMPDIR) and a /dev/shm of its own. Ends with the
# command's exit code; 77 if there can be no guest, 124 if it did not end in time (what it waits for is shown before),
# 125 if the guest died of something else. NETDEV is where the guest's cable leads (QEMU's -netdev), and MAC its address
# there; without, it has none.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=${LOCH_VM_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/loch/vm}
seconds=300
netdev=""
mac=52:54:00:00:00:01
while [[ $1 == -[tnm] ]]; do
  case $1 in
    -t) seconds=$2 ;;
    -n) netdev=$2 ;;
    -m) mac=$2 ;;
  esac
  shift 2
done
network=(-nic none)
[[ -z $netdev ]] || network=(-netdev "$netdev,id=cable" -device "virtio-net-pci,netdev=cable,mac=$mac")

"$here/kernel.sh" "$folder"
command=$(printf '%q ' "$@" | base64 -w 0)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# KVM may be there and not boot such a kernel (nested virtualisation), so the processor is always emulated. Without erms
# and fsrm: the emulation copies by them byte by byte, and words would tear that no hardware tears.
emulator=0
timeout -k 5 "$seconds" qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=256 -cpu max,-erms,-fsrm -smp 2 -m 1024 \
  -nodefaults -no-user-config -display none -serial stdio -monitor none -no-reboot "${network[@]}" \
  -kernel "$folder/vmlinux" -initrd "$folder/initrd" \
  -append "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable random.trust_cpu=on loch.limit=$seconds loch.command=$command" \
  -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null 2>&1 | tr -d '\r' | tee "$log" ||
  emulator=${PIPESTATUS[0]}
code=$(sed -n 's/^guest: done rc=\([0-9]*\).*/\1/p' "$log" | tail -n 1)
[[ -z $code ]] || exit "$code"

reached="it never came up"
! grep -q '^guest: up' "$log" || reached="its command did not end"
case $emulator in
  124 | 137) # of timeout, which had to kill in the second case
    echo "guest.sh: ended after $seconds s: $reached"
    exit 124
    ;;
  *)
    echo "guest.sh: the guest died (QEMU's exit code is $emulator): $reached"
    exit 125
    ;;
esac
