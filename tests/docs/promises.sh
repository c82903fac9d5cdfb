#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# promises.sh CONTRIBUTING TESTS: the programs and cases that the tables "Which test proves what" name are there.
set -eu
# shellcheck disable=SC2016 # the backquotes are the document's
names=$(sed -n '/^## Which test proves what/,/^By contributing/p' "$1" | grep '^|' | grep -o '`[^`]*`' | tr -d '`' | sort -u)
[ "$(echo "$names" | wc -l)" -gt 30 ] || { echo "no tables in $1"; exit 1; }
bad=0
for name in $names; do
	case $name in
	*/*)
		for file in "$2/${name%/*}/test_${name##*/}".*; do
			[ -e "$file" ] || { echo "no program $name"; bad=1; }
		done
		;;
	*) grep -rqF "START_TEST($name)" "$2" || { echo "no case $name"; bad=1; } ;;
	esac
done
exit $bad
