#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# links.sh ROOT: in README.md, CONTRIBUTING.md, SECURITY.md and docs/, each relative link leads to a file, each path in backquotes
# that begins with a folder of the tree exists, README.md has at most 150 lines, and a link leads to each page of docs/.
set -eu
cd "$1"
bad=0
for page in README.md CONTRIBUTING.md SECURITY.md docs/*.md; do
	[ -f "$page" ] || continue
	for link in $(grep -o '](\([^)#]*\)[^)]*)' "$page" | sed 's/^](//; s/[)#].*$//' | sort -u); do
		case $link in
		http*://* | mailto:* | '') continue ;;
		esac
		[ -e "$(dirname "$page")/$link" ] || { echo "$page: no file $link"; bad=1; }
	done
	# shellcheck disable=SC2016 # the backquotes are the page's
	for path in $(grep -o '`[^`]*`' "$page" | tr -d '`' | grep -v '[*]' | grep -oE '^(bench|docs|examples|include|libcommon|libclient|libworker|libserver|scripts|tests)/[A-Za-z0-9_./-]*' | sort -u); do
		[ -e "$path" ] || ls "$path".* >/dev/null 2>&1 || { echo "$page: no file $path"; bad=1; }
	done
done
lines=$(wc -l <README.md)
[ "$lines" -le 150 ] || { echo "README.md has $lines lines: at most 150"; bad=1; }
for page in docs/*.md; do
	grep -q "($page" README.md || { echo "README.md has no link to $page"; bad=1; }
done
exit $bad
