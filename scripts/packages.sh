# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Debian and Ubuntu packages for `dev`: which are missing, how to install them, or what to tell a user who may not. `dev` sources this
# file and sets ROOT.

BASE_PACKAGES='gcc libc6-dev dpkg-dev pkgconf meson ninja-build libzmq3-dev libck-dev libxxhash-dev libssl-dev libjansson-dev
	libhiredis-dev libmicrohttpd-dev libcurl4-openssl-dev check'
# shellcheck disable=SC2034 # used by dev and the other scripts
TEST_PACKAGES='g++ cmake groff-base openssl python3 python3-dev python3-venv python3-zmq python3-cbor2 mypy'
# shellcheck disable=SC2034
TEST_SERVICES='redis-server'
# shellcheck disable=SC2034
CLANG_PACKAGES='clang'
MESON_OLDEST=1.0
# No PyPI has these in a newer version.
OLDEST='libssl-dev=3.0 libzmq3-dev=4.3 check=0.15'
BUILD_TOOLS=$ROOT/build-tools
APT_LOG=$ROOT/build/apt.log
INSTALLED_NOW=no
ASK_ALSO=

# A tool that was installed by other means than a package is as good.
tool_of()
{
	case $1 in
	ninja-build) echo ninja ;;
	pkgconf) echo pkg-config ;;
	gcc | g++ | meson | clang | clang-tidy | clang-format | valgrind | codespell) echo "$1" ;;
	esac
}

# is_since OLDEST VERSION
is_since()
{
	[ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

meson_is_new()
{
	mn_found=$(meson --version 2>/dev/null) && is_since "$MESON_OLDEST" "$mn_found"
}

# The version that apt would install, or has; nothing where its lists say nothing.
candidate_of()
{
	LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]\)/\1/p'
}

# Whether neither this machine nor its archive has a meson that is new enough: need_meson() has one from PyPI then.
is_meson_too_old()
{
	if command -v meson >/dev/null 2>&1; then
		! meson_is_new
	else
		mo_found=$(candidate_of meson)
		[ -n "$mo_found" ] && ! is_since "$MESON_OLDEST" "$mo_found"
	fi
}

# Prints those of the named packages that are not installed; for a meson that is too old what need_meson() needs.
missing_of()
{
	mo_have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" python3-venv 2>/dev/null | sed -n 's/ installed$//p')
	for mo_name; do
		[ "$mo_name" = meson ] && is_meson_too_old && mo_name=python3-venv
		printf '%s\n' "$mo_have" | grep -Fqx -e "$mo_name" && continue
		mo_tool=$(tool_of "$mo_name")
		[ -n "$mo_tool" ] && command -v "$mo_tool" >/dev/null 2>&1 && continue
		echo "$mo_name"
	done | sort -u
}

# Before minutes of packages are installed: what the archive has of them is new enough.
refuse_old_archive()
{
	for ro_rule in $OLDEST; do
		ro_found=$(candidate_of "${ro_rule%=*}")
		[ -z "$ro_found" ] || is_since "${ro_rule#*=}" "$ro_found" ||
			not_ready "${ro_rule%=*} $ro_found of this system is too old: ${ro_rule#*=} or newer is needed, which Debian 12 and Ubuntu 22.04 have"
	done
}

# clang's sanitizer and fuzzer runtimes are a package of their own, named after clang's version.
clang_runtime_works()
{
	mkdir -p "$ROOT/build" || return 1
	echo 'int main(void) { return 0; }' |
		clang -x c -fsanitize=address - -o "$ROOT/build/clang-runtime-test" >/dev/null 2>&1
	cr_status=$?
	rm -f "$ROOT/build/clang-runtime-test"
	return $cr_status
}

clang_runtime_package()
{
	if command -v clang >/dev/null 2>&1; then
		cp_major=$(clang -dumpversion | cut -d . -f 1)
	else
		cp_major=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9][0-9]*\)$/\1/p' | head -n 1)
	fi
	if [ -n "$cp_major" ] && apt-cache show "libclang-rt-$cp_major-dev" >/dev/null 2>&1; then
		echo "libclang-rt-$cp_major-dev"
	fi
}

