#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# no_test.sh SUMMARY BUILD: for a name that no test has, the summary of a run says so, and names tests that are like it.
set -eu
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/meson-info"
cp "$2/meson-info/intro-tests.json" "$tmp/meson-info/"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
status=0
"$python" -B "$1" "$tmp" 0 --suite abi docs_no_tset >"$tmp/out" || status=$?
cat "$tmp/out"
[ "$status" = 1 ]
grep -q '^Tests: .*abi_' "$tmp/out"
grep -q 'there is no test or suite docs_no_tset; like it: .*docs_no_test' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 1 failed, 0 skipped' ]
