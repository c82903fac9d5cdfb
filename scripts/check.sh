# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev check`: sanitizers, analyzers, formats, and builds without optional libraries, each a stage. `dev` sources this file after
# packages.sh and build.sh.

STAGES='shell codespell format comments types abi minimal lto asan tsan jitter clang tidy analyzer valgrind aarch64 web engine bare'
# What `./dev check release` runs besides.
RELEASE_STAGES='test wheel'
TIDY_LIMIT_S=1200

# yes: `./dev check abi --update` writes what the stage compares with.
CHECK_UPDATE=no

# A stage that has nothing to look at in this tree ends with this status.
STAGE_SKIPPED=77

# shellcheck source=scripts/abi.sh
. "$ROOT/scripts/abi.sh"
# shellcheck source=scripts/aarch64.sh
. "$ROOT/scripts/aarch64.sh"
# shellcheck source=scripts/bare.sh
. "$ROOT/scripts/bare.sh"

# The files of the repository whose names match the patterns, one per line; works without git, too.
files_like()
{
	if fl_listed=$(git -C "$ROOT" ls-files -co --exclude-standard -- "$@" 2>/dev/null); then
		printf '%s\n' "$fl_listed" | while IFS= read -r fl_name; do
			[ -f "$ROOT/$fl_name" ] && printf '%s\n' "$fl_name"
		done
		return 0
	fi
	for fl_pattern; do
		(cd "$ROOT" && find . -type d -name 'build*' -prune -o -name .git -prune -o -type f -name "$fl_pattern" -print)
	done | sed 's|^\./||'
}

# for_files LIST COMMAND...: runs COMMAND in the root with the files in the list, one name per line.
for_files()
{
	ff_list=$1
	shift
	[ -n "$ff_list" ] || return $STAGE_SKIPPED
	(cd "$ROOT" && printf '%s\n' "$ff_list" | tr '\n' '\0' | xargs -0 "$@")
}

