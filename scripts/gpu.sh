# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev gpu`: build everything that needs a GPU, test it, and measure it. `dev` sources this file; it uses say(), wants_werror(),
# ROOT and CALLED_FROM of it.
#
# A machine with a GPU often has neither meson nor a network, and it may be there for minutes only. So gcc alone builds all of it,
# from an exported tree too; a build that fails is a failure everywhere; results are printed and written as they come; and every step has
# a time limit, so that a step that hangs costs only itself.

GPU_DIR=$ROOT/build-gpu
GPU_CARRY=$ROOT/build-gpu-carry
: "${GPU_LIMIT_S:=570}"       # the whole command
: "${GPU_QUICK_LIMIT_S:=285}" # with --quick
: "${GPU_SWEEP_LIMIT_S:=400}" # with --sweep
: "${GPU_FACTS_LIMIT_S:=30}" # what is said of the machine, before all else
: "${GPU_WHEEL_LIMIT_S:=120}" # the wheel's cases
: "${GPU_QUICK_WHEEL_LIMIT_S:=60}"
: "${GPU_TESTS_LIMIT_S:=150}" # all programs of tests/gpu together
: "${GPU_QUICK_TESTS_LIMIT_S:=80}"
# The cases of tests/gpu/gpu_copy.c that run once more: with the driver's compiler, and under compute-sanitizer.
GPU_CASE=every_method_copies_every_byte_and_no_other

gpu_usage()
{
	cat <<'END'
usage: ./dev gpu [--quick] [--build | --pack] [OPTIONS OF kvscout-copy...]
       ./dev gpu --sweep [PART...]
       ./dev gpu --pack-vllm [--trim compact|zero|none] [--lock] [VERSION]
       ./dev gpu --vllm [--budget-s N] [CASE...]

  --quick   at most 5 minutes instead of 10: fewer rounds, no compute-sanitizer
  --sweep   only the sweep of a worker's copies, alone and beside a product of cuBLAS and an attention in Triton, in at most GPU_SWEEP_LIMIT_S
            seconds (400). Parts, the most telling first: layouts floor auto kernels stage methods rest. Needs what --pack writes, and torch
            for what runs beside the copies
  --build   build only; the programs in build-gpu also run on a machine without a compiler
  --pack    write all that a machine with a GPU may lack to build-gpu-carry, at most 64 MiB: the wheel (of build-wheel/dist, or built
            now) with its tests, the programs of --build, gpu_worker with its libraries, and the revision. Copy the folder to the
            GPU machine with the tree; ./dev gpu tests it there
  --pack-vllm  write vLLM's CUDA wheel and what it needs to build-gpu-vllm, in parts of at most 50 MiB; try them without a GPU in an environment
            of their own (build-gpu-vllm-trial, 7 GB). Reaches PyPI; needs Python 3.12 as python3.12 or as GPU_PYTHON. docs/gpu.md says more
  --vllm    real vLLM on the GPU, from build-gpu-vllm and build-gpu-carry: cases of tests/gpu/vllm_gpu.py, a line and a log for each

Results go to the folder that OUT names in the environment (default: build-gpu): kvscout-copy.md (the table for docs/gpu.md),
kvscout-copy.jsonl (a line for each result, as it comes), kvscout-copy.json, gpu.log (what the programs print); of the sweep sweep.md and
sweep.jsonl.
END
}

# ---- building --------------------------------------------------------------------------------------------------------

# Sets GPU_CC; prints nothing. GPU_MISSING: what is not there.
gpu_find_tools()
{
	GPU_CC=${CC:-gcc}
	GPU_MISSING=
	command -v "$GPU_CC" >/dev/null 2>&1 || GPU_MISSING=$GPU_CC
}

