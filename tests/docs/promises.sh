#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# promises.sh PAGE TESTS WEIGHTS: the programs and cases that the two tables of docs/promises.md name are there; so are those for each cell
# of the table of states in docs/weights.md.
# shellcheck disable=SC2016 # the backquotes are the pages'
set -eu
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
# Both tables of weights.md have the same rows, and no cell is empty; in the second one each names a case.
states=$(sed -n '/^## What a call meets/,$p' "$3" | grep '^| ' | grep -v '^| the call meets')
firsts=$(echo "$states" | cut -d '|' -f 2)
half=$(($(echo "$firsts" | wc -l) / 2))
[ "$half" -ge 8 ] && [ "$(echo "$firsts" | head -n $half)" = "$(echo "$firsts" | tail -n $half)" ] ||
	{ echo "$3: the two tables of states have other rows"; bad=1; }
for column in 3 4 5 6 7; do
	[ "$(echo "$states" | cut -d '|' -f $column | grep -c '[a-z]')" = $((2 * half)) ] &&
		[ "$(echo "$states" | tail -n $half | cut -d '|' -f $column | grep -c '`[^`]*`')" = "$half" ] ||
		{ echo "$3: a cell of column $((column - 1)) is empty or names no case"; bad=1; }
done
for name in $cases $(echo "$states" | tail -n $half | grep -o '`[^`]*`' | tr -d '`' | sort -u); do
	grep -rqE "START_(LOOP_|SIGNAL_)?TEST\\($name[,)]" "$2" || { echo "no case $name"; bad=1; }
done
exit $bad
