#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/micro/micro_retrieve at small sizes: every mode brings every byte, from what was stored before and from what is stored meanwhile.
# usage: test_tools_retrieve.sh PROGRAM
. "$(dirname "$0")/../tap.sh"

tool=$1
sizes="--folder $tap_dir --chunk-bytes 64Ki --chunks 16 --rounds 2"

# shellcheck disable=SC2086 # sizes are several words
{
	check "all modes bring all bytes" ends_with 0 "before_answer" "$tool" $sizes
	check "cold, with something to do meanwhile, in one mode" \
		ends_with 0 "on_lookup" "$tool" $sizes --prefetch on_lookup --cold --think-us 1000
	check "pages that are used again" ends_with 0 "GB/s" "$tool" $sizes --pages 16
	check "a decode node waits for what a prefill node stores" \
		ends_with 0 "before_answer" "$tool" $sizes --poll-key-ms 1 --lookup-timeout-ms 20000
	check "an unknown key is refused" ends_with 2 "no configuration key" "$tool" $sizes --server-option l9=1
	# shellcheck disable=SC2016 # for the inner shell
	check "nothing is left behind" sh -c 'test -z "$(ls -d "$1"/kvscout-retrieve-* 2>/dev/null)"' left "$tap_dir"
	check "keys of the server are passed on" \
		ends_with 1 "metrics" "$tool" $sizes --server-option metrics=nowhere
}
finish