as_root()
{
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

may_install()
{
	[ "$(id -u)" -eq 0 ] && return 0
	command -v sudo >/dev/null 2>&1 || return 1
	sudo -n true >/dev/null 2>&1 && return 0
	[ -t 0 ] && sudo -v
}

# Two commands of ./dev may run at once.
apt_get()
{
	as_root flock "$ROOT/scripts" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a apt-get -y -o DPkg::Lock::Timeout=300 \
		-o Acquire::Retries=3 "$@" </dev/null >>"$APT_LOG" 2>&1
}

# ASK_ALSO names what another command will need soon, so that a user has to ask root only once.
print_install_command()
{
	pi_install="apt-get install -y --no-install-recommends $*"
	say "dev: packages are missing. Install them with the command below, then run ./dev again:" >&2
	# The lists of packages may be old, or none.
	if command -v sudo >/dev/null 2>&1; then
		say "sudo apt-get update && sudo $pi_install" >&2
	else
		say "as root: apt-get update && $pi_install" >&2
	fi
	exit 2
}

show_apt_log()
{
	cat "$APT_LOG" >&2
	not_ready "$1; the log is $APT_LOG"
}

# Installs what is missing of the named packages. "clang-runtime" stands for the package clang_runtime_package() names.
need_packages()
{
	np_runtime=no
	np_names=
	for np_name; do
		case $np_name in
		clang-runtime) np_runtime=yes ;;
		*) np_names="$np_names $np_name" ;;
		esac
	done
	if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
		need_libraries
		return
	fi
	# shellcheck disable=SC2086 # a list of names
	np_missing=$(missing_of $np_names | tr '\n' ' ')
	np_missing=${np_missing% }
	if [ $np_runtime = yes ] && clang_runtime_works; then
		np_runtime=no
	fi
	[ -z "$np_missing" ] && [ $np_runtime = no ] && return
	mkdir -p "$ROOT/build" || die "cannot create $ROOT/build"
	if ! may_install; then
		# shellcheck disable=SC2086 # lists of names
		np_missing=$(missing_of $np_names $ASK_ALSO | tr '\n' ' ')
		[ $np_runtime = yes ] && np_missing="$np_missing$(clang_runtime_package)"
		# shellcheck disable=SC2086 # a list of names
		print_install_command $np_missing
	fi
	: >"$APT_LOG" || die "cannot write $APT_LOG"
	say "dev: reading apt's package lists"
	# A broken list of some other archive is no reason to stop: what matters is whether the packages can be had.
	apt_get update || say "dev: apt-get update failed; trying with the lists that are there"
	refuse_old_archive
	# shellcheck disable=SC2086 # a list of names
	np_missing=$(missing_of $np_names | tr '\n' ' ')
	np_missing=${np_missing% }
	[ $np_runtime = yes ] && np_missing="$np_missing $(clang_runtime_package)"
	np_missing=${np_missing# }
	say "dev: installing $np_missing" "dev: this takes a minute or two; apt's log is $APT_LOG"
	# shellcheck disable=SC2086 # a list of names
	apt_get install --no-install-recommends $np_missing || show_apt_log "apt-get install failed"
	# shellcheck disable=SC2034 # build.sh reads it
	INSTALLED_NOW=yes
}

# Other systems: no package names to offer, only what must be there.
need_libraries()
{
	nl_missing=
	for nl_tool in meson ninja pkg-config; do
		command -v $nl_tool >/dev/null 2>&1 || nl_missing="$nl_missing $nl_tool"
	done
	command -v "${CC:-cc}" >/dev/null 2>&1 || nl_missing="$nl_missing ${CC:-cc}"
	for nl_library in libzmq ck libxxhash libcrypto; do
		pkg-config --exists "$nl_library" 2>/dev/null || nl_missing="$nl_missing $nl_library"
	done
	[ -z "$nl_missing" ] && return
	say "dev: not a Debian or Ubuntu system, so install these yourself (with their headers and pkg-config files):" >&2
	say "  required: a C compiler, meson >= $MESON_OLDEST, ninja, pkg-config, libzmq >= 4.3, concurrencykit, xxHash," >&2
	say "            OpenSSL 3; optional: hiredis >= 0.14, libmicrohttpd; for tools: jansson; for tests: Check," >&2
	say "            Python 3 with zmq and cbor2" >&2
	not_ready "not found:$nl_missing"
}

# meson from PyPI where that of this machine is too old, in an environment of its own. It alone comes into PATH.
need_meson()
{
	meson_is_new && return
	nm_found=$(meson --version 2>/dev/null || candidate_of meson)
	PATH=$BUILD_TOOLS/bin:$PATH
	export PATH
	meson_is_new && return
	need_packages python3-venv
	say "dev: meson ${nm_found:-of this machine} is too old, $MESON_OLDEST or newer is needed: taking it from PyPI into $BUILD_TOOLS"
	rm -rf "$BUILD_TOOLS"
	mkdir -p "$BUILD_TOOLS/bin" || die "cannot create $BUILD_TOOLS"
	{
		python3 -m venv --system-site-packages "$BUILD_TOOLS/venv" &&
			"$BUILD_TOOLS/venv/bin/python" -m pip install --disable-pip-version-check "meson>=$MESON_OLDEST" &&
			ln -s ../venv/bin/meson "$BUILD_TOOLS/bin/meson" && meson_is_new
	} >"$BUILD_TOOLS/log" 2>&1 || not_ready "no meson from PyPI, see $BUILD_TOOLS/log; put meson $MESON_OLDEST or newer on PATH (for example: pipx install meson)"
}

need_base()
{
	# shellcheck disable=SC2086 # lists of names
	need_packages $BASE_PACKAGES "$@"
	need_meson
}

# get_promtool DIR: the program in DIR/promtool, for the test of the alerts. Its package would start a server when it is installed, so it is
# only unpacked. Where that fails (no apt-get, no network), the test skips itself with a sentence.
get_promtool()
{
	if command -v promtool >/dev/null || [ -x "$1/promtool/promtool" ] || ! command -v apt-get >/dev/null; then
		return
	fi
	gp_tmp=$(mktemp -d) || return
	if (cd "$gp_tmp" && timeout 120 apt-get download prometheus && dpkg -x prometheus_*.deb .) >/dev/null 2>&1; then
		mkdir -p "$1/promtool" && mv "$gp_tmp/usr/bin/promtool" "$1/promtool/"
	fi
	rm -rf "$gp_tmp"
}

# get_manifest_checker DIR: kubernetes-validate with the schemas, in an environment in DIR/kubernetes, for the test of the manifests. It
# skips itself where that fails.
get_manifest_checker()
{
	if [ -d "$1/kubernetes/ready" ]; then
		return
	fi
	"$(python_of_tests)" -m venv "$1/kubernetes" >/dev/null 2>&1 &&
		timeout 120 "$1/kubernetes/bin/python" -m pip install -q --disable-pip-version-check kubernetes-validate==1.37.0 >/dev/null 2>&1 &&
		mkdir "$1/kubernetes/ready"
}