stage_shell()
{
	for sh_file in "$ROOT/dev" "$ROOT"/scripts/*.sh; do
		sh -n "$sh_file" || return 1
	done
	if [ -f "$ROOT/.ci/run" ]; then
		bash -n "$ROOT/.ci/run" || return 1
	fi
	if command -v shellcheck >/dev/null 2>&1; then
		(cd "$ROOT" && shellcheck -x dev scripts/*.sh .ci/run)
	fi
}

# inflight is the name of an option, te a string in a test.
stage_codespell()
{
	for_files "$(files_like '*.c' '*.h' '*.cu' '*.py' '*.md' '*.build' '*.txt' '*.sh' dev .ci/run)" codespell -q 3 -L inflight,te
}

stage_format()
{
	# Tables of test vectors are written by scripts.
	for_files "$(files_like '*.c' '*.h' | grep -v '_vectors\.h$')" clang-format --dry-run -Werror
}

# Functions and files that comments name exist.
stage_comments()
{
	files_like '*' | (cd "$ROOT" && python3 -B scripts/comment_names.py)
}

# The Python that the wheel ships, with the module that the build writes; python/mypy.ini names the exceptions.
stage_types()
{
	rm -rf "$ROOT/build-check/types" && mkdir -p "$ROOT/build-check/types" && cp -R "$ROOT/python/kvscout" "$ROOT/build-check/types" &&
		python3 "$ROOT/scripts/config_types.py" "$ROOT/docs/configuration.md" >"$ROOT/build-check/types/kvscout/config.py" &&
		(cd "$ROOT" && MYPYPATH="$ROOT/build-check/types" mypy --config-file python/mypy.ini --cache-dir=/dev/null -p kvscout)
}

# KVSCOUT_LONG=1, as `./dev check release` sets it: whole suites, and the long forms of programs.
is_long()
{
	[ "${KVSCOUT_LONG:-}" = 1 ]
}

# build_chosen DIR WORD... -- OPTIONS...: the product, and those tests that tests/rigs/chosen.py chooses by the words.
build_chosen()
{
	bc_dir=$1
	shift
	bc_words=
	while [ "$1" != -- ]; do
		bc_words="$bc_words $1"
		shift
	done
	shift
	build "$bc_dir" --target build.ninja "$@" || return 1
	# shellcheck disable=SC2086 # lists of words
	bc_targets=$(chosen "$bc_dir" targets $bc_words) && compile "$bc_dir" $bc_targets
}

# Client and worker alone; then all without CUDA, Redis and HTTP, whose short form has the tests of what differs then: ABI, configuration, L2
# and monitor.
stage_minimal()
{
	build "$ROOT/build-client" -Dserver=disabled -Dpython=disabled -Dwerror=true || return 1
	run_tests "$ROOT/build-client" || return 1
	set -- -Dcuda=disabled -Dredis=disabled -Ds3=disabled -Dmetrics=disabled -Dwerror=true
	if is_long; then
		build "$ROOT/build-minimal" "$@" || return 1
		run_tests "$ROOT/build-minimal"
		return
	fi
	sm_words='+abi config l2_ files monitor'
	# shellcheck disable=SC2086 # a list of words
	build_chosen "$ROOT/build-minimal" $sm_words -- "$@" || return 1
	# shellcheck disable=SC2046,SC2086 # lists of words
	run_tests "$ROOT/build-minimal" $(chosen "$ROOT/build-minimal" names $sm_words)
}

stage_lto()
{
	build "$ROOT/build-lto" --buildtype=release -Db_lto=true -Dwerror=true || return 1
	run_tests "$ROOT/build-lto" --suite unit --suite system --suite abi || return 1
	# All archives in one program.
	build "$ROOT/build-archives" --buildtype=release -Db_lto=true -Ddefault_library=static -Dwerror=true || return 1
	run_tests "$ROOT/build-archives" --suite abi
}

# Without -fno-sanitize-recover a finding of UBSan is printed and the test passes all the same.
# The short form leaves out the matrix, and with the tools' tests the tools' own code.
stage_asan()
{
	TIMEOUT_MULTIPLIER=10
	ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:check_initialization_order=1
	UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	export ASAN_OPTIONS UBSAN_OPTIONS
	set -- -Db_sanitize=address,undefined -Dc_args=-fno-sanitize-recover=all -Dwerror=true
	if is_long; then
		build "$ROOT/build-asan" "$@" || return 1
		run_tests "$ROOT/build-asan"
		return
	fi
	build_chosen "$ROOT/build-asan" +unit +system +fault -matrix -- "$@" || return 1
	run_tests "$ROOT/build-asan" --suite unit --suite system --suite fault --no-suite matrix
}

# gcc warns that its TSan does not understand fences; the one place that uses them tells TSan what they mean.
# Reports go to files, because the servers and workers of the fault tests have their stderr closed and many of them are killed.
# Always in the short form: TSan costs ten times as much.
# Tests fork workers beside threads of their own; TSan would end such a child when it starts a thread.
# Kernels that randomise more address bits than TSan expects make it stop at start, hence setarch where it is allowed.
stage_tsan()
{
	build "$ROOT/build-tsan" -Db_sanitize=thread -Dc_args=-Wno-tsan -Dwerror=true || return 1
	# shellcheck disable=SC2089 # TSan's own parser reads these quotes
	TSAN_OPTIONS="suppressions='$ROOT/tests/tsan.supp' second_deadlock_stack=1 die_after_fork=0 log_path='$ROOT/build-tsan/tsan-report'"
	# shellcheck disable=SC2090
	export TSAN_OPTIONS
	RUN_UNDER="setarch $(uname -m) -R"
	$RUN_UNDER true 2>/dev/null || RUN_UNDER=
	TIMEOUT_MULTIPLIER=10
	rm -f "$ROOT"/build-tsan/tsan-report.*
	KVSCOUT_LONG=
	export KVSCOUT_LONG
	run_tests "$ROOT/build-tsan" --suite unit --suite system --suite integration --suite fault --suite timing
	ts_status=$?
	ts_reports=$(grep -l '^WARNING: ThreadSanitizer' "$ROOT"/build-tsan/tsan-report.* 2>/dev/null)
	[ -n "$ts_reports" ] || return $ts_status
	# shellcheck disable=SC2086 # a list of names
	cat $ts_reports
	say "$(printf '%s\n' "$ts_reports" | wc -l) processes with reports of ThreadSanitizer"
	return 1
}

# With pauses where threads meet (tests/rigs/jitter.c), which bring out the orders of events of a busy machine. Those of the suites timing and
# paced count time, sleeps, or so many answers that the pauses would be all that they see.
stage_jitter()
{
	build_default || return 1
	TIMEOUT_MULTIPLIER=4
	run_tests "$ROOT/build" --setup jitter --suite unit --suite system --suite fault --suite integration --suite python --no-suite paced
}

build_clang()
{
	CC=clang
	export CC
	build "$ROOT/build-clang" -Db_lundef=false -Dwerror=true "-Dc_args=-Wthread-safety -Werror=thread-safety"
}

stage_clang()
{
	build_clang || return 1
	run_tests "$ROOT/build-clang" --suite unit --suite system --suite abi
}

stage_tidy()
{
	build_clang || return 1
	if command -v run-clang-tidy >/dev/null 2>&1; then
		timeout "$TIDY_LIMIT_S" run-clang-tidy -quiet -p "$ROOT/build-clang" "$ROOT/(libcommon|libclient|libworker|libserver|bench)/.*"
		return
	fi
	for_files "$(files_like '*.c' | grep -E '^(libcommon|libclient|libworker|libserver|bench)/')" \
		timeout "$TIDY_LIMIT_S" clang-tidy --quiet -p "$ROOT/build-clang"
}

# gcc's analyzer. It cannot follow what is kept in lists and arrays, and takes that for leaked; LeakSanitizer and the tests
# that let each allocation fail look for leaks better.
stage_analyzer()
{
	CC=gcc
	export CC
	build "$ROOT/build-analyzer" -Dc_args="-fanalyzer -Wno-analyzer-malloc-leak" -Dwerror=true
}

stage_valgrind()
{
	build_default || return 1
	if ! grep -q valgrind "$ROOT/build/meson-private/meson_test_setup.dat" 2>/dev/null; then
		say "meson.build has no test setup named valgrind"
		return $STAGE_SKIPPED
	fi
	say "the unit tests that can run in it: memcheck in tests/unit/*/meson.build"
	# shellcheck disable=SC2034 # build.sh reads it
	TIMEOUT_MULTIPLIER=10
	run_tests "$ROOT/build" --setup valgrind --suite memcheck
}

