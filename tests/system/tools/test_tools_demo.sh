#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvscout-demo, whole.
# usage: test_tools_demo.sh KVSCOUT_DEMO
here=$(dirname "$0")
. "$here/../tap.sh"
demo=$1
trace=$tap_dir/trace.jsonl

"${PYTHON:-python3}" "$here/lru_sim.py" generate 11 300 >"$trace" || exit 1

# shows TEXT COMMAND...: a line of standard output has the text (a basic regular expression)
shows() {
	shows_text=$1
	shift
	limited "$@" >"$tap_dir/shown" || return 1
	cat "$tap_dir/shown"
	grep -q -- "$shows_text" "$tap_dir/shown"
}

# The numbers of the table fit together.
adds_up() {
	limited "$demo" --requests 120 --step-us 500 --l1-bytes 24Mi >"$tap_dir/shown" || return 1
	cat "$tap_dir/shown"
	grep -q '^requests  *120 ' "$tap_dir/shown" || return 1
	grep -q '^answers  *120$' "$tap_dir/shown" || return 1
	grep -q '^chunks stored .* [1-9][0-9]* evicted$' "$tap_dir/shown" || return 1
	copied=$(sed -n 's/^bytes copied out of the cache *//p' "$tap_dir/shown")
	verified=$(sed -n 's/^bytes verified *//p' "$tap_dir/shown")
	[ -n "$copied" ] && [ "$copied" = "$verified" ] && [ "$copied" != "0 B" ]
}

# Without a terminal, progress is whole lines on standard error.
tells_progress() {
	limited "$demo" --requests 20 --step-us 1000 2>"$tap_dir/progress" >"$tap_dir/shown" || return 1
	cat "$tap_dir/progress"
	grep -q '^step [0-9]*: [0-9]* of 20 requests done' "$tap_dir/progress"
}

ended_or_under_way() {
	grep -q '^step [0-9]*: [1-9]' "$tap_dir/progress" || ! kill -0 $pid
}

# Interrupted, it still prints the table of what was done.
interrupted() {
	"$demo" --requests 100000 --step-us 100 >"$tap_dir/shown" 2>"$tap_dir/progress" &
	pid=$!
	wait_until ended_or_under_way
	kill -INT $pid
	wait $pid
	status=$?
	cat "$tap_dir/shown" "$tap_dir/progress"
	[ $status -eq 0 ] && grep -q '^wrong bytes: 0$' "$tap_dir/shown"
}

check "a generated chat ends with no wrong byte" shows '^wrong bytes: 0$' "$demo" --requests 100 --step-us 500
check "the table adds up, with eviction under way" adds_up
check "blocking round trips are shown beside" shows 'the same questions, blocking .*[1-9]' "$demo" --requests 50 \
	--step-us 500
check "polled, every answer is there at the first ask" shows 'came "not yet" at the first ask *0$' "$demo" --requests 50 \
	--step-us 500 --lookup-mode polled
check "polled is what the table says" shows 'scout_lookup, polled, all waiting' "$demo" --requests 20 --lookup-mode polled
check "polled names the other mode as next" shows 'next: --lookup-mode async ' "$demo" --requests 20 --lookup-mode polled
check "async names the other mode as next" shows 'next: --lookup-mode polled ' "$demo" --requests 20
check "an unknown lookup mode is refused with the known ones" ends_with 2 "async" "$demo" --lookup-mode sync
check "the loop without a pause" shows '^wrong bytes: 0$' "$demo" --requests 200 --step-us 0 --seed 5
check "a trace, whole" shows '^requests  *300 ' "$demo" --trace "$trace" --step-us 200 --l1-bytes 2Mi
check "the first requests of a trace" shows '^requests  *40 ' "$demo" --trace "$trace" --requests 40 --step-us 200
check "progress without a terminal is lines" tells_progress
check "an interrupted run still ends with the table" interrupted
check "a missing trace file is named" ends_with 1 "$tap_dir/none" "$demo" --trace "$tap_dir/none"
check "an unknown option is named" ends_with 2 "--frobnicate" "$demo" --frobnicate 1
check "a pool larger than memory is refused" ends_with 2 "memory" "$demo" --l1-bytes 1000Gi
finish
