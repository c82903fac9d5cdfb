#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# no_test.sh SUMMARY BUILD: for a name that no test has, the summary of a run says so, and names tests that are like it; also where other
# tests have run.
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
grep -q 'there is no test docs_no_tset; like it: .*docs_no_test' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 1 failed, 0 skipped' ]

mkdir "$tmp/meson-logs"
printf '%s\n' '{"name": "kvscout:abi / docs_no_test", "result": "OK", "returncode": 0, "stdout": ""}' >"$tmp/meson-logs/testlog.json"
"$python" -B "$1" "$tmp" 0 --suite abi --repeat 2 'docs_*' docs_no_test >"$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 0 skipped' ]
status=0
"$python" -B "$1" "$tmp" 0 docs_no_test docs_no_tset --suite=abbi >"$tmp/out" || status=$?
cat "$tmp/out"
[ "$status" = 1 ]
grep -q 'there is no test docs_no_tset; like it: .*docs_no_test' "$tmp/out"
grep -q 'there is no suite abbi; like it: abi' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 2 failed, 0 skipped' ]

# A case that an emulator cannot run counts as skipped, with its reason; another of its program fails.
printf '%s\n' '# comment' 'abi_rooms impossible no such thing here' >"$tmp/expected"
printf '%s\n' '{"name": "kvscout:abi / abi_rooms", "result": "ERROR", "returncode": 1,
"stdout": "1..2\nok 1 - x.c:t:good: Passed\nnot ok 2 - x.c:t:impossible: it cannot\n"}' | tr -d '\n' >"$tmp/meson-logs/testlog.json"
KVSCOUT_EXPECTED=$tmp/expected "$python" -B "$1" "$tmp" 1 abi_rooms >"$tmp/out"
cat "$tmp/out"
grep -q '^SKIPPED .*abi_rooms impossible: no such thing here$' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 1 skipped' ]
sed -i 's/good/bad/; s/ok 1/not &/' "$tmp/meson-logs/testlog.json"
status=0
KVSCOUT_EXPECTED=$tmp/expected "$python" -B "$1" "$tmp" 1 abi_rooms >"$tmp/out" || status=$?
[ "$status" = 1 ]
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 1 failed, 1 skipped' ]
