#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# symbols.sh LIB...: a shared library may export only scout_[a-z]*, asks no other library for a name of ours, and needs no other library of
# ours; an archive may define only names with our prefix.
status=0
for lib in "$@"; do
	case $lib in
	*.a) odd=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 && $3 !~ /^scout_/ {print $3}') ;;
	*)
		asked=$(nm -D --undefined-only "$lib" | grep -o 'scout_.*'; objdump -p "$lib" | awk '$1 == "NEEDED" && /kvscout/ {print $2}')
		if [ -n "$asked" ]; then
			echo "$lib asks another library for:"
			echo "$asked"
			status=1
		fi
		odd=$(nm -D --defined-only "$lib" | awk '$2 != "A" {sub(/@.*/, "", $3); if ($3 !~ /^scout_[a-z]/) print $3}')
		;;
	esac
	if [ -n "$odd" ]; then
		echo "$lib exports names that are not ours:"
		echo "$odd"
		status=1
	fi
done
exit $status
