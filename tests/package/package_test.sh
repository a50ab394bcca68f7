#!/usr/bin/env bash
# package_test.sh BUILD WORK COMPILER VERSION: is what BUILD installs of use to others? Everything it makes is in WORK.
set -euo pipefail
build=$1 work=$2 compiler=$3 version=$4
cmake=${CMAKE_COMMAND:-cmake}
consumer=$(cd "$(dirname "${BASH_SOURCE[0]}")/consumer" && pwd)

fail() {
  printf 'package_test: %s\n' "$*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work/stores"
"$cmake" --install "$build" --prefix "$work/before" >"$work/install.log"
# Whoever packages or copies an installed tree moves it: nothing in it may name where it was, but for the service, which
# systemd wants a path in, and man pages, which say where files are.
mv "$work/before" "$work/prefix"
prefix=$work/prefix

for file in bin/loch include/loch/loch.h share/doc/loch/LICENSE share/doc/loch/README.md share/doc/loch/docs/hash.md \
  share/doc/loch/docs/operations.md sbin/lochd lib/systemd/system/lochd.service lib/sysusers.d/lochd.conf; do
  [[ -e $prefix/$file ]] || fail "$file is not installed"
done
user=$(sed -n 's/^User=//p' "$prefix/lib/systemd/system/lochd.service")
grep -q "^u $user " "$prefix/lib/sysusers.d/lochd.conf" || fail "nothing makes '$user', the user of lochd.service"
if grep -rlIF -e "$work/before" -e "$(cd "$build" && pwd)" --exclude lochd.service --exclude lochd.8 "$prefix"; then
  fail "the files above name the folder they were built in or installed to"
fi
grep -qxF "ExecStart=\"$work/before/sbin/lochd\"" "$prefix/lib/systemd/system/lochd.service" ||
  fail "lochd.service starts another lochd than the one that was installed with it"
# lochd tells systemd when it lends, locks the memory that it lends over RDMA, and finds devices by netlink.
unit=$prefix/lib/systemd/system/lochd.service
for setting in Type=notify LimitMEMLOCK=infinity; do
  grep -qx "$setting" "$unit" || fail "lochd.service does not say $setting"
done
grep -Eqx 'RestrictAddressFamilies=(.* )?AF_NETLINK( .*)?' "$unit" || fail "lochd.service does not allow AF_NETLINK"
if command -v systemd-analyze >/dev/null; then
  mkdir "$work/unit"
  sed "s|^ExecStart=.*|ExecStart=\"$prefix/sbin/lochd\"|" "$unit" >"$work/unit/lochd.service"
  said=$(systemd-analyze verify --man=no "$work/unit/lochd.service" 2>&1) || fail "systemd refuses lochd.service: $said"
  [[ $said != *lochd.service* ]] || fail "systemd says of lochd.service: $said"
fi
DESTDIR=$work/stage "$cmake" --install "$build" --prefix /opt/loch >"$work/stage.log"
grep -qx 'ExecStart="/opt/loch/sbin/lochd"' "$work/stage/opt/loch/lib/systemd/system/lochd.service" ||
  fail "with DESTDIR, lochd.service does not start the lochd of its prefix"
if command -v scdoc >/dev/null; then
  page=$work/stage/opt/loch/share/man/man8/lochd.8
  [[ -e $page && -e $prefix/share/man/man1/loch.1 ]] || fail "there are no man pages"
  grep -qF /opt/loch/share/doc/loch/examples/lochd "$page" || fail "lochd(8) does not name the examples of its prefix"
  ! grep -F LOCH_DOCDIR "$page" || fail "lochd(8) does not say where Loch is"
fi

while IFS= read -r note; do
  while IFS= read -r link; do
    [[ -e $(dirname "$note")/${link%%#*} ]] || fail "${note#"$prefix/"} links to $link, which is not installed"
  done < <(grep -oP '\]\(\K[^)]+' "$note" | grep -v '^https\?:')
done < <(find "$prefix" -name '*.md')
for example in quickstart coroutines; do
  [[ -e $prefix/share/doc/loch/examples/$example.cc ]] || fail "the example $example is not installed"
done
answer=$("$prefix/bin/loch" --version)
[[ $answer == *"$version"* ]] || fail "loch --version says '$answer', not $version"

while IFS= read -r header; do
  grep -qxF "#include <${header#"$prefix/include/"}>" "$consumer/consumer.cc" || fail "the consumer does not include $header"
done < <(find "$prefix/include/loch" -name '*.h')

# By find_package.
"$cmake" -S "$consumer" -B "$work/by-cmake" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" \
  -DLOCH_VERSION_WANTED="$version"
"$cmake" --build "$work/by-cmake"
"$work/by-cmake/consumer" "$work/stores"

# By pkg-config.
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig:$prefix/lib64/pkgconfig
for triplet in "$prefix"/lib/*/pkgconfig; do
  [[ -d $triplet ]] && PKG_CONFIG_PATH+=:$triplet
done
[[ $(pkg-config --modversion loch) == "$version" ]] || fail "pkg-config gives another version than $version"
read -ra flags < <(pkg-config --cflags --libs loch)
"$compiler" -std=c++23 -Wall -Wextra -Wpedantic -Werror "$consumer/consumer.cc" "${flags[@]}" -o "$work/by-pkg-config"
"$work/by-pkg-config" "$work/stores"

[[ -z $(ls -A "$work/stores") ]] || fail "the consumer left files: $(ls -A "$work/stores")"
echo "package_test: ok"