# The programs of this tree, by the contents of what they are built from.
gpu_stamp()
{
	(cd "$ROOT" && cat scripts/gpu.sh scripts/kernel_image.sh bench/copy/* bench/common/* tools/common/* tests/gpu/*.[ch] tests/gpu/rig/*.[ch] include/kvscout/*.h libcommon/base/*.[ch] \
		libcommon/config/*.[ch] libworker/copy/*.[ch] libworker/copy/cuda/*) | cksum
}

# The kernels as C: machine code of their PTX where a CUDA Toolkit has ptxas, and the PTX.
gpu_kernels()
{
	gk_ptxas=${CUDA_HOME:-/usr/local/cuda}/bin/ptxas
	[ -x "$gk_ptxas" ] || gk_ptxas=
	"$ROOT/scripts/kernel_image.sh" "$ROOT/libworker/copy/cuda/cuda_kernel.ptx" "$GPU_DIR/cuda_kernel_image.inc" "$gk_ptxas" &&
		"$ROOT/scripts/kernel_image.sh" "$ROOT/bench/copy/copy_kernels.ptx" "$GPU_DIR/copy_kernels_image.inc" "$gk_ptxas"
}

gpu_build()
{
	rm -rf "$GPU_DIR/engine" "$GPU_DIR/rig" "$GPU_DIR/tests" "$GPU_DIR/tool" "${GPU_DIR:?}/bin" "$GPU_DIR/stamp"
	mkdir -p "$GPU_DIR/engine" "$GPU_DIR/rig" "$GPU_DIR/tests" "$GPU_DIR/tool" "$GPU_DIR/bin" || return 1
	printf '#define SCOUT_GIT_REVISION "%s"\n' "$(gpu_revision)" >"$GPU_DIR/revision.h"
	gb_copy=$ROOT/libworker/copy
	gb_base=$ROOT/libcommon/base
	gb_strict=
	wants_werror && gb_strict=-Werror
	gb_flags="-std=gnu11 -O2 -g -Wall -Wextra -Wno-missing-field-initializers $gb_strict -D_GNU_SOURCE -I$ROOT/include -I$gb_base -I$gb_copy
		-I$gb_copy/cuda -I$ROOT/libcommon/config -I$ROOT/bench/common -I$ROOT/tools/common -I$GPU_DIR"
	gb_libs="-ldl -lpthread -lm"
	gb_rig=$ROOT/tests/gpu/rig
	gb_tool=$(gpu_tool_sources)
	gpu_kernels || return 1
	# shellcheck disable=SC2046,SC2086 # lists of files and flags; cuda_kernel.c is the GPU's
	(cd "$GPU_DIR/engine" && "$GPU_CC" $gb_flags -c "$gb_copy"/*.c $(gpu_c_files "$gb_copy"/cuda/*.c) "$gb_base"/*.c) || return 1
	# shellcheck disable=SC2086 # lists of flags
	(cd "$GPU_DIR/rig" && "$GPU_CC" $gb_flags -c "$gb_rig/gpu_driver.c" "$gb_rig/gpu_test.c" "$gb_rig/gpu_world.c") || return 1
	# shellcheck disable=SC2086 # lists of flags
	(cd "$GPU_DIR/tests" && "$GPU_CC" $gb_flags -I"$gb_rig" -c "$ROOT"/tests/gpu/gpu_*.c) || return 1
	# shellcheck disable=SC2086 # lists of flags and files
	(cd "$GPU_DIR/tool" && "$GPU_CC" $gb_flags '-DSCOUT_BUILD_TYPE="release"' -c $gb_tool) || return 1
	for gb_object in "$GPU_DIR"/tests/*.o; do
		# shellcheck disable=SC2086 # a list of flags
		"$GPU_CC" -o "$GPU_DIR/bin/$(basename "$gb_object" .o)" "$gb_object" "$GPU_DIR"/rig/*.o "$GPU_DIR"/engine/*.o $gb_libs || return 1
	done
	# shellcheck disable=SC2086 # a list of flags
	"$GPU_CC" -o "$GPU_DIR/bin/kvscout-copy" "$GPU_DIR"/tool/*.o "$GPU_DIR"/engine/*.o $gb_libs || return 1
	gpu_stamp >"$GPU_DIR/stamp"
}

# Of git, or as it was when these sources were packed: what is taken along has no .git.
gpu_revision()
{
	if git -C "$ROOT" describe --always --dirty 2>/dev/null; then
		return
	fi
	if [ -f "$GPU_CARRY/revision" ] && [ "$(cat "$GPU_CARRY/stamp")" = "$(gpu_carry_stamp)" ]; then
		cat "$GPU_CARRY/revision"
	else
		echo unknown
	fi
}

# Those of the files that are compiled for the CPU.
gpu_c_files()
{
	for gc_source; do
		case $gc_source in
		*/cuda_kernel.c | */copy_kernels.c) ;;
		*) printf '%s\n' "$gc_source" ;;
		esac
	done
}

