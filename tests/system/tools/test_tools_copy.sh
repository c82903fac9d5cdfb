#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvscout-copy on a GPU, with a stand-in in the place of CUDA: what it measures, writes and judges, and what a failure costs.
# Half a minute: most cases measure ten points, and a hang costs the 5 s after which the tool gives it up.
# usage: test_tools_copy.sh COPY_STAND_IN KVSCOUT_COPY COPY_MARKDOWN
stand_in=$1
copy=$2
markdown=$3
. "$(dirname "$0")/../tap.sh"
unset STAND_IN

small="--backend cuda --piece-bytes 4Ki --total-bytes 2Mi --pool-bytes 8Mi --repeat 2"

# run ARGS...: a small run that writes everything.
run() {
	rm -f "$tap_dir"/run.*
	# shellcheck disable=SC2086 # options
	limited "$stand_in" $small --lines "$tap_dir/run.lines" --json "$tap_dir/run.json" "$@" >"$tap_dir/run.out" 2>&1
	run_status=$?
	cat "$tap_dir/run.out"
	return $run_status
}

# points STATUS: how many points have that status.
points() {
	cat "$tap_dir/run.lines" 2>/dev/null | grep -c "^{\"kind\": \"point\".*\"status\": \"$1\""
}

lines_are_json() {
	command -v python3 >/dev/null || return 0
	python3 -c 'import json,sys
[json.loads(line) for line in open(sys.argv[1])]
run = json.load(open(sys.argv[2]))
assert len(run["points"]) == run["planned_points"] and run["goals"], run' "$tap_dir/run.lines" "$tap_dir/run.json"
}

measures_everything() {
	run || return 1
	[ "$(points measured)" -eq 6 ] && [ "$(wc -l <"$tap_dir/run.lines")" -eq 8 ] || return 1
	grep -q "stand-in: all is freed, 0 violations" "$tap_dir/run.out" || return 1
	grep -q '"wrong_bytes": 0' "$tap_dir/run.lines" && ! grep -q '"wrong_bytes": [1-9]' "$tap_dir/run.lines" || return 1
	lines_are_json
}

# Of what is complete, and of what a run that was cut off has left.
tables_are_there() {
	command -v python3 >/dev/null || return 0
	for tt_file in run.json run.lines; do
		python3 "$markdown" "$tap_dir/$tt_file" >"$tap_dir/run.md" || return 1
		grep -q '^| h2d | [A-Z]* | [0-9.]* % at 4 KiB | 1 of 1 |$' "$tap_dir/run.md" || return 1
		grep -Eq '^\| 4 KiB \| [0-9.]+ \| [0-9.]+ \([0-9]+ %\) \|' "$tap_dir/run.md" || return 1
		grep -q ' GiB verified, 0 bytes wrong; 0 of 6 points not measured' "$tap_dir/run.md" || return 1
	done
	head -n 3 "$tap_dir/run.lines" >"$tap_dir/cut.lines"
	python3 "$markdown" "$tap_dir/cut.lines" | grep -q '0 bytes wrong; 4 of 6 points not measured'
}

wrong_byte_fails() {
	STAND_IN=wrong run && return 1
	[ $run_status -eq 1 ] && grep -q 'BYTES ARE WRONG' "$tap_dir/run.out" && grep -q 'bytes are wrong$' "$tap_dir/run.out" &&
		grep -q '"wrong_bytes": 1,.*"goal": "FAIL"' "$tap_dir/run.lines"
}

# costs_one_point MODE TEXT
costs_one_point() {
	STAND_IN=$1 run --direction d2h && return 1
	[ $run_status -eq 1 ] && [ "$(points failed)" -eq 1 ] && [ "$(points measured)" -eq 1 ] || return 1
	grep -q "\"layered\": true, .*\"status\": \"failed\", \"text\": \"$2" "$tap_dir/run.lines" && lines_are_json
}

# The goals are for auto; what another method breaks is a failure, and costs that method only.
broken_method_costs_itself() {
	STAND_IN=batch run && return 1
	[ $run_status -eq 1 ] && [ "$(points measured)" -eq 6 ] && grep -q '3 points broke with all methods' "$tap_dir/run.out" || return 1
	grep -q '"point": 0, .*"text": "with all methods: the measuring process ended by signal' "$tap_dir/run.lines" || return 1
	grep -q '"point": 5, .*"text": "", .*"methods": {"contiguous": .*"auto": ' "$tap_dir/run.lines" && lines_are_json
}

