#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: kernels.sh [--check] ZIG: makes the PTX of the kernels that run on a GPU, with the zig that packaging/wheel/requirements.txt pins,
# or compares what is in the tree with a fresh one. sm_75 and PTX 6.3: every driver from 525 on takes that.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd -P)
check=no
if [ "$1" = --check ]; then
	check=yes
	shift
fi
zig=$1
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
for source in libworker/copy/cuda/cuda_kernel.c bench/copy/copy_kernels.c; do
	text=${source%.c}.ptx
	# The compiler names options of its own that it does not use; what it says of the source is an error.
	(cd "$root" && "$zig" cc -target nvptx64-cuda -mcpu=sm_75 -std=gnu11 -O3 -Wall -Wextra -Werror -Wno-unused-command-line-argument \
		-Ilibworker/copy -Ilibworker/copy/cuda -S -o "$fresh/ptx" "$source")
	if grep -n '\.local' "$fresh/ptx"; then
		echo "kernels.sh: $source uses local memory, which is a GPU's slowest" >&2
		exit 1
	fi
	if [ $check = no ]; then
		cp "$fresh/ptx" "$root/$text"
	elif ! cmp "$fresh/ptx" "$root/$text"; then
		echo "kernels.sh: $text is not what $source is compiled to: run scripts/kernels.sh ZIG" >&2
		exit 1
	fi
done