# The page of `kvscout web` in a real browser. Chromium is 380 MB with what it needs, more than all other packages, so ./dev test and CI have
# the cases of this test that need none.
stage_web()
{
	build_default || return 1
	run_tests "$ROOT/build" tools_web
}

# Real vLLM, at most four starts. Its environment (5.9 GB from PyPI) is made if it is not there; a machine that has no CPython 3.11, no room or
# no PyPI skips the stage.
stage_engine()
{
	# shellcheck source=scripts/engine.sh
	. "$ROOT/scripts/engine.sh"
	(cmd_engine --install)
	case $? in
	0) ;;
	2) return $STAGE_SKIPPED ;;
	*) return 1 ;;
	esac
	cmd_engine --short
}

# Stages of `./dev check release` only. These commands also run by themselves.
stage_test()
{
	build_default || return 1
	run_tests "$ROOT/build"
}

stage_wheel()
{
	"$ROOT/dev" wheel
}

packages_of_stage()
{
	case $1 in
	shell) ;;
	codespell) echo codespell ;;
	format) echo clang-format ;;
	comments) echo python3 ;;
	types) echo mypy ;;
	aarch64) [ "$(uname -m)" = aarch64 ] || echo "$BASE_PACKAGES python3 gcc-aarch64-linux-gnu qemu-user" ;;
	abi) echo "$BASE_PACKAGES abigail-tools" ;;
	clang) echo "$BASE_PACKAGES $TEST_PACKAGES $CLANG_PACKAGES" ;;
	tidy) echo "$BASE_PACKAGES $CLANG_PACKAGES clang-tidy" ;;
	web) echo "$BASE_PACKAGES $TEST_PACKAGES chromium" ;;
	valgrind) echo "$BASE_PACKAGES $TEST_PACKAGES valgrind" ;;
	bare) [ "$(id -u)" -ne 0 ] || echo debootstrap debian-archive-keyring ;;
	*) echo "$BASE_PACKAGES $TEST_PACKAGES $TEST_SERVICES" ;;
	esac
}

