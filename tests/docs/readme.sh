#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# readme.sh [--write] GENERATED README: the parts of the README between "<!-- generated: NAME -->" and "<!-- end -->" must be
# what the program GENERATED prints for NAME. With --write, put them there.
set -eu
write=
[ "$1" != --write ] || { write=1; shift; }
generated=$1
readme=$2
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT
grep -q '<!-- generated: ' "$readme" || { echo "no generated parts in $readme"; exit 1; }
while IFS= read -r line; do
	case $line in
	"<!-- generated: "*)
		name=${line#<!-- generated: }
		printf '%s\n' "$line"
		"$generated" "${name% -->}"
		skipping=1
		;;
	"<!-- end -->") skipping= && printf '%s\n' "$line" ;;
	*) [ -n "${skipping:-}" ] || printf '%s\n' "$line" ;;
	esac
done <"$readme" >"$tmp"
if cmp -s "$readme" "$tmp"; then
	exit 0
fi
if [ -n "$write" ]; then
	cat "$tmp" >"$readme"
	exit 0
fi
diff "$readme" "$tmp" || true
echo "README.md is stale: run tests/docs/readme.sh --write $generated README.md"
exit 1
