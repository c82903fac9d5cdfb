#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: kernel_image.sh IN.ptx OUT.inc [PTXAS]: a kernel as the members of an array of struct scout__cuda_image: machine code of it for each
# kind of GPU that this ptxas knows, and at the end the PTX text.
#
# Machine code runs on the GPUs of its major number from its minor one on, so one for each major number serves all from Turing on. ptxas of
# CUDA 13 writes a file that drivers before 580 refuse, and older ptxas do not know the newest GPUs: what is missing, PTX serves.
set -eu
ptx=$1 out=$2 ptxas=${3:-}
trap 'rm -f "$out.code" "$out.log"' EXIT

# entry MAJOR MINOR FILE: as a compound literal, which has static storage at file scope.
entry()
{
	printf '{%s, %s, (const unsigned char[]){' "$1" "$2"
	od -An -v -tx1 "$3" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
	printf '0}},\n'
}

: >"$out"
if [ -n "$ptxas" ]; then
	for sm in "7 5" "8 0" "9 0" "10 0" "11 0" "12 0"; do
		# shellcheck disable=SC2086 # two numbers
		set -- $sm
		if "$ptxas" -arch="sm_$1$2" -O3 "$ptx" -o "$out.code" 2>"$out.log"; then
			entry "$1" "$2" "$out.code" >>"$out"
		elif ! grep -q "not defined for option 'gpu-name'" "$out.log"; then
			cat "$out.log" >&2
			exit 1
		fi
	done
	if ! [ -s "$out" ]; then
		echo "kernel_image.sh: $ptxas makes machine code for none of the GPUs" >&2
		exit 1
	fi
fi
entry 0 0 "$ptx" >>"$out"
