# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev wheel`: builds the Python wheel for glibc 2.28, audits it, installs it into an empty environment and runs its tests there.
# `dev` sources this file after packages.sh and build.sh. All that it makes lies in build-wheel/, and a second run takes from there what
# still fits: tools (the tools' environment), sources, third (third parties unpacked and built), prefix (their archives), build, dist.
#
# A wheel for the other architecture lies in build-wheel-ARCH/. zig compiles for both; the tests run in qemu-user, with a Python of Debian
# for that architecture (aarch64.sh unpacks it). Without binfmt_misc the kernel starts no program of it, so each becomes a script.

WHEEL_TOOLS=$ROOT/build-wheel
WHEEL_COUNTS=$WHEEL_TOOLS/counts
WHEEL_GLIBC=2.28
# shellcheck disable=SC2034 # dev's own list has the rest
WHEEL_PACKAGES='python3 python3-venv python3-dev dpkg-dev pkgconf'

# shellcheck source=scripts/aarch64.sh
. "$ROOT/scripts/aarch64.sh"

# Whether the wheel is for another architecture than this machine's.
is_cross()
{
	[ "$WHEEL_CPU" != "$(uname -m)" ]
}

wheel_failed()
{
	say "dev: $1; the log is $2" >&2
	[ -f "$2" ] && tail -n 40 "$2" >&2
	say "0 passed, 1 failed, 0 skipped"
	exit 1
}

# step NAME COMMAND...: its output goes to a log, which is shown if it fails. Status 77: it cannot run here, and the last line says why.
step()
{
	sp_name=$1
	sp_log=$WHEEL/logs/$1.log
	shift
	sp_began=$(date +%s)
	printf 'wheel: %s ... ' "$sp_name"
	"$@" >"$sp_log" 2>&1 </dev/null
	case $? in
	0) say "$(($(date +%s) - sp_began)) s" ;;
	77)
		say "skipped: $(tail -n 1 "$sp_log")"
		echo "0 0 1" >>"$WHEEL_COUNTS"
		;;
	*)
		say "failed"
		wheel_failed "$sp_name failed" "$sp_log"
		;;
	esac
}

