# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev fuzz`: each fuzzer of tests/fuzz for some seconds. `dev` sources this file after packages.sh and build.sh.

fuzz_one()
{
	fo_program=$1
	fo_name=$(basename "$fo_program")
	fo_topic=${fo_name#fuzz_}
	fo_corpus=$ROOT/build-fuzz/corpus/$fo_topic
	# The fuzzer adds to the corpus it is given, so it gets a copy.
	mkdir -p "$fo_corpus" || return 1
	if [ -d "$ROOT/tests/fuzz/corpus/$fo_topic" ]; then
		cp -R "$ROOT/tests/fuzz/corpus/$fo_topic/." "$fo_corpus/" || return 1
	fi
	say
	say "== $fo_name for $2 s"
	"$fo_program" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="$ROOT/build-fuzz/$fo_topic-" "$fo_corpus"
}

cmd_fuzz()
{
	fz_seconds=${1:-60}
	case $fz_seconds in
	'' | *[!0-9]*) not_ready "fuzz: SECONDS must be a whole number, not '$fz_seconds'" ;;
	esac
	# shellcheck disable=SC2086 # lists of names
	need_base $CLANG_PACKAGES clang-runtime
	clang_runtime_works || not_ready "clang cannot link with -fsanitize=address: its runtime library is missing"
	CC=clang
	export CC
	build "$ROOT/build-fuzz" -Dfuzz=true -Db_lundef=false -Db_sanitize=address,undefined \
		"-Dc_args=-fno-sanitize-recover=all -fsanitize=fuzzer-no-link" || exit 1
	fz_passed=0
	fz_failed=0
	for fz_program in "$ROOT"/build-fuzz/tests/fuzz/fuzz_*; do
		# meson keeps object files in directories of the same pattern, and a replay program knows no options.
		if [ -d "$fz_program" ] || ! "$fz_program" -help=1 2>&1 | grep -q max_total_time; then
			continue
		fi
		if fuzz_one "$fz_program" "$fz_seconds"; then
			fz_passed=$((fz_passed + 1))
		else
			say "FAILED $(basename "$fz_program"); the input is kept in $ROOT/build-fuzz"
			fz_failed=$((fz_failed + 1))
		fi
	done
	say
	[ $((fz_passed + fz_failed)) -gt 0 ] || say "dev: no fuzzer was built in build-fuzz/tests/fuzz" >&2
	say "$fz_passed passed, $fz_failed failed, 0 skipped"
	[ $fz_failed -eq 0 ] && [ $fz_passed -gt 0 ]
}
