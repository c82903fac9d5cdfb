#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# promises.sh CONTRIBUTING TESTS: the programs and cases that the tables "Which test proves what" name are there.
set -eu
# shellcheck disable=SC2016 # the backquotes are the document's
named() # FROM TO: what the tables between two lines name
{
	sed -n "/^$1/,/^$2/p" "$contributing" | grep '^|' | grep -o '`[^`]*`' | tr -d '`' | sort -u
}
contributing=$1
programs=$(named '## Which test proves what' 'What earlier systems got wrong')
cases=$(named 'What earlier systems got wrong' 'By contributing')
[ "$(echo "$programs" | wc -l)" -gt 50 ] && [ "$(echo "$cases" | wc -l)" -gt 15 ] || { echo "no tables in $1"; exit 1; }
bad=0
for name in $programs; do
	[ -n "$(find "$2" -name "test_$name.*")" ] || { echo "no program $name"; bad=1; }
done
for name in $cases; do
	grep -rqF "START_TEST($name)" "$2" || { echo "no case $name"; bad=1; }
done
exit $bad