# fits STAMP TEXT: whether the stamp holds that text; for what an earlier run made.
fits()
{
	[ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

sum_of_files()
{
	cat "$@" | sha256sum | cut -d ' ' -f 1
}

# make_environment DIR REQUIREMENTS...: an environment of Python with exactly these packages; pip checks their SHA-256.
make_environment()
{
	me_dir=$1
	shift
	"$WHEEL_PYTHON" -m venv --clear "$me_dir" || return 1
	for me_file; do
		"$me_dir/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
			-r "$me_file" || return 1
	done
}

# Where Debian's source packages lie: where apt has its packages from, unless the environment names another place. Debian removes a
# source package from there when no release has it any more; archives of its snapshots keep all.
mirrors()
{
	if [ -n "${KVSCOUT_DEBIAN_MIRROR:-}" ]; then
		say "$KVSCOUT_DEBIAN_MIRROR"
	else
		# shellcheck disable=SC2016 # apt fills that in
		apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u
	fi
}

# fetch_file PATH FILE SHA256: from the first mirror that has it. The sum decides, so that plain HTTP is enough.
fetch_file()
{
	if [ -f "$2" ] && printf '%s  %s\n' "$3" "$2" | sha256sum -c --quiet 2>/dev/null; then
		return 0
	fi
	rm -f "$2"
	for ff_mirror in $(mirrors); do
		ff_mirror=${ff_mirror%/}
		if [ -x /usr/lib/apt/apt-helper ]; then
			# It knows the proxies and certificates that apt is configured with.
			/usr/lib/apt/apt-helper download-file "$ff_mirror/pool/main/$1" "$2" "SHA256:$3" && return 0
		else
			curl -fsSL -o "$2" "$ff_mirror/pool/main/$1" &&
				printf '%s  %s\n' "$3" "$2" | sha256sum -c --quiet && return 0
		fi
		rm -f "$2"
	done
	say "no source of apt's has pool/main/$1 with the SHA-256 $3; KVSCOUT_DEBIAN_MIRROR names another place, such as a snapshot of Debian's archive"
	return 1
}

# Unpacks each source package of sources.txt, with Debian's patches, into third/NAME. The .dsc holds the sums of the other files.
get_sources()
{
	mkdir -p "$WHEEL_TOOLS/sources" "$WHEEL/third" || return 1
	grep -v '^#' "$ROOT/packaging/third-parties/sources.txt" | while read -r gs_name gs_path gs_sum; do
		fits "$WHEEL/third/$gs_name.stamp" "$gs_sum" && continue
		gs_dsc=$WHEEL_TOOLS/sources/${gs_path##*/}
		fetch_file "$gs_path" "$gs_dsc" "$gs_sum" || exit 1
		sed -n '/^Checksums-Sha256:/,/^[^ ]*:$/s/^ \([0-9a-f]\{64\}\) [0-9]* \(.*\)$/\1 \2/p' "$gs_dsc" |
			while read -r gs_file_sum gs_file; do
				fetch_file "${gs_path%/*}/$gs_file" "$WHEEL_TOOLS/sources/$gs_file" "$gs_file_sum" || exit 1
			done || exit 1
		rm -rf "$WHEEL/third/$gs_name"
		dpkg-source --no-copy -x "$gs_dsc" "$WHEEL/third/$gs_name" || exit 1
		printf '%s\n' "$gs_sum" >"$WHEEL/third/$gs_name.stamp" || exit 1
	done
}

# OpenSSL's own scripts write the headers and the assembly of SHA-256.
generate_sha256()
{
	[ -f "$WHEEL/third/openssl/gen/include/openssl/configuration.h" ] && return 0
	(
		cd "$WHEEL/third/openssl" || exit 1
		rm -rf gen && mkdir -p gen/include/openssl || exit 1
		CC=$WHEEL/bin/cc
		export CC # the assembly's author asks it which instructions it knows
		perl Configure "linux-$WHEEL_CPU" no-shared no-tests || exit 1
		for gsh_header in include/openssl/*.h.in; do
			gsh_name=${gsh_header##*/}
			[ "$gsh_name" = configuration.h.in ] && continue
			perl -I. -Mconfigdata util/dofile.pl -omakefile "$gsh_header" >"gen/include/openssl/${gsh_name%.in}" || exit 1
		done
		case $WHEEL_CPU in
		x86_64)
			perl crypto/sha/asm/sha512-x86_64.pl elf gen/sha256-x86_64.s &&
				perl crypto/x86_64cpuid.pl elf gen/x86_64cpuid.s || exit 1
			;;
		aarch64)
			perl crypto/sha/asm/sha512-armv8.pl linux64 gen/sha256-armv8.S &&
				perl crypto/arm64cpuid.pl linux64 gen/arm64cpuid.S || exit 1
			;;
		esac
		cp include/openssl/configuration.h gen/include/openssl/ # last: it says that all are there
	)
}

