#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# links.sh ROOT: in README.md, CONTRIBUTING.md, SECURITY.md, docs/, examples/ and bench/, each relative link leads to a file and its heading, each path in backquotes
# that begins with a folder of the tree exists, README.md has at most 150 lines, and a link in docs/README.md or README.md leads to each page.
set -eu
cd "$1"
bad=0
for page in *.md docs/*.md examples/*.md bench/*.md; do
	[ -f "$page" ] || continue
	for link in $(grep -o '](\([^)]*\))' "$page" | sed 's/^](//; s/)$//' | sort -u); do
		case $link in
		http*://* | mailto:*) continue ;;
		esac
		file=$(dirname "$page")/${link%%#*}
		[ -n "${link%%#*}" ] || file=$page
		[ -e "$file" ] || { echo "$page: no file $link"; bad=1; continue; }
		case $link in
		*#*) sed -n 's/^##* //p' "$file" | tr 'A-Z' 'a-z' | sed 's/[^a-z0-9 _-]//g; s/ /-/g' | grep -qxF "${link#*#}" ||
			{ echo "$page: no heading for $link"; bad=1; } ;;
		esac
	done
	# shellcheck disable=SC2016 # the backquotes are the page's
	for path in $(grep -o '`[^`]*`' "$page" | tr -d '`' | grep -v '[*]' | grep -oE '^(bench|docs|examples|include|libcommon|libclient|libworker|libserver|scripts|tests)/[A-Za-z0-9_./-]*' | sort -u); do
		[ -e "$path" ] || ls "$path".* >/dev/null 2>&1 || { echo "$page: no file $path"; bad=1; }
	done
done
lines=$(wc -l <README.md)
[ "$lines" -le 150 ] || { echo "README.md has $lines lines: at most 150"; bad=1; }
for page in docs/*.md; do
	[ "$page" = docs/README.md ] || grep -q "(${page#docs/}[)#]" docs/README.md || grep -q "($page[)#]" README.md ||
		{ echo "docs/README.md has no link to $page"; bad=1; }
done
exit $bad
