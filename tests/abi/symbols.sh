#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# symbols.sh LIB...: a shared library may export only scout_[a-z]*, asks no other library for a name of ours, and needs no other library of
# ours; an archive may define only names with our prefix. Each library contains a copy of libcommon, so libcommon writes to nothing but its
# callers' objects and the variables below: each of these is for fork() or for one thread, and no copy needs another's.
state='fork_generation fork_once guarded in_callback lock n_guarded once'
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
	case $lib in
	*libcommon/*.a)
		for name in $(objdump -t "$lib" | awk '/ \.(bss|data|tbss|tdata)\t/ && $NF !~ /^\./ {print $NF}' | grep -v gcov); do
			case " $state " in
			*" $name "*) ;;
			*)
				echo "$lib keeps a state of the process: $name"
				status=1
				;;
			esac
		done
		;;
	esac
	if [ -n "$odd" ]; then
		echo "$lib exports names that are not ours:"
		echo "$odd"
		status=1
	fi
done
exit $status