gpu_tool_sources()
{
	gpu_c_files "$ROOT"/bench/copy/kvscout-copy.c "$ROOT"/bench/copy/copy_*.c "$ROOT"/tools/common/cli.c "$ROOT"/bench/common/machine.c \
		"$ROOT"/tools/common/say.c "$ROOT"/bench/common/spread.c "$ROOT"/libcommon/config/option_parse.c
}

# Counts the build as one case. Fails where there is nothing to run.
gpu_build_step()
{
	gpu_find_tools
	if [ -n "$GPU_MISSING" ]; then
		if ! [ -f "$GPU_DIR/stamp" ] && [ -f "$GPU_CARRY/build/stamp" ]; then
			cp -R "$GPU_CARRY/build/." "$GPU_DIR"
		fi
		if [ -f "$GPU_DIR/stamp" ] && [ "$(cat "$GPU_DIR/stamp")" = "$(gpu_stamp)" ]; then
			say "build: not found: $GPU_MISSING; using the programs in build-gpu, which were built from this tree"
			gpu_add 0 0 1
			return 0
		fi
		say "build: SKIPPED, not found: $GPU_MISSING (by PATH or CC)"
		gpu_add 0 0 1
		return 1
	fi
	if [ -f "$GPU_DIR/stamp" ] && [ "$(cat "$GPU_DIR/stamp")" = "$(gpu_stamp)" ]; then
		say "build: up to date"
	elif gpu_build; then
		say "build: passed"
	else
		say "build: FAILED; the first error is above"
		gpu_add 0 1 0
		return 1
	fi
	gpu_add 1 0 0
}

# ---- running ---------------------------------------------------------------------------------------------------------

gpu_add()
{
	GPU_PASSED=$((GPU_PASSED + $1))
	GPU_FAILED=$((GPU_FAILED + $2))
	GPU_SKIPPED=$((GPU_SKIPPED + $3))
}

# Seconds that are left of this command's time.
gpu_left()
{
	echo $((GPU_END_S - $(date +%s)))
}

# gpu_case NAME STATUS: one case by its exit status; 77 is skipped.
gpu_case()
{
	case $2 in
	0)
		say "$1: passed"
		gpu_add 1 0 0
		;;
	77)
		say "$1: SKIPPED"
		gpu_add 0 0 1
		;;
	124 | 137)
		say "$1: FAILED, it did not end in its time limit"
		gpu_add 0 1 0
		;;
	*)
		say "$1: FAILED, exit status $2"
		gpu_add 0 1 0
		;;
	esac
}

# gpu_logged SECONDS LOG COMMAND...: what the command prints is seen at once and kept in LOG. Sets GPU_STATUS.
gpu_logged()
{
	gl_limit=$1
	gl_log=$2
	shift 2
	{
		timeout -k 10 "$gl_limit" "$@" 2>&1
		echo $? >"$GPU_DIR/status"
	} | tee "$gl_log" | tee -a "$GPU_OUT/gpu.log"
	GPU_STATUS=$(cat "$GPU_DIR/status")
}

# gpu_count_tap NAME LOG STATUS: count the cases of a TAP program by its lines. What did not run is skipped; what a program that ended
# badly does not say is one failure.
gpu_count_tap()
{
	gc_plan=$(sed -n 's/^1\.\.\([0-9][0-9]*\).*/\1/p' "$2" | head -n 1)
	gc_skipped=$(grep -c '^ok .*# SKIP' "$2")
	gc_passed=$(($(grep -c '^ok ' "$2") - gc_skipped))
	gc_failed=$(grep -c '^not ok ' "$2")
	gc_rest=$((${gc_plan:-0} - gc_passed - gc_failed - gc_skipped))
	gpu_add $gc_passed "$gc_failed" "$gc_skipped"
	case $3 in
	124 | 137)
		say "$1: FAILED, the case behind the last line did not end in its time limit"
		[ $gc_rest -gt 0 ] || gc_rest=1
		gpu_add 0 1 $((gc_rest - 1))
		;;
	0)
		if [ -z "$gc_plan" ] || [ $gc_rest -ne 0 ]; then
			say "$1: FAILED, it ended early"
			gpu_add 0 1 0
		elif [ "$gc_plan" -eq 0 ]; then
			gpu_add 0 0 1
		fi
		;;
	*)
		if [ "$gc_failed" -eq 0 ]; then
			say "$1: FAILED, exit status $3"
			gpu_add 0 1 0
		fi
		;;
	esac
}

