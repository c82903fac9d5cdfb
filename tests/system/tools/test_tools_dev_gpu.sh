#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `./dev gpu` from an exported tree with gcc and libc alone: what builds is reported as not run where there is no GPU,
# what does not build is red, and a missing tool is named and skipped. What a hang must reach takes most of the time: its limit.
# usage: test_tools_dev_gpu.sh SOURCE_ROOT
root=$1
. "$(dirname "$0")/../tap.sh"

unset CC CUDA_HOME OUT CI KVSCOUT_WERROR
tree=$tap_dir/tree
tools=$tap_dir/tools
mkdir -p "$tree/tests" "$tools"
cp -R "$root/dev" "$root/scripts" "$root/include" "$root/libcommon" "$root/libclient" "$root/libworker" "$root/libserver" "$root/bench" "$root/tools" "$tree" || exit 1
cp -R "$root/tests/gpu" "$tree/tests" || exit 1

for tool in sh env dirname cp basename readlink sleep mkdir rm cat cksum sed grep head tee date timeout od printf gcc as ld; do
	found=$(command -v $tool) && [ -x "$found" ] && ln -s "$found" "$tools/$tool"
done

no_gcc=$tap_dir/no-gcc
mkdir "$no_gcc" && cp -P "$tools"/* "$no_gcc" && rm -f "$no_gcc/gcc" || exit 1

# In the exported tree, with those tools alone.
cat >"$tap_dir/dev_gpu" <<END
#!/bin/sh
exec env PATH="\${TEST_PATH:-$tools}" "$tree/dev" gpu "\$@"
END
chmod +x "$tap_dir/dev_gpu"
dev_gpu=$tap_dir/dev_gpu

fails_with_a_planted_error_in() {
	cp "$tree/$1" "$tap_dir/kept" && echo 'this is no line of C;' >>"$tree/$1" || return 1
	ends_with 1 "0 passed, 1 failed, 0 skipped" "$dev_gpu" --build
	fw_status=$?
	cp "$tap_dir/kept" "$tree/$1"
	return $fw_status
}

without_gcc() {
	ends_with 0 "SKIPPED, not found: gcc" env TEST_PATH="$no_gcc" "$dev_gpu" || return 1
	grep -qx "0 passed, 0 failed, 1 skipped" "$tap_dir/out"
}

# Cases that scripts/gpu.sh runs by name.
case_exists() {
	ce_name=$(sed -n 's/^GPU_CASE=//p' "$root/scripts/gpu.sh")
	[ -n "$ce_name" ] && grep -q "{\"$ce_name\", " "$root/tests/gpu/gpu_copy.c"
}

builds_and_runs_nothing() {
	ends_with 0 "build: passed" "$dev_gpu" --build || return 1
	"$tree/build-gpu/bin/kvscout-copy" --devices && return 0
	ends_with 0 "no GPU here" "$dev_gpu" || return 1
	tail -n 1 "$tap_dir/out" | grep -Eqx '1 passed, 0 failed, [1-9][0-9]+ skipped'
}

runs_what_was_built_before() {
	ends_with 0 "using the programs in build-gpu" env TEST_PATH="$no_gcc" "$dev_gpu" --build
}

# ---- the way through a machine with a GPU, with scripts in the place of the programs ----

# script NAME: the rest of its lines from standard input.
script() {
	{
		echo '#!/bin/sh'
		cat
	} >"$tree/build-gpu/bin/$1"
	chmod +x "$tree/build-gpu/bin/$1"
}

# Programs that look as if they had been built from this tree.
pretend_to_build() {
	rm -rf "$tree/build-gpu"
	mkdir -p "$tree/build-gpu/bin"
	(
		ROOT=$tree
		. "$tree/scripts/gpu.sh"
		gpu_stamp >"$tree/build-gpu/stamp"
	)
	script gpu_copy <<'END'
[ $# -eq 2 ] && exit 0
echo 1..4
echo ok 1 - a
echo not ok 2 - b
echo 'ok 3 - c # SKIP no'
echo ok 4 - d
exit 1
END
	script gpu_faults <<'END'
[ "$GPU_TEST_JOBS" = 1 ] || exit 1
echo 1..1
echo ok 1 - a
END
	script gpu_facts <<'END'
echo 1..1
echo ok 1 - a
END
	script kvscout-copy <<'END'
case "$*" in
--devices) echo 'device 0: pretended' ;;
*--budget-s*--lines*--json*) echo 'goals: 3 passed, 1 failed, 2 incomplete' ;;
*) exit 9 ;;
esac
END
}

# on_gpu STATUS COUNTS ARGS...: what `./dev gpu ARGS` says at its end.
on_gpu() {
	og_counts=$2
	og_status=$1
	shift 2
	mkdir -p "$tap_dir/results"
	ends_with "$og_status" "using the programs in build-gpu" env TEST_PATH="$no_gcc" OUT="$tap_dir/results" \
		"$dev_gpu" "$@" || return 1
	tail -n 1 "$tap_dir/out" | grep -Eqx "$og_counts, [1-9][0-9]* skipped"
}

# Passed: the facts, two cases, the one by PTX, the tool, three goals, the one that faults. Failed: a case, a goal. Skipped: the build, a case, two goals, and what is
# not there.
counts_every_case() {
	pretend_to_build
	on_gpu 1 "9 passed, 2 failed" --quick || return 1
	grep -q '^not ok 2 - b' "$tap_dir/results/gpu.log" && grep -q '^goals: 3 passed' "$tap_dir/results/gpu.log" || return 1
	[ -x /usr/local/cuda/bin/compute-sanitizer ] || on_gpu 1 "9 passed, 2 failed"
}

green_when_all_is_well() {
	pretend_to_build
	printf '[ $# -eq 2 ] && exit 0\necho 1..1\necho ok 1 - a\n' | script gpu_copy
	printf '[ "$*" = --devices ] || echo "goals: 13 passed, 0 failed, 0 incomplete"\n' | script kvscout-copy
	on_gpu 0 "18 passed, 0 failed" --quick
}

unusable_driver_is_red() {
	pretend_to_build
	printf '[ "$*" = --devices ] && exit 1\nexit 0\n' | script kvscout-copy
	printf 'echo "1..1"\necho "ok 1 - a # SKIP no device"\n' | script gpu_copy
	script gpu_facts <"$tree/build-gpu/bin/gpu_copy"
	on_gpu 1 "0 passed, 1 failed" --quick && grep -q '^looking for a GPU: FAILED, exit status 1' "$tap_dir/out"
}

# A case that hangs, and one behind it; then a program that ends before its plan.
hang_costs_its_program() {
	pretend_to_build
	printf '[ $# -eq 2 ] && exit 0\necho 1..3\necho ok 1 - a\nexec sleep 100\n' | script gpu_copy
	GPU_QUICK_TESTS_LIMIT_S=6
	export GPU_QUICK_TESTS_LIMIT_S
	on_gpu 1 "8 passed, 2 failed" --quick
	hc_status=$?
	unset GPU_QUICK_TESTS_LIMIT_S
	return $hc_status
}

early_end_is_red() {
	pretend_to_build
	printf '[ $# -eq 2 ] && exit 0\necho 1..3\necho ok 1 - a\n' | script gpu_copy
	on_gpu 1 "8 passed, 2 failed" --quick && grep -q '^gpu_copy: FAILED, it ended early' "$tap_dir/out"
}

# What was packed: a wheel whose tests say with what they were started, and the revision.
pretend_to_pack() {
	mkdir -p "$tree/build-gpu-carry/wheel" "$tree/build-gpu-carry/tests/gpu"
	: >"$tree/build-gpu-carry/wheel/a.whl"
	echo 1234567-dirty >"$tree/build-gpu-carry/revision"
	# shellcheck disable=SC2016 # the script's own words
	printf '#!/bin/sh\necho 1..1\n[ "$1 $2 $3" = "%s --wheel %s" ] && echo ok 1 - wheel\n' \
		"$tree/build-gpu-carry/tests/gpu/wheel_gpu.py" "$tree/build-gpu-carry/wheel/a.whl" >"$no_gcc/python3"
	chmod +x "$no_gcc/python3"
	(
		ROOT=$tree
		. "$tree/scripts/gpu.sh"
		gpu_carry_stamp >"$tree/build-gpu-carry/stamp"
	)
}

unpack() {
	rm -rf "$tree/build-gpu-carry" "$no_gcc/python3"
}

# Without git, as where it is taken along; of other sources than those that were packed nothing is known.
revision_travels() {
	pretend_to_pack
	(
		ROOT=$tree
		. "$tree/scripts/gpu.sh"
		[ "$(gpu_revision)" = 1234567-dirty ] || exit 1
		echo >>"$tree/libworker/copy/tile.h"
		[ "$(gpu_revision)" = unknown ]
	)
	rt_status=$?
	unpack
	return $rt_status
}

# The facts and the packed things first, the program as long as half of the time lasts; what faults behind the measurement.
order_is_by_worth() {
	pretend_to_build
	pretend_to_pack
	printf '#!/bin/sh\necho 1..1\nexec sleep 100\n' >"$tree/build-gpu-carry/gpu_worker"
	chmod +x "$tree/build-gpu-carry/gpu_worker"
	GPU_QUICK_TESTS_LIMIT_S=24 # the half that is left is what starting the others takes on a busy machine
	export GPU_QUICK_TESTS_LIMIT_S
	on_gpu 1 "10 passed, 3 failed" --quick
	ow_status=$?
	unset GPU_QUICK_TESTS_LIMIT_S
	unpack
	[ $ow_status -eq 0 ] &&
		[ "$(sed -n 's/^.*== \([a-z_-]*\).*$/\1/p' "$tap_dir/out" | tr '\n' ' ')" = "gpu_facts wheel_gpu gpu_worker gpu_copy one kvscout-copy gpu_faults " ]
}

# The tables land where OUT says, and nothing else is measured. Passed: the facts, the sweep, four goals; failed: a goal.
sweep_runs_alone() {
	pretend_to_build
	pretend_to_pack
	cat >"$no_gcc/python3" <<'END'
#!/bin/sh
[ "${1##*/} $2 ${3##*/} $4" = "sweep_gpu.py --wheel a.whl --budget-s" ] && [ "$5" -gt 300 ] && [ "$6 $8" = "--out auto" ] || exit 9
echo table >"$7/sweep.md"
echo 'goals: 4 passed, 1 failed, 2 incomplete'
END
	on_gpu 1 "6 passed, 1 failed" --sweep auto
	sr_status=$?
	unpack
	[ $sr_status -eq 0 ] && [ -s "$tap_dir/results/sweep.md" ] &&
		[ "$(sed -n 's/^.*== \([a-z_-]*\).*$/\1/p' "$tap_dir/out" | tr '\n' ' ')" = "gpu_facts sweep " ]
}

check "the cases that run once more exist" case_exists
check "every case, goal and step is counted" counts_every_case
check "a run in which nothing fails is green" green_when_all_is_well
check "a driver that cannot be used is red" unusable_driver_is_red
check "a test that hangs costs its own program" hang_costs_its_program
check "the programs run by their worth" order_is_by_worth
check "a test program that ends before its plan is red" early_end_is_red
check "a sweep runs alone, and its goals are counted" sweep_runs_alone
check "the revision travels with what is packed" revision_travels
rm -rf "$tree/build-gpu"
check "no gcc is a skip that says so" without_gcc
if command -v gcc >/dev/null; then
	check "a C file of the engine that does not compile is red" fails_with_a_planted_error_in libworker/copy/cuda/cuda_lane.c
	check "a test that does not compile is red" fails_with_a_planted_error_in tests/gpu/gpu_copy.c
	check "an exported tree builds, and reports what is not run" builds_and_runs_nothing
	check "programs that were built from this tree need no compiler" runs_what_was_built_before
else
	skip "builds" "no gcc"
fi
finish
