# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Build directories and test runs for `dev`. Each kind of build has a directory of its own (build, build-asan, ...), so that switching
# between them never rebuilds. A directory holds the stamp of its configuration; one with another stamp (other options, compiler
# or meson, or a copied tree) is emptied and configured anew. `dev` sources this file and sets ROOT; INSTALLED_NOW comes from packages.sh.

RUN_UNDER=
# Limits of time are there to end what hangs. A program on a busy machine is slow, but does not hang.
TIMEOUT_MULTIPLIER=5

wants_werror()
{
	[ "${CI:-}" = true ] || [ "${KVSCOUT_WERROR:-}" = 1 ]
}

# Empties a build directory that is one; the log of apt survives.
empty_build_dir()
{
	[ -d "$1" ] || return 0
	find "$1" -mindepth 1 -maxdepth 1 ! -name apt.log -exec rm -rf {} +
}

# Whether a directory without a stamp, so configured by hand, belongs to this tree and this meson.
is_ours()
{
	grep -Fq "\"source\": \"$ROOT\"" "$1/meson-info/meson-info.json" 2>/dev/null &&
		grep -Fq "\"full\": \"$(meson --version)\"" "$1/meson-info/meson-info.json"
}

setup_anew()
{
	sa_dir=$1
	shift
	empty_build_dir "$sa_dir"
	say "dev: configuring and building $sa_dir from nothing; this takes a few minutes"
	meson setup "$sa_dir" "$ROOT" "$@" || return 1
	printf '%s\n' "$STAMP" >"$sa_dir/.dev-stamp"
}

# configure DIR OPTIONS...: afterwards DIR/build.ninja is there and up to date.
configure()
{
	cf_dir=$1
	shift
	STAMP="$ROOT|$(meson --version)|${CC:-cc}|$*"
	cf_anew=$INSTALLED_NOW
	if [ ! -f "$cf_dir/build.ninja" ]; then
		cf_anew=yes
	elif [ -f "$cf_dir/.dev-stamp" ]; then
		[ "$(cat "$cf_dir/.dev-stamp")" = "$STAMP" ] || cf_anew=yes
	elif ! is_ours "$cf_dir"; then
		cf_anew=yes
	elif wants_werror; then
		meson configure "$cf_dir" -Dwerror=true || return 1
	fi
	if [ "$cf_anew" = yes ]; then
		setup_anew "$cf_dir" "$@"
		return
	fi
	# Reconfigures if a meson.build changed; what cannot be reconfigured is configured from nothing.
	ninja -C "$cf_dir" build.ninja >/dev/null 2>&1 || setup_anew "$cf_dir" "$@"
}

# compile DIR [TARGET...]
compile()
{
	ninja -C "$@" || {
		say "dev: building in $1 failed; the first error is above" >&2
		return 1
	}
}

# chosen DIR names|targets WORD..., or chosen DIR needed MESON-ARGS...: see tests/rigs/chosen.py.
chosen()
{
	"$(python_of_tests)" -B "$ROOT/tests/rigs/chosen.py" "$@"
}

# The one that Debian's python3-zmq is for.
python_of_tests()
{
	[ -x /usr/bin/python3 ] && echo /usr/bin/python3 || echo python3
}

# build DIR [--target TARGET] OPTIONS...
build()
{
	bd_dir=$1
	shift
	bd_target=
	if [ "${1:-}" = --target ]; then
		bd_target=$2
		shift 2
	fi
	configure "$bd_dir" "$@" || {
		say "dev: configuring $bd_dir failed; see above and $bd_dir/meson-logs/meson-log.txt" >&2
		return 1
	}
	# shellcheck disable=SC2086 # one target, or nothing
	compile "$bd_dir" $bd_target
}

# build_default [MESON-ARGS...]: what `meson test MESON-ARGS` needs.
build_default()
{
	bf_werror=false
	wants_werror && bf_werror=true
	build "$ROOT/build" --target build.ninja -Dwerror=$bf_werror && bf_targets=$(chosen "$ROOT/build" needed "$@") || return 1
	# shellcheck disable=SC2086 # a list of names
	compile "$ROOT/build" $bf_targets
}

# meson_test DIR LOG MESON-ARGS...: leaves meson's exit status in RT_STATUS if that is not 0.
meson_test()
{
	mt_dir=$1
	mt_log=$2
	shift 2
	# Twice as many at once as CPUs: most programs wait for most of their time.
	# shellcheck disable=SC2086 # a command with arguments, or nothing
	MESON_TESTTHREADS=${MESON_TESTTHREADS:-$(($(nproc) * 2))} \
		$RUN_UNDER meson test -C "$mt_dir" --no-rebuild --print-errorlogs --timeout-multiplier "$TIMEOUT_MULTIPLIER" \
		--logbase "$mt_log" "$@" || RT_STATUS=$?
}

# run_tests DIR MESON-ARGS...: the last line on stdout is the count of test cases. Without arguments all tests run, those of the suite
# timing after the others, when nothing else of the suite takes CPU time from them.
run_tests()
{
	rt_dir=$1
	shift
	rm -f "$rt_dir"/meson-logs/testlog*.json
	CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-$TIMEOUT_MULTIPLIER} # Check's own limits; meson multiplies only its own
	KVSCOUT_RUN_UNDER=$RUN_UNDER
	export CK_TIMEOUT_MULTIPLIER KVSCOUT_RUN_UNDER
	RT_STATUS=0
	if [ $# -gt 0 ]; then
		meson_test "$rt_dir" testlog "$@"
	else
		meson_test "$rt_dir" testlog --no-suite timing
		meson_test "$rt_dir" testlog-timing --suite timing
	fi
	"$(python_of_tests)" -B "$ROOT/tests/rigs/summary.py" "$rt_dir" "$RT_STATUS" --timeout-multiplier "$TIMEOUT_MULTIPLIER" "$@"
}