# ---- what is built elsewhere -----------------------------------------------------------------------------------------

# What the packed programs and the wheel are built from.
gpu_carry_stamp()
{
	(cd "$ROOT" && cat include/kvscout/*.h lib*/*.[ch] lib*/*/*.[ch] lib*/*/*/*.[ch] lib*/*/*/*.ptx python/kvscout/*.py python/kvscout/*/*.py \
		python/src/*.[ch] python/src/*/*.[ch] tests/gpu/*.[ch] tests/gpu/*.py tests/gpu/rig/*.[ch] tests/gpu/rig/*.py 2>/dev/null) | cksum
}

# Prints the wheel of build-wheel/dist, if nothing that it is made of is newer.
gpu_built_wheel()
{
	for gw_file in "$ROOT"/build-wheel/dist/*.whl; do
		[ -f "$gw_file" ] || continue
		[ -z "$(cd "$ROOT" && find meson.build include libcommon libclient libworker libserver bench python/kvscout python/src packaging -type f -newer "$gw_file")" ] &&
			printf '%s\n' "$gw_file"
		return
	done
}

# The wheel and its tests, where they find each other.
gpu_pack_wheel()
{
	gw_wheel=$(gpu_built_wheel)
	if [ -z "$gw_wheel" ]; then
		"$ROOT/dev" wheel --smoke >&2 || return 1
		gw_wheel=$(gpu_built_wheel)
	fi
	mkdir -p "$GPU_CARRY/wheel" "$GPU_CARRY/tests/gpu/rig" "$GPU_CARRY/python/tests" || return 1
	cp "$gw_wheel" "$GPU_CARRY/wheel" &&
		cp "$ROOT"/tests/gpu/*.py "$GPU_CARRY/tests/gpu" &&
		cp "$ROOT"/tests/gpu/rig/*.py "$GPU_CARRY/tests/gpu/rig" &&
		(cd "$ROOT/python/tests" && cp pages.py rig.py vllm_rig.py test_vllm_groups.py "$GPU_CARRY/python/tests")
}

# The programs of --build, for a machine without gcc.
gpu_pack_programs()
{
	gpu_build_step >&2 || return 1
	mkdir -p "$GPU_CARRY/build" && cp -R "$GPU_DIR/bin" "$GPU_DIR/stamp" "$GPU_CARRY/build" || return 1
	strip -g "$GPU_CARRY"/build/bin/* 2>/dev/null
	return 0
}

gpu_pack()
{
	rm -rf "$GPU_CARRY"
	mkdir -p "$GPU_DIR" "$GPU_CARRY" || return 1
	if ! { gpu_pack_programs && gpu_pack_worker && gpu_pack_wheel; }; then
		say "pack: FAILED, the first error is above" >&2
		return 1
	fi
	gpu_revision >"$GPU_CARRY/revision" && gpu_carry_stamp >"$GPU_CARRY/stamp" || return 1
	gp_size=$(du -sm "$GPU_CARRY" | cut -f 1)
	say "pack: build-gpu-carry, $gp_size MiB: $(cd "$GPU_CARRY" && echo wheel/*.whl), revision $(cat "$GPU_CARRY/revision")"
	[ "$gp_size" -le 64 ] || {
		say "pack: FAILED, more than 64 MiB do not travel" >&2
		return 1
	}
}

# A program with all its libraries. It starts with the machine's own libc, or, where that is older than the one that it was built
# with, by the ld.so and the libc of the machine that packed it.
gpu_pack_worker()
{
	need_base >&2
	build_default >&2 || return 1
	gp_program=$ROOT/build/tests/gpu/gpu_worker
	mkdir -p "$GPU_CARRY/lib" "$GPU_CARRY/libc" || return 1
	cp "$gp_program" "$GPU_CARRY/gpu_worker.bin" || return 1
	for gp_library in $(ldd "$gp_program" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p; s/^[ \t]*\(\/[^ ]*ld-[^ ]*\) .*/\1/p'); do
		case ${gp_library##*/} in
		ld-*) cp -L "$gp_library" "$GPU_CARRY/libc/ld.so" || return 1 ;;
		libc.* | libm.* | libdl.* | librt.* | libpthread.* | libresolv.*)
			cp -L "$gp_library" "$GPU_CARRY/libc" || return 1
			;;
		*) cp -L "$gp_library" "$GPU_CARRY/lib" || return 1 ;;
		esac
	done
	# The driver's library needs these, too: all of a libc, or none of it.
	for gp_library in libdl.so.2 librt.so.1 libpthread.so.0 libutil.so.1; do
		gp_path=$(dirname "$(ldd "$gp_program" | sed -n 's/.* => \(\/[^ ]*\/libc\.so\.6\) .*/\1/p')")/$gp_library
		[ ! -f "$gp_path" ] || cp -L "$gp_path" "$GPU_CARRY/libc" || return 1
	done
	strip -g "$GPU_CARRY/gpu_worker.bin" 2>/dev/null
	cat >"$GPU_CARRY/gpu_worker" <<'END'