# Runs one stage, shows the end of its log if it failed, and adds its line to the table.
run_stage()
{
	rs_log=$ROOT/build-check/$1.log
	printf '== %-10s ' "$1"
	rs_start=$(date +%s)
	(stage_"$1") >"$rs_log" 2>&1 </dev/null
	rs_status=$?
	rs_seconds=$(($(date +%s) - rs_start))
	case $rs_status in
	0)
		rs_result=passed
		CHECK_PASSED=$((CHECK_PASSED + 1))
		;;
	"$STAGE_SKIPPED")
		rs_result=skipped
		CHECK_SKIPPED=$((CHECK_SKIPPED + 1))
		;;
	*)
		rs_result=FAILED
		CHECK_FAILED=$((CHECK_FAILED + 1))
		;;
	esac
	rs_note=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$rs_log" | tail -n 1)
	[ $rs_result != skipped ] || rs_note=$(tail -n 1 "$rs_log")
	say "$rs_result (${rs_seconds} s)"
	if [ $rs_result = FAILED ]; then
		tail -n 80 "$rs_log"
		say "-- the whole log is $rs_log"
	fi
	CHECK_TABLE="$CHECK_TABLE$(printf '%-10s %-8s %6s s   %s' "$1" "$rs_result" "$rs_seconds" "$rs_note")
"
}

cmd_check()
{
	case $* in
	'abi --update')
		CHECK_UPDATE=yes
		set -- abi
		;;
	release)
		KVSCOUT_LONG=1
		export KVSCOUT_LONG
		# shellcheck disable=SC2086 # a list of names
		set -- $RELEASE_STAGES $STAGES
		;;
	esac
	# shellcheck disable=SC2086 # a list of names
	[ $# -gt 0 ] || set -- $STAGES
	ck_packages=
	for ck_stage; do
		case " $STAGES $RELEASE_STAGES " in
		*" $ck_stage "*) ;;
		*) not_ready "check: no stage '$ck_stage'; there are: $STAGES, and release for all of them" ;;
		esac
		ck_packages="$ck_packages $(packages_of_stage "$ck_stage")"
	done
	# shellcheck disable=SC2086 # a list of names
	ck_packages=$(printf '%s\n' $ck_packages | awk 'NF && !seen[$0]++')
	if [ -n "$ck_packages" ]; then
		# shellcheck disable=SC2086 # a list of names
		need_packages $ck_packages
	fi
	case $ck_packages in
	*meson*) need_meson ;;
	esac
	mkdir -p "$ROOT/build-check" || die "cannot create $ROOT/build-check"
	CHECK_PASSED=0
	CHECK_FAILED=0
	CHECK_SKIPPED=0
	CHECK_TABLE=
	for ck_stage; do
		run_stage "$ck_stage"
	done
	say
	printf '%s' "$CHECK_TABLE"
	say "$CHECK_PASSED passed, $CHECK_FAILED failed, $CHECK_SKIPPED skipped"
	[ $CHECK_FAILED -eq 0 ] && [ $CHECK_PASSED -gt 0 ]
}
