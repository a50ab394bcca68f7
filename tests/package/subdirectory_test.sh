#!/usr/bin/env bash
# subdirectory_test.sh SOURCES WORK COMPILER: what does a project get that takes the SOURCES by add_subdirectory? Everything
# it makes is in WORK.
set -euo pipefail
sources=$1 work=$2 compiler=$3
cmake=${CMAKE_COMMAND:-cmake}

fail() {
  printf 'subdirectory_test: %s\n' "$*" >&2
  exit 1
}

rm -rf "$work"
mkdir -p "$work"
"$cmake" -S "$sources/tests/package/subdirectory" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DLOCH_SOURCES="$sources"
tests=$("${CTEST_COMMAND:-ctest}" --test-dir "$work/build" -N)
[[ $tests == *"Total Tests: 0"* ]] || fail "it gets tests: $tests"
targets=$("$cmake" --build "$work/build" --target help)
[[ $targets == *libloch.a* ]] || fail "it does not get the library: $targets"
if grep -E 'quickstart|coroutines|probe|sim|lochd|_test' <<<"$targets"; then fail "it gets the targets above"; fi
if grep -- '-Werror' "$work/build/build.ninja"; then fail "warnings in Loch are its errors"; fi
"$cmake" --install "$work/build" --prefix "$work/prefix"
[[ ! -e $work/prefix ]] || fail "it installs $(find "$work/prefix" -type f)"
echo "subdirectory_test: ok"