#!/bin/sh
# Starts gpu_worker.bin with what lies beside it.
here=$(cd "$(dirname "$0")" && pwd -P)
GPU_TEST_SELF=$here/gpu_worker
export GPU_TEST_SELF
libraries=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if LD_LIBRARY_PATH=$libraries "$here/gpu_worker.bin" --starts >/dev/null 2>&1; then
	LD_LIBRARY_PATH=$libraries exec "$here/gpu_worker.bin" "$@"
fi
exec "$here/libc/ld.so" --library-path "$here/libc:$libraries" "$here/gpu_worker.bin" "$@"
END
	chmod +x "$GPU_CARRY/gpu_worker" || return 1
	"$GPU_CARRY/gpu_worker" --starts || return 1
	"$GPU_CARRY/libc/ld.so" --library-path "$GPU_CARRY/libc:$GPU_CARRY/lib" "$GPU_CARRY/gpu_worker.bin" --starts
}

# gpu_has_carried FILE: whether what was packed can run; says why not.
gpu_has_carried()
{
	if ! [ -f "$1" ]; then
		say "SKIPPED, there is no build-gpu-carry; ./dev gpu --pack makes it on a machine that has the packages of ./dev test"
	elif [ "$(cat "$GPU_CARRY/stamp")" != "$(gpu_carry_stamp)" ]; then
		say "SKIPPED, build-gpu-carry was packed from other sources; run ./dev gpu --pack anew"
	else
		return 0
	fi
	gpu_add 0 0 1
	return 1
}

# gpu_program PROGRAM SECONDS WORD...: a program of tests/gpu, by the words that start it.
gpu_program()
{
	gg_name=$(basename "$1")
	gg_limit=$2
	shift 2
	if [ "$gg_limit" -lt 5 ]; then
		say "$gg_name: not run, the time for tests is used up"
		gpu_add 0 0 1
		return
	fi
	gpu_logged "$gg_limit" "$GPU_DIR/$gg_name.tap" "$@"
	gpu_count_tap "$gg_name" "$GPU_DIR/$gg_name.tap" "$GPU_STATUS"
}

gpu_facts()
{
	say "== gpu_facts"
	gpu_program "$GPU_DIR/bin/gpu_facts" "$GPU_FACTS_LIMIT_S" env GPU_TEST_JOBS=1 "$GPU_DIR/bin/gpu_facts"
}