# Each new process meets it again, and after some of them the run gives up.
says_why_an_engine_fails() {
	STAND_IN=pin run --sweep && return 1
	[ $run_status -eq 1 ] && [ "$(points measured)" -eq 0 ] && [ "$(points failed)" -eq 9 ] || return 1
	grep -q '"text": "method .* has slots that are not pinned (SCOUT_ERR_DEVICE): engine: cannot pin' "$tap_dir/run.lines" || return 1
	grep -q '^not measured, too many processes failed: ' "$tap_dir/run.out"
}

no_device_is_a_skip() {
	STAND_IN=none run
	[ $run_status -eq 77 ] && grep -q 'SCOUT_ERR_DEVICE: no CUDA device' "$tap_dir/run.out"
}

groups_are_measured() {
	run --groups 4 --method auto || return 1
	[ "$(points measured)" -eq 6 ] && grep -q '"groups": 4' "$tap_dir/run.lines" || return 1
	grep -Eq '(PASS|FAIL) +several groups ' "$tap_dir/run.out"
}

options_reach_the_engines() {
	run --direction h2d --method staged --stage-bytes 1Mi || return 1
	grep -q '"stage_bytes": 1048576' "$tap_dir/run.lines" || return 1
	[ "$(points failed)" -eq 0 ]
}

# A sweep that runs out of time has measured what matters most, and says what it has not.
budget_ends_a_sweep() {
	budget_s=${1:-2}
	limited "$stand_in" --backend cuda --sweep --budget-s "$budget_s" --total-bytes 4Mi --pool-bytes 32Mi --lines "$tap_dir/run.lines" \
		>"$tap_dir/run.out" 2>&1 || { cat "$tap_dir/run.out"; return 1; }
	cat "$tap_dir/run.out"
	grep -q '^not measured, the time was used up:' "$tap_dir/run.out" || return 1
	# On a busy machine the first point takes longer than a short budget.
	if [ "$(points measured)" -eq 0 ] && [ "$budget_s" -lt 60 ]; then
		budget_ends_a_sweep $((2 * budget_s))
		return
	fi
	[ "$(points measured)" -ge 1 ] && grep -q 'INCOMPLETE' "$tap_dir/run.out" || return 1
	sed -n 2p "$tap_dir/run.lines" | grep -q '"direction": "h2d", "piece_bytes": 16384, "layered": false'
}

two_are_measured() {
	[ "$(points measured)" -ge 2 ]
}

# A run that is killed has written all that it had measured.
killed_keeps_its_lines() {
	rm -f "$tap_dir"/run.*
	"$stand_in" --backend cuda --sweep --total-bytes 4Mi --pool-bytes 32Mi --lines "$tap_dir/run.lines" \
		>"$tap_dir/run.out" 2>&1 &
	kk_pid=$!
	wait_until two_are_measured
	kill -KILL $kk_pid
	wait $kk_pid 2>/dev/null
	two_are_measured
}

json_alone_on_standard_output() {
	command -v python3 >/dev/null || return 0
	# shellcheck disable=SC2086 # options
	"$stand_in" $small --direction h2d --method staged --json - 2>/dev/null | python3 -c 'import json,sys; run = json.load(sys.stdin)
assert set(run["points"][0]["methods"]) == {"contiguous", "staged"}, run["points"][0]'
}

check "a run measures, verifies and writes every point" measures_everything
check "its tables are there" tables_are_there
check "one wrong byte fails the point and the run" wrong_byte_fails
check "a crash costs one point" costs_one_point crash "the measuring process ended by signal"
check "a hang costs one point" costs_one_point hang "nothing happened for 5 s"
check "an error of the device costs one point" costs_one_point error "w->gpu->pages(COPY_CHECK, .*: CUDA_ERROR_ILLEGAL_ADDRESS"
check "a method that crashes costs that method only" broken_method_costs_itself
check "what fails in the engine is told with its reason" says_why_an_engine_fails
check "no device is a skip" no_device_is_a_skip
check "groups of other pieces are measured" groups_are_measured
check "options of the engine are told with the results" options_reach_the_engines
check "a sweep ends with its budget" budget_ends_a_sweep
check "a run that is killed keeps what it has measured" killed_keeps_its_lines
check "JSON on standard output is alone there" json_alone_on_standard_output
check "groups are limited" ends_with 2 'kvscout-copy: --groups = "5": must be 0..4' "$copy" --backend cuda --groups 5
check "an unknown method is refused" ends_with 2 'must be one of memcpy, staged, batch, auto' "$copy" --method none
check "memcpy is refused on cuda" ends_with 2 'on cuda one of staged, batch, auto' "$stand_in" --backend cuda --method memcpy
check "a method of cuda is refused on the host" ends_with 2 '--method = "batch": on the host memcpy alone' "$copy" --method batch
finish
