#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# symbols.sh LIB...: a shared library may export only scout_[a-z]*, and libkvscout-client the registry, which libkvscout-worker takes from
# there; an archive may define only names with our prefix.
private='scout__registry_lock@@KVSCOUT_PRIVATE_0 scout__registry_unlock@@KVSCOUT_PRIVATE_0'
status=0
for lib in "$@"; do
	case $lib in
	*.a) odd=$(nm -g --defined-only "$lib" 2>/dev/null | awk 'NF == 3 && $3 !~ /^scout_/ {print $3}') ;;
	*)
		is=$(nm -D "$lib" | awk '/scout__/ {sub(/@+/, "@@", $NF); print $NF}' | sort | tr '\n' ' ')
		defined=$(nm -D --defined-only "$lib" | grep -c scout__)
		case $lib:$is:$defined in
		*client*:"$private ":2 | *worker*:"$private ":0) ;;
		*)
			echo "$lib: $defined private names of $is, not $private"
			status=1
			;;
		esac
		odd=$(nm -D --defined-only "$lib" | awk '$2 != "A" {sub(/@.*/, "", $3); if ($3 !~ /^scout_[a-z]/ && $3 !~ /^scout__registry_(un)?lock$/) print $3}')
		;;
	esac
	if [ -n "$odd" ]; then
		echo "$lib exports names that are not ours:"
		echo "$odd"
		status=1
	fi
done
exit $status
