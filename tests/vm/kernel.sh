#!/usr/bin/env bash
# kernel.sh FOLDER: puts into FOLDER what a guest boots: Debian's own kernel (`vmlinux`; downloaded and unpacked, not
# installed) and an initial file system with the modules for RDMA over Ethernet in software (`initrd`). What is
# there is kept. Exit code 77, and why, if there is no way to have it.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
folder=$1

unavailable() {
  echo "no guest: $*"
  exit 77
}

mkdir -p "$folder"
exec 9>"$folder/lock"
flock -w 300 9 || unavailable "somebody else has been making it for 5 minutes"

if [[ ! -e $folder/vmlinux ]]; then
  for program in qemu-system-x86_64 busybox cpio depmod dpkg xz; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || unavailable "$program is not installed"
  done
  package=$(apt-cache depends linux-image-amd64 2>/dev/null |
    sed -n 's/.*Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -n 1)
  [[ -n $package ]] || unavailable "apt-cache knows no kernel (linux-image-amd64)"
  work=$(mktemp -d "$folder/work.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && apt-get download -q "$package" >&2) || unavailable "$package could not be downloaded"
  dpkg -x "$work/$package"_*.deb "$work/tree"

  # The kernel as an ELF file, which QEMU starts without having it decompressed by the processor that it emulates.
  image=("$work"/tree/boot/vmlinuz-*)
  offset=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' "${image[0]}" | head -n 1 | cut -d: -f1)
  tail -c +$((offset + 1)) "${image[0]}" | xz -dc --single-stream >"$work/vmlinux" 2>/dev/null || true # what follows is no xz
  [[ $(head -c 4 "$work/vmlinux" | tail -c 3) == ELF ]] || cp "${image[0]}" "$work/vmlinux"

  modules=$work/tree/lib/modules
  version=$(ls "$modules")
  PATH=$PATH:/usr/sbin:/sbin depmod -b "$work/tree" "$version"
  root=$work/root
  mkdir -p "$root"/{bin,proc,sys,dev,host} "$root/lib/modules/$version"
  cp "$(command -v busybox)" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  for module in virtio_pci virtio_net 9pnet_virtio 9p dummy veth bridge sch_netem ib_uverbs rdma_ucm rdma_rxe \
    crc32_generic; do
    PATH=$PATH:/usr/sbin:/sbin modprobe -d "$work/tree" -S "$version" --show-depends "$module" |
      sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | sort -u | while read -r file; do
    to=$root/${file#"$work/tree/"}
    mkdir -p "$(dirname "$to")"
    cp "$file" "$to"
  done
  cp "$modules/$version"/modules.{order,builtin,builtin.modinfo} "$root/lib/modules/$version/"
  PATH=$PATH:/usr/sbin:/sbin depmod -b "$root" "$version"
  (cd "$root" && find . -print0 | cpio --null -o -H newc --quiet) >"$work/modules.cpio"
  mv "$work/modules.cpio" "$folder/modules.cpio"
  mv "$work/vmlinux" "$folder/vmlinux" # last: with it, all is there
fi

# A later archive adds to an earlier one, so that a change of `init` does not make the modules anew.
{
  cat "$folder/modules.cpio"
  (cd "$here" && echo init | cpio -o -H newc --quiet)
} >"$folder/initrd.new"
mv "$folder/initrd.new" "$folder/initrd"