# The wheel that users get, with what vLLM does to it.
gpu_wheel()
{
	gw_limit=$GPU_WHEEL_LIMIT_S
	[ "$GPU_QUICK" = yes ] && gw_limit=$GPU_QUICK_WHEEL_LIMIT_S
	say "== wheel_gpu"
	gw_python=$(command -v python3) || {
		say "SKIPPED, there is no python3"
		gpu_add 0 0 1
		return
	}
	for gw_wheel in "$GPU_CARRY"/wheel/*.whl; do
		gpu_has_carried "$gw_wheel" || return
		gpu_program "$GPU_CARRY/tests/gpu/wheel_gpu" "$gw_limit" "$gw_python" "$GPU_CARRY/tests/gpu/wheel_gpu.py" --wheel "$gw_wheel"
	done
}

# The programs of tests/gpu that let the device live, while their time lasts. The one of client, server and worker together comes first:
# it says the most. It gets half of the time at most, so that the others have theirs where it hangs.
gpu_tests()
{
	gt_limit=$GPU_TESTS_LIMIT_S
	if [ "$GPU_QUICK" = yes ]; then
		gt_limit=$GPU_QUICK_TESTS_LIMIT_S
		GPU_TEST_QUICK=1 # each case once
		export GPU_TEST_QUICK
	fi
	gt_end=$(($(date +%s) + gt_limit))
	say "== gpu_worker"
	! gpu_has_carried "$GPU_CARRY/gpu_worker" || gpu_program "$GPU_CARRY/gpu_worker" $((gt_limit / 2)) "$GPU_CARRY/gpu_worker"
	for gt_program in "$GPU_DIR"/bin/gpu_*; do
		case ${gt_program##*/} in
		gpu_facts | gpu_faults) continue ;;
		esac
		say "== $(basename "$gt_program")"
		gpu_program "$gt_program" $((gt_end - $(date +%s))) "$gt_program"
	done
}

# The program that makes the device fail on purpose: behind all that would feel it, one case at a time.
gpu_faults()
{
	gf_left=$(gpu_left)
	say "== gpu_faults"
	gpu_program "$GPU_DIR/bin/gpu_faults" $((gf_left < 30 ? gf_left : 30)) env GPU_TEST_JOBS=1 "$GPU_DIR/bin/gpu_faults"
}

# One case with the machine code that the driver makes of the PTX.
gpu_jit()
{
	say "== one case by the driver's compiler (PTX)"
	gpu_logged 60 "$GPU_DIR/ptx.log" env CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1 "$GPU_DIR/bin/gpu_copy" $GPU_CASE 0
	gpu_case "ptx" "$GPU_STATUS"
}

# The sanitizer looks at one run of each method. Some virtual machines refuse it the device.
gpu_sanitize()
{
	gz_tool=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
	say "== compute-sanitizer"
	if ! [ -x "$gz_tool" ]; then
		say "there is no compute-sanitizer here"
		gpu_case compute-sanitizer 77
		return
	fi
	for gz_i in 0 1 2 3; do
		gz_left=$(gpu_left)
		if [ "$gz_left" -lt 30 ]; then
			say "compute-sanitizer, method $gz_i: not run, the time is used up"
			gpu_add 0 0 1
			continue
		fi
		gpu_logged "$gz_left" "$GPU_DIR/sanitizer.log" "$gz_tool" --error-exitcode 9 "$GPU_DIR/bin/gpu_copy" $GPU_CASE $gz_i
		grep -q 'Device not supported' "$GPU_DIR/sanitizer.log" && GPU_STATUS=77
		gpu_case "compute-sanitizer, method $gz_i" "$GPU_STATUS"
	done
}

# The tool counts as one case, and so does each goal: what is incomplete counts as not run.
gpu_measure()
{
	gm_quick=
	[ "$GPU_QUICK" = yes ] && gm_quick=--quick
	# What faults and the sanitizer come last, and get half a minute and a minute.
	gm_budget=$(($(gpu_left) - 30))
	[ "$GPU_QUICK" = yes ] || gm_budget=$((gm_budget - 60))
	if [ $gm_budget -lt 10 ]; then
		say "kvscout-copy: not run, the time is used up"
		gpu_add 0 0 1
		return
	fi
	say "== kvscout-copy, at most $gm_budget s"
	# shellcheck disable=SC2086 # an option or nothing
	gpu_logged $((gm_budget + 30)) "$GPU_DIR/kvscout-copy.log" "$GPU_DIR/bin/kvscout-copy" --backend cuda --sweep $gm_quick \
		--budget-s $gm_budget --lines "$GPU_OUT/kvscout-copy.jsonl" --json "$GPU_OUT/kvscout-copy.json" "$@"
	gpu_case kvscout-copy "$GPU_STATUS"
	gpu_goals "$GPU_DIR/kvscout-copy.log"
	if ! command -v python3 >/dev/null; then
		say "no table for docs/gpu.md: there is no python3"
		return
	fi
	python3 "$ROOT/bench/scripts/copy_markdown.py" "$GPU_OUT/kvscout-copy.jsonl" >"$GPU_OUT/kvscout-copy.md" || return 0
	say "the table for docs/gpu.md is $GPU_OUT/kvscout-copy.md"
}

