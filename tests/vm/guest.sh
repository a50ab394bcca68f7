#!/usr/bin/env bash
# guest.sh [-t SECONDS] [-u SECONDS] [-n NETDEV] [-m MAC] COMMAND [ARGUMENT...]: runs a command in a guest of its own,
# with a kernel that has RDMA over Ethernet in software. The guest sees this host's files, read-only, with a /run
# ($TMPDIR) and a /dev/shm of its own. Ends with the command's exit code; 77 if there can be no guest, 124 if it did not
# end in time (-t; what it waits for is shown before), 125 if the guest died of something else. A guest that is not up
# in time (-u) is started once more: now and then the emulator hangs before our part begins. SIGINT, SIGTERM and SIGHUP
# end the guest, and this with 130. NETDEV is where its cable leads (QEMU's -netdev), and MAC its address there; without,
# it has none.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=${LOCH_VM_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/loch/vm}
seconds=300
seconds_to_be_up=60
netdev=""
mac=52:54:00:00:00:01
while [[ $1 == -[tunm] ]]; do
  case $1 in
    -t) seconds=$2 ;;
    -u) seconds_to_be_up=$2 ;;
    -n) netdev=$2 ;;
    -m) mac=$2 ;;
  esac
  shift 2
done
network=(-nic none)
[[ -z $netdev ]] || network=(-netdev "$netdev,id=cable" -device "virtio-net-pci,netdev=cable,mac=$mac")

"$here/kernel.sh" "$folder"
command=$(printf '%q ' "$@" | base64 -w 0)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

# What is started in the background is a process group of its own, to be ended as a whole.
# shellcheck disable=SC2317 # the trap calls it
end_guest() {
  local group
  for group in $(jobs -p); do kill -- "-$group" 2>/dev/null || true; done
}
trap 'trap "" INT TERM HUP; end_guest; wait; exit 130' INT TERM HUP

is_up() { grep -q '^guest: up' "$log"; }

# Sets `emulator` to the emulator's exit code.
run_guest() { # run_guest SECONDS
  : >"$log"
  set -m
  (sleep "$seconds_to_be_up" && ! is_up && kill "$(cat "$work/emulator")") >/dev/null 2>&1 &
  local watch=$!
  # KVM may be there and not boot such a kernel (nested virtualisation), so the processor is always emulated. Without
  # erms and fsrm: the emulation copies by them byte by byte, and words would tear that no hardware tears.
  #
  # Not a pipeline that this script waits for in place: a trap would come when it is over. Nor one whose timeout leaves
  # the group.
  # shellcheck disable=SC2016 # they are the shell's that becomes the emulator
  { sh -c 'echo $$ >"$0"; exec "$@"' "$work/emulator" timeout --foreground -k 5 "$1" \
    qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=256 -cpu max,-erms,-fsrm -smp 2 -m 1024 \
    -nodefaults -no-user-config -display none -serial stdio -monitor none -no-reboot "${network[@]}" \
    -kernel "$folder/vmlinux" -initrd "$folder/initrd" \
    -append "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable random.trust_cpu=on loch.limit=$1 loch.command=$command" \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap </dev/null 2>&1 |
    sed -u 's/\r$//' | tee "$log" || exit "${PIPESTATUS[0]}"; } &
  set +m
  emulator=0
  wait $! || emulator=$?
  kill -- "-$watch" 2>/dev/null || true
}
begun=$SECONDS
run_guest "$seconds"
left=$((seconds - (SECONDS - begun)))
if ! is_up && ((SECONDS - begun >= seconds_to_be_up && left > seconds_to_be_up)); then
  echo "guest.sh: not up after $seconds_to_be_up s: once more"
  run_guest "$left"
fi
code=$(sed -n 's/^guest: done rc=\([0-9]*\).*/\1/p' "$log" | tail -n 1)
[[ -z $code ]] || exit "$code"

reached="it never came up"
! is_up || reached="its command did not end"
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