# The compiler as meson sees it: one native file, for the third parties and for kvscout.
write_toolchain()
{
	mkdir -p "$WHEEL/bin" "$WHEEL/headers" || return 1
	wt_zig=$("$WHEEL_TOOLS/tools/bin/python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))') || return 1
	wt_ptxas=$("$WHEEL_TOOLS/tools/bin/python" -c 'import importlib.metadata as m
print(*(f.locate() for f in m.files("nvidia-cuda-nvcc-cu12") if f.name == "ptxas"))') || return 1
	# zig keeps what it has compiled, its own libraries too.
	for wt_language in cc c++ ar; do
		wt_target="-target $WHEEL_CPU-linux-gnu.$WHEEL_GLIBC"
		[ $wt_language != ar ] || wt_target=
		cat >"$WHEEL/bin/$wt_language" <<END || return 1
#!/bin/sh
export ZIG_GLOBAL_CACHE_DIR='$WHEEL/zig-cache' ZIG_LOCAL_CACHE_DIR='$WHEEL/zig-cache'
exec '$wt_zig' $wt_language $wt_target "\$@"
END
		chmod +x "$WHEEL/bin/$wt_language" || return 1
	done
	# Debian's Python.h includes <x86_64-linux-gnu/python3.11/pyconfig.h>, which lies in /usr/include; the rest there is of another glibc.
	wt_multiarch=$("$WHEEL_PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("MULTIARCH") or "")')
	if [ -n "$wt_multiarch" ] && [ -d "/usr/include/$wt_multiarch" ]; then
		mkdir -p "$WHEEL/headers/$WHEEL_CPU-linux-gnu" || return 1
		for wt_dir in "$WHEEL_SYSROOT/usr/include/$WHEEL_CPU-linux-gnu"/python3.*; do
			ln -sfn "$wt_dir" "$WHEEL/headers/$WHEEL_CPU-linux-gnu/${wt_dir##*/}" || return 1
		done
		# The plugin for S3 needs libcurl's headers, which include nothing but the C library's.
		ln -sfn "/usr/include/$wt_multiarch/curl" "$WHEEL/headers/curl" || return 1
	fi
	cat >"$WHEEL/native.ini" <<END
[binaries]
c = '$WHEEL/bin/cc'
cpp = '$WHEEL/bin/c++'
python = '$WHEEL_TOOLS/tools/bin/python'
ptxas = '$wt_ptxas'

[built-in options]
c_args = ['-isystem', '$WHEEL/headers', '-fno-sanitize=undefined', '-ffunction-sections', '-fdata-sections', '-fstack-protector-strong',
  '-ffile-prefix-map=$ROOT/=', '-ffile-prefix-map=../=']
c_link_args = ['-s', '-Wl,--gc-sections', '-Wl,-z,relro,-z,now']
buildtype = 'release'
optimization = '2'
END
	is_cross || return 0
	cat >>"$WHEEL/native.ini" <<END

[host_machine]
system = 'linux'
cpu_family = '$WHEEL_CPU'
cpu = '$WHEEL_CPU'
endian = 'little'
END
	sed -i "s|^c = |ar = '$WHEEL/bin/ar'\\npkg-config = 'pkg-config'\n&|" "$WHEEL/native.ini"
}

# The PTX in the tree is what its compiler makes of the sources in the tree.
check_kernels()
{
	"$ROOT/scripts/kernels.sh" --check "$(wheel_zig)"
}

wheel_zig()
{
	sed -n "s/^exec '\(.*\)' cc .*/\1/p" "$WHEEL/bin/cc"
}

build_third_parties()
{
	generate_sha256 || return 1
	# An unchanged file keeps its time, so that nothing is built again after a checkout.
	(cd "$ROOT/packaging/third-parties" && find meson.build config -type f) | while read -r bt_file; do
		cmp -s "$ROOT/packaging/third-parties/$bt_file" "$WHEEL/third/$bt_file" && continue
		mkdir -p "$(dirname "$WHEEL/third/$bt_file")" || exit 1
		cp "$ROOT/packaging/third-parties/$bt_file" "$WHEEL/third/$bt_file" || exit 1
	done || return 1
	if ! fits "$WHEEL/third-build/native.stamp" "$(cat "$WHEEL/native.ini")"; then
		rm -rf "$WHEEL/third-build" "$WHEEL/prefix" "$WHEEL/build" || return 1
		"$WHEEL_TOOLS/tools/bin/meson" setup "$WHEEL/third-build" "$WHEEL/third" "$WHEEL_FILE=$WHEEL/native.ini" \
			--prefix "$WHEEL/prefix" --libdir lib || return 1
		cp "$WHEEL/native.ini" "$WHEEL/third-build/native.stamp" || return 1
	fi
	"$WHEEL_TOOLS/tools/bin/meson" install -C "$WHEEL/third-build" --quiet --only-changed
}

# The wheel as meson-python makes it, with the third parties' archives. The build folder stays, so that the next run builds what changed.
build_wheel()
{
	bw_werror=false
	wants_werror && bw_werror=true
	rm -rf "$WHEEL/raw" "$WHEEL/dist" || return 1
	mkdir -p "$WHEEL/raw" "$WHEEL/dist" || return 1
	# Called directly: the pip of Debian 12 cannot pass several options of one name.
	PATH=$WHEEL_TOOLS/tools/bin:$PATH PKG_CONFIG_LIBDIR=$WHEEL/prefix/lib/pkgconfig "$WHEEL_TOOLS/tools/bin/python" -c '
import sys, mesonpy
mesonpy.build_wheel(sys.argv[1], {"build-dir": sys.argv[2], "setup-args": sys.argv[3:]})' "$WHEEL/raw" "$WHEEL/build" \
		"$WHEEL_FILE=$WHEEL/native.ini" -Dsha256=libcrypto-sha256 -Dredis=enabled -Ds3=enabled -Dmetrics=enabled -Dcuda=enabled -Db_pie=true -Dwerror=$bw_werror || return 1
	# Licences, the list of parts, the tag of the glibc that it was built for.
	"$WHEEL_TOOLS/tools/bin/python" -B "$ROOT/packaging/wheel/finish.py" --third "$WHEEL/third" \
		--sources "$ROOT/packaging/third-parties/sources.txt" --zig "$(dirname "$(wheel_zig)")" \
		--platform "manylinux_$(printf '%s' "$WHEEL_GLIBC" | tr . _)_$WHEEL_CPU" --out "$WHEEL/dist" "$WHEEL"/raw/*.whl
}

# The source package of the last commit, built as pip builds it where no wheel fits: with the system's compiler and libraries.
build_sdist()
{
	if ! git -C "$ROOT" rev-parse HEAD >/dev/null 2>&1; then
		say "an sdist is made from a commit, and this tree is no git repository"
		return 77
	fi
	rm -rf "$WHEEL/sdist-venv" "$WHEEL/sdist-wheel" || return 1
	PATH=$WHEEL_TOOLS/tools/bin:$PATH "$WHEEL_TOOLS/tools/bin/python" -c '
import sys, mesonpy
mesonpy.build_sdist(sys.argv[1])' "$WHEEL/dist" || return 1
	# Whether it builds is asked, not how fast the result is.
	PATH=$WHEEL_TOOLS/tools/bin:$PATH "$WHEEL_TOOLS/tools/bin/python" -m pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps \
		-w "$WHEEL/sdist-wheel" --config-settings setup-args=-Dbuildtype=plain "$WHEEL"/dist/*.tar.gz || return 1
	make_environment "$WHEEL/sdist-venv" || return 1
	"$WHEEL/sdist-venv/bin/python" -m pip install -q --disable-pip-version-check --no-index "$WHEEL"/sdist-wheel/*.whl || return 1
	cd / && "$WHEEL/sdist-venv/bin/python" -c 'import kvscout; print(kvscout.__version__)' && "$WHEEL/sdist-venv/bin/kvscoutd" --version
}

# count_tap: copies TAP from stdin and leaves the sums in counts, one line for each program.
count_tap()
{
	tee "$WHEEL/tap"
	awk '/^ok .*# SKIP/ { s++; next } /^ok / { p++; next } /^not ok / { f++ } /^1\.\.0/ { s++ } END { print p + 0, f + 0, s + 0 }' \
		"$WHEEL/tap" >>"$WHEEL_COUNTS"
}

# run_tap COMMAND...: a command that speaks TAP; one that fails without a failed line counts as failed.
run_tap()
{
	: >"$WHEEL/status"
	{ "$@" </dev/null || echo $? >"$WHEEL/status"; } | count_tap
	if [ -s "$WHEEL/status" ] && ! grep -q '^not ok' "$WHEEL/tap"; then
		say "not ok - $* ended with status $(cat "$WHEEL/status")"
		echo "0 1 0" >>"$WHEEL_COUNTS"
	fi
}

# test_file ENVIRONMENT FILE [CASE...]: against what is installed in the environment, nothing else on the way.
test_file()
{
	te_dir=$1
	shift
	te_emulated=0
	! is_cross || te_emulated=1
	run_tap env -u PYTHONPATH -u KVSCOUTD KVSCOUT_TEST_EMULATED=$te_emulated PATH="$te_dir/bin:$PATH" VIRTUAL_ENV="$te_dir" PYTHONDONTWRITEBYTECODE=1 \
		"$te_dir/bin/python" "$ROOT/python/tests/tap.py" "$@"
}

# emulated FILE PROGRAM: a script that runs the program in qemu-user under the script's own name, by which Python finds its environment.
emulated()
{
	rm -f "$1" || return 1
	# shellcheck disable=SC2016 # the script expands them
	printf '#!/bin/sh\nexec qemu-%s -L %s -0 "$0" %s "$@"\n' "$WHEEL_CPU" "$WHEEL_SYSROOT" "$2" >"$1" && chmod +x "$1"
}

install_empty()
{
	make_environment "$WHEEL/empty" || return 1
	! is_cross || emulated "$WHEEL/empty/bin/python" "$WHEEL_SYSROOT/usr/bin/python3.11" || return 1
	"$WHEEL/empty/bin/python" -m pip install -q --disable-pip-version-check --no-index "$WHEEL"/dist/*.whl || return 1
	is_cross || return 0
	for ie_name in kvscout kvscoutd kvscout-latency kvscout-replay; do
		ie_file=$WHEEL/empty/lib/python3.11/site-packages/kvscout/$ie_name
		mv "$ie_file" "$ie_file.$WHEEL_CPU" && emulated "$ie_file" "$ie_file.$WHEEL_CPU" || return 1
	done
}

install_beside()
{
	make_environment "$WHEEL/beside" "$ROOT/packaging/wheel/requirements-beside.txt" || return 1
	"$WHEEL/beside/bin/python" -m pip install -q --disable-pip-version-check --no-index "$WHEEL"/dist/*.whl
}

# What can go wrong with a wheel: its programs, its extension with the archives that are linked into it, one copy through a server that
# it starts, and what vLLM imports.
smoke_tests()
{
	while read -r sm_file sm_cases; do
		say "# $sm_file $sm_cases"
		# shellcheck disable=SC2086 # a list of names
		test_file "$WHEEL/empty" "$ROOT/python/tests/$sm_file" $sm_cases
	done <<'END'
test_package.py
test_ensure_server.py
test_hash.py
test_module.py Import
test_worker.py Jobs.test_what_was_stored_is_retrieved_into_other_pages
test_vllm.py Importing
test_sglang.py Importing Copies
test_vllm_tier.py Importing Copies
END
}

# The wheel's own CUDA backend copies on a stand-in for the driver: no machine that builds wheels has a GPU.
build_standin()
{
	mkdir -p "$WHEEL/standin" || return 1
	"$WHEEL/bin/cc" -std=gnu11 -D_GNU_SOURCE -O1 -g -fno-sanitize=undefined -fPIC -shared -Wl,-soname,libcuda.so.1 \
		-I "$ROOT/libworker/copy" -o "$WHEEL/standin/libcuda.so.1" "$ROOT"/tests/rigs/cuda_driver/*.c -lpthread
}

# vectors_agree: what this architecture's vector instructions make of XXH3 is what plain C makes of it, and so for SHA-256.
vectors_agree()
{
	for va_kind in vector scalar; do
		va_plain=
		[ $va_kind = vector ] || va_plain=-DXXH_VECTOR=0
		# shellcheck disable=SC2086 # one option, or none
		"$WHEEL/bin/cc" -O2 $va_plain -I "$WHEEL/third/xxhash" -o "$WHEEL/standin/$va_kind" "$ROOT/packaging/wheel/vectors.c" || return 1
		! is_cross || { mv "$WHEEL/standin/$va_kind" "$WHEEL/standin/$va_kind.bin" &&
			emulated "$WHEEL/standin/$va_kind" "$WHEEL/standin/$va_kind.bin"; } || return 1
	done
	va_sum=$("$WHEEL/standin/vector") && say "1..1" && [ "${va_sum#* }" = "$("$WHEEL/standin/scalar" | cut -d ' ' -f 2-)" ] &&
		say "ok 1 - XXH3 with $va_sum is that of plain C"
}

vector_tests()
(
	say "# vectors"
	run_tap vectors_agree
	# The instructions that OpenSSL may not use.
	OPENSSL_armcap=0 OPENSSL_ia32cap=0:0
	export OPENSSL_armcap OPENSSL_ia32cap
	test_file "$WHEEL/empty" "$ROOT/python/tests/test_hash.py"
)

device_tests()
(
	say "# test_device.py"
	LD_LIBRARY_PATH=$WHEEL/standin
	export LD_LIBRARY_PATH
	test_file "$WHEEL/empty" "$ROOT/python/tests/test_device.py"
)

all_tests()
{
	for al_test in "$ROOT"/python/tests/test_*.py; do
		case ${al_test##*/} in
		test_beside.py | test_device.py) continue ;;
		esac
		say "# ${al_test##*/}"
		test_file "$WHEEL/empty" "$al_test"
	done
	is_cross && return
	say "# beside pyzmq"
	test_file "$WHEEL/beside" "$ROOT/python/tests/test_beside.py"
}

find_wheel_python()
{
	WHEEL_PYTHON=/usr/bin/python3 # the one that Debian's python3-dev is for
	[ -x "$WHEEL_PYTHON" ] || WHEEL_PYTHON=python3
	"$WHEEL_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
		not_ready "the wheel needs Python 3.11 or newer; $WHEEL_PYTHON is $("$WHEEL_PYTHON" --version 2>&1)"
}

# The folders of the wheel for an architecture: this machine's, or aarch64 on x86_64.
choose_cpu()
{
	WHEEL_CPU=$1
	WHEEL=$WHEEL_TOOLS WHEEL_FILE=--native-file WHEEL_SYSROOT=
	case $(uname -m)-$WHEEL_CPU in
	x86_64-x86_64 | aarch64-aarch64) ;;
	x86_64-aarch64)
		need_base qemu-user
		WHEEL=$WHEEL_TOOLS-$WHEEL_CPU WHEEL_FILE=--cross-file
		ARM_ROOT=$WHEEL/root ARM_PACKAGES='python3.11 libpython3.11-dev libcurl4'
		WHEEL_SYSROOT=$ARM_ROOT/root
		;;
	*) not_ready "the wheel is built for x86_64 and aarch64, and for aarch64 on x86_64; this machine is $(uname -m)" ;;
	esac
	mkdir -p "$WHEEL/logs" || die "cannot create $WHEEL"
}