# gpu_goals LOG: count the goals of a measurement, each as a case.
gpu_goals()
{
	go_counts=$(sed -n 's/^goals: \([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) incomplete$/\1 \2 \3/p' "$1")
	# shellcheck disable=SC2086 # three numbers
	gpu_add ${go_counts:-0 0 0}
}

# The copies of the packed wheel's worker, alone and beside a model's work. The last half minute is for the point that the time ends in.
gpu_sweep()
{
	gs_budget=$(($(gpu_left) - 30))
	say "== sweep, at most $gs_budget s"
	gs_python=$(command -v python3) || {
		say "SKIPPED, there is no python3"
		gpu_add 0 0 1
		return
	}
	for gs_wheel in "$GPU_CARRY"/wheel/*.whl; do
		gpu_has_carried "$gs_wheel" || return
		gpu_logged $((gs_budget + 25)) "$GPU_DIR/sweep.log" "$gs_python" "$GPU_CARRY/tests/gpu/sweep_gpu.py" --wheel "$gs_wheel" \
			--budget-s $gs_budget --out "$GPU_OUT" "$@"
		gpu_case sweep "$GPU_STATUS"
		gpu_goals "$GPU_DIR/sweep.log"
		say "the tables are $GPU_OUT/sweep.md"
	done
}

# The programs ask the driver, not a device file. 77: there is no GPU; anything else but 0: there is one that cannot be used.
gpu_probe()
{
	gpu_logged 60 "$GPU_DIR/devices.log" "$GPU_DIR/bin/kvscout-copy" --devices
	return "$GPU_STATUS"
}

gpu_main()
{
	GPU_PASSED=0
	GPU_FAILED=0
	GPU_SKIPPED=0
	GPU_QUICK=no
	gp_build_only=no
	gp_sweep_only=no
	while [ $# -gt 0 ]; do
		case $1 in
		--quick) GPU_QUICK=yes ;;
		--sweep) gp_sweep_only=yes ;;
		--build) gp_build_only=yes ;;
		--pack)
			gpu_pack
			return
			;;
		--pack-vllm)
			shift
			"${GPU_PYTHON:-python3.12}" -B "$ROOT/scripts/gpu_vllm_pack.py" "$ROOT" "$@"
			return
			;;
		--vllm)
			shift
			OUT=${OUT:-$GPU_DIR} python3 -B "$ROOT/tests/gpu/vllm_gpu.py" "$@"
			return
			;;
		-h | --help)
			gpu_usage
			return 0
			;;
		*) break ;;
		esac
		shift
	done
	gp_limit=$GPU_LIMIT_S
	[ "$GPU_QUICK" = yes ] && gp_limit=$GPU_QUICK_LIMIT_S
	[ $gp_sweep_only = yes ] && gp_limit=$GPU_SWEEP_LIMIT_S
	GPU_END_S=$(($(date +%s) + gp_limit))
	GPU_OUT=${OUT:-$GPU_DIR}
	case $GPU_OUT in
	/*) ;;
	*) GPU_OUT=$CALLED_FROM/$GPU_OUT ;;
	esac
	mkdir -p "$GPU_DIR" "$GPU_OUT" && : >"$GPU_OUT/gpu.log" || return 1
	if gpu_build_step && [ $gp_build_only = no ]; then
		gpu_probe
		gp_probe=$?
		case $gp_probe in
		0) ;;
		77) say "no GPU here: everything is built, the rest is not run" ;;
		*) gpu_case "looking for a GPU" $gp_probe ;;
		esac
		gpu_facts
		if [ $gp_sweep_only = yes ]; then
			gpu_sweep "$@"
			gpu_end
			return
		fi
		gpu_wheel
		gpu_tests
		if [ $gp_probe -eq 0 ]; then
			gpu_jit
			gpu_measure "$@"
			gpu_faults
			[ "$GPU_QUICK" = yes ] || gpu_sanitize
		else
			say "not run: ptx, kvscout-copy, gpu_faults, compute-sanitizer"
			gpu_add 0 0 4
		fi
	fi
	gpu_end
}

gpu_end()
{
	say "$GPU_PASSED passed, $GPU_FAILED failed, $GPU_SKIPPED skipped"
	[ "$GPU_FAILED" -eq 0 ]
}
