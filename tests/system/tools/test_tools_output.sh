#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A result that could not be written must not look like one: every program ends with 1 and says so.
# usage: test_tools_output.sh PROGRAM...
. "$(dirname "$0")/../tap.sh"

for program; do
	name=$(basename "$program")
	check "$name --help goes to standard output" ends_with 0 "usage: $name" "$program" --help
	# shellcheck disable=SC2016 # for the inner shell
	check "$name --help to a full disk fails" ends_with 1 "$name: standard output could not be written" \
		sh -c '"$1" --help >/dev/full' full "$program"
done
finish