make_wheel()
{
	! is_cross || step root make_arm_root
	step sources get_sources
	step toolchain write_toolchain
	step kernels check_kernels
	step third-parties build_third_parties
	step wheel build_wheel
	[ "$wh_smoke" = yes ] || is_cross || step sdist build_sdist
	step install install_empty
	step stand-in build_standin
	[ "$wh_smoke" = yes ] || is_cross || step install-beside install_beside

	say "# audit"
	run_tap env PATH="$WHEEL_TOOLS/tools/bin:$PATH" "$WHEEL_TOOLS/tools/bin/python" -B "$ROOT/packaging/wheel/audit.py" --glibc $WHEEL_GLIBC "$WHEEL"/dist/*.whl
	if [ "$wh_smoke" = yes ]; then
		smoke_tests
	else
		all_tests
	fi
	vector_tests
	device_tests
}

cmd_wheel()
{
	wh_smoke=no
	wh_cpus=$(uname -m)
	while [ $# -gt 0 ]; do
		case $1 in
		--smoke) wh_smoke=yes ;;
		--arch) [ $# -gt 1 ] && shift && wh_cpus=$(say "$1" | tr , ' ') ;;
		*) not_ready "wheel: $1 is no option; ./dev help wheel lists them" ;;
		esac
		shift
	done
	# shellcheck disable=SC2086 # a list of names
	need_base $WHEEL_PACKAGES
	find_wheel_python
	for wh_cpu in $wh_cpus; do
		choose_cpu "$wh_cpu"
	done
	mkdir -p "$WHEEL_TOOLS"
	: >"$WHEEL_COUNTS"

	wh_tools="$("$WHEEL_PYTHON" --version) $(sum_of_files "$ROOT/packaging/wheel/requirements.txt")"
	if ! fits "$WHEEL_TOOLS/tools.stamp" "$wh_tools"; then
		step tools make_environment "$WHEEL_TOOLS/tools" "$ROOT/packaging/wheel/requirements.txt"
		printf '%s\n' "$wh_tools" >"$WHEEL_TOOLS/tools.stamp"
	fi
	for wh_cpu in $wh_cpus; do
		choose_cpu "$wh_cpu"
		make_wheel
	done
	awk '{ p += $1; f += $2; s += $3 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' "$WHEEL_COUNTS"
}
