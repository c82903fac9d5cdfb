#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# pages.sh [--write] GENERATED PAGE...: the parts of each page between "<!-- generated: NAME -->" and "<!-- end -->" must be what
# the program GENERATED prints for NAME. With --write, the script puts them there.
set -eu
write=
[ "$1" != --write ] || { write=1; shift; }
generated=$1
shift
tmp=$(mktemp) || exit 1
trap 'rm -f "$tmp"' EXIT
stale=0
for page; do
	grep -q '<!-- generated: ' "$page" || { echo "no generated parts in $page"; exit 1; }
	skipping=
	while IFS= read -r line; do
		case $line in
		"<!-- generated: "*)
			name=${line#<!-- generated: }
			printf '%s\n' "$line"
			"$generated" "${name% -->}"
			skipping=1
			;;
		"<!-- end -->") skipping= && printf '%s\n' "$line" ;;
		*) [ -n "$skipping" ] || printf '%s\n' "$line" ;;
		esac
	done <"$page" >"$tmp"
	if cmp -s "$page" "$tmp"; then
		continue
	fi
	if [ -n "$write" ]; then
		cat "$tmp" >"$page"
		continue
	fi
	diff "$page" "$tmp" || true
	stale=1
done
[ "$stale" = 0 ] && exit
# From any folder: meson gives paths that are relative to the build folder.
echo "stale: run $(realpath "$0") --write $(realpath "$generated" "$@" | tr '\n' ' ')"
exit 1
