#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# promises.sh PAGE TESTS: the programs and cases that the two tables of docs/promises.md name are there.
set -eu
# shellcheck disable=SC2016 # the backquotes are the document's
named() # FROM TO: what the table between two lines names
{
	sed -n "/^$1/,/^$2/p" "$page" | grep '^|' | grep -o '`[^`]*`' | tr -d '`' | sort -u
}
page=$1
programs=$(named '# Promises' '## Mistakes')
cases=$(named '## Mistakes' '# End')
[ "$(echo "$programs" | wc -l)" -gt 50 ] && [ "$(echo "$cases" | wc -l)" -gt 15 ] || { echo "no tables in $1"; exit 1; }
bad=0
for name in $programs; do
	[ -n "$(find "$2" -name "test_$name.*")" ] || { echo "no program $name"; bad=1; }
done
for name in $cases; do
	grep -rqF "START_TEST($name)" "$2" || { echo "no case $name"; bad=1; }
done
exit $bad
