#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# installed.sh BUILD SOURCE CC CXX PYTHON: what is installed serves users: consumer.c is built through pkg-config alone, as C and as C++,
# against the shared libraries and, where there are any, the archives; a library finds the kvscoutd that was installed with it. A program that was compiled when today's inline wrappers
# were functions of the libraries is refused by the linker, and by the loader if it was linked then. PYTHON looks where its package was installed. TAP. CXX and PYTHON may be "".
build=$1 source=$2 cc=$3 cxx=$4 python=$5
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvscout-test-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
n=0
failed=0

# result STATUS NAME
result() {
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		failed=1
		echo "not ok $n - $2"
		head -n 20 "$dir/log" | sed 's/^/# /'
	fi
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

DESTDIR=$dir meson install -C "$build" --no-rebuild --tags devel,runtime >"$dir/log" 2>&1
result $? "the libraries, headers and pkg-config files are installed"
pc=$(find "$dir" -name kvscout-client.pc)
libs=${pc%/pkgconfig/*}
# The prefix is that of the build: here it lies below the folder.
sed -i "s|^prefix=|prefix=$dir|" "$libs"/pkgconfig/kvscout-*.pc
flags() {
	PKG_CONFIG_PATH=$libs/pkgconfig pkg-config "$@" kvscout-client kvscout-worker kvscout-server
}

# consumer NAME COMPILER SOURCE LINK...
consumer() {
	co_name=$1
	shift
	# shellcheck disable=SC2046,SC2086 # flags are lists of words, and so is a compiler
	$1 -Wall -Wextra -Wpedantic -Werror $(flags --cflags) -o "$dir/user" "$2" $3 >"$dir/log" 2>&1 &&
		LD_LIBRARY_PATH=$libs "$dir/user" >>"$dir/log" 2>&1
	result $? "$co_name"
}

cp "$source/tests/abi/consumer.c" "$dir/consumer.c"
cp "$source/tests/abi/consumer.c" "$dir/consumer.cpp"
# both NAME LINK: as C and as C++
both() {
	consumer "a C program and $1" "$cc -std=c11" "$dir/consumer.c" "$2"
	if [ -n "$cxx" ]; then
		consumer "a C++ program and $1" "$cxx -std=c++11" "$dir/consumer.cpp" "$2"
	else
		skip "a C++ program and $1" "no C++ compiler"
	fi
}

if [ -e "$libs/libkvscout-client.so" ]; then
	both "the shared libraries" "$(flags --libs)"
else
	skip "programs and the shared libraries" "built without them"
fi
if [ -e "$libs/libkvscout-client.a" ]; then
	# With the system's libraries shared: Debian has no archives of all that libzmq needs. Of a build that has archives alone they are
	# public requirements already.
	needs=$(flags --print-requires-private | sed 's/ .*//' | grep -v kvscout | sort -u)
	# shellcheck disable=SC2086 # a list of names
	[ -z "$needs" ] || needs=$(pkg-config --libs $needs)
	private=$(sed -n 's/^Libs.private: //p' "$libs"/pkgconfig/kvscout-*.pc | tr '\n' ' ')
	both "the archives" "$(flags --libs | sed 's/-lkvscout-\([a-z]*\)/-l:libkvscout-\1.a/g') $needs $private"
else
	skip "programs and the archives" "built without them"
fi

# CMake finds them in the folder beside pkgconfig/.
with_cmake() {
	cat >"$dir/CMakeLists.txt" <<-END
		cmake_minimum_required(VERSION 3.18)
		project(user C)
		foreach(part client worker server)
		  find_package(kvscout-\${part} 0.1 CONFIG REQUIRED)
		  find_package(kvscout-\${part} 1.0 CONFIG QUIET)
		  if(kvscout-\${part}_FOUND)
		    message(FATAL_ERROR "0.1 is taken for 1.0")
		  endif()
		  find_package(kvscout-\${part} 0.1 CONFIG REQUIRED)
		endforeach()
		add_executable(user consumer.c)
		target_link_libraries(user kvscout::client kvscout::worker kvscout::server)
	END
	cmake -S "$dir" -B "$dir/cmake" -DCMAKE_C_COMPILER="${cc##* }" -DCMAKE_PREFIX_PATH="${libs%/lib*}" >"$dir/log" 2>&1 &&
		cmake --build "$dir/cmake" >>"$dir/log" 2>&1 && LD_LIBRARY_PATH=$libs "$dir/cmake/user" >>"$dir/log" 2>&1
	result $? "a C program and the CMake packages"
}
if [ -e "$libs/libkvscout-client.so" ] && command -v cmake >/dev/null; then
	with_cmake
else
	skip "a C program and the CMake packages" "no CMake, or built without shared libraries"
fi

# Each header alone, as strictly as a C++ project may compile it.
if [ -n "$cxx" ]; then
	for header in "$source"/include/kvscout/*.h; do
		echo "#include <kvscout/${header##*/}>" >"$dir/header.cpp"
		# shellcheck disable=SC2086 # a compiler is a list of words
		$cxx -std=c++11 -Wall -Wextra -Wpedantic -Wold-style-cast -Werror -fsyntax-only -I "$source/include" "$dir/header.cpp" || break
	done >"$dir/log" 2>&1
	test ! -s "$dir/log"
	result $? "no header has a cast that C++ calls old"
else
	skip "no header has a cast that C++ calls old" "no C++ compiler"
fi

daemon=$(find "$dir" -name kvscoutd -type f)
# The pages name each option that the program says it has, and groff reads them without a warning.
pages_agree() {
	DESTDIR=$dir/man meson install -C "$build" --no-rebuild --tags man >"$dir/log" 2>&1 || return 1
	find "$dir/man" -name 'kvscout*.[158]' >"$dir/pages"
	test "$(wc -l <"$dir/pages")" -eq 3 || return 1
	xargs groff -man -ww -z <"$dir/pages" >"$dir/log" 2>&1 && test ! -s "$dir/log" || return 1
	for option in $("$daemon" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
		grep -q "^.B .*$(echo "$option" | sed 's/-/.*/g')" "$(grep '\.8$' "$dir/pages")" || return 1
	done
}
if command -v groff >/dev/null && [ -n "$python" ]; then
	pages_agree
	result $? "the man pages"
else
	skip "the man pages" "no groff, or no Python"
fi

# Without a word about kvscoutd, a program's library starts the one that was installed with it.
if [ -e "$libs/libkvscout-client.so" ]; then
	mkdir -m 700 "$dir/host"
	# shellcheck disable=SC2046,SC2086 # flags are lists of words, and so is a compiler
	$cc -Wall -Wextra -Wpedantic -Werror $(flags --cflags) -o "$dir/start" "$source/tests/abi/consumer_start.c" $(flags --libs) \
		>"$dir/log" 2>&1 &&
		PATH=/bin:/usr/bin LD_LIBRARY_PATH=$libs "$dir/start" "$dir/host" >>"$dir/log" 2>&1 &&
		grep -qF "started $(realpath "$daemon")" "$dir/log"
	result $? "a library starts the kvscoutd that was installed with it"
	flock "$dir"/host/ipc-*/server.lock true # it has ended
else
	skip "a library starts the kvscoutd that was installed with it" "built without shared libraries"
fi

# The names of today's inline wrappers, but those of private helpers.
names=$(sed -n '/^static inline/,/{/s/.*\b\(scout_[a-z_]*\)(.*/\1/p' "$source"/include/kvscout/client*.h "$source"/include/kvscout/worker*.h \
	"$source"/include/kvscout/server.h | sort -u)
count=$(printf '%s\n' "$names" | wc -l)
{
	for name in $names; do echo "void $name(void);"; done
	echo 'int main(void) {'
	for name in $names; do echo "$name();"; done
	echo 'return 0; }'
} >"$dir/old.c"
# shellcheck disable=SC2046,SC2086
{
	$cc -c -o "$dir/old.o" "$dir/old.c" >"$dir/log" 2>&1
	! $cc -o "$dir/old" "$dir/old.o" $(flags --libs) >"$dir/log" 2>&1
} && [ "$count" -gt 5 ] && [ "$(grep -o 'undefined reference to .scout_[a-z_]*' "$dir/log" | sort -u | wc -l)" -eq "$count" ]
result $? "the linker refuses each of $count old names"

refused_by_loader() {
	mkdir "$dir/old-library"
	for name in $names; do echo "void $name(void) {}"; done | sed '1i\void scout_version(void);' >"$dir/library.c"
	# shellcheck disable=SC2086
	$cc -w -shared -fPIC -Wl,-soname,libkvscout-client.so.0 -o "$dir/old-library/libkvscout-client.so" "$dir/library.c" >"$dir/log" 2>&1 &&
		$cc -o "$dir/old" "$dir/old.o" -L"$dir/old-library" -lkvscout-client >>"$dir/log" 2>&1
	LD_LIBRARY_PATH=$libs LD_BIND_NOW=1 "$dir/old" >>"$dir/log" 2>&1
	[ $? -eq 127 ] && grep -q 'undefined symbol: scout_' "$dir/log"
	result $? "the loader refuses a program that was linked with them"
}
if [ -e "$libs/libkvscout-client.so" ]; then
	refused_by_loader
else
	skip "the loader refuses a program that was linked with them" "built without shared libraries"
fi

# A prefix into which the interpreter does not look at all, such as /opt/kvscout, is the user's own choice.
python_looks_there() {
	DESTDIR=$dir/py meson install -C "$build" --no-rebuild --tags python-runtime >"$dir/log" 2>&1
	where=$(find "$dir/py" -name '_kvscout.abi3.so')
	where=${where%/kvscout/_kvscout.abi3.so}
	prefix=$(meson introspect "$build" --buildoptions | "$python" -c \
		'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
	case $("$python" -c 'import site; print(*site.getsitepackages(), sep="\n")') in
	*"$prefix/lib"*) ;;
	*)
		skip "$python looks where the package is" "it looks into no folder of $prefix"
		return
		;;
	esac
	"$python" -c 'import site, sys; sys.exit(sys.argv[1] not in site.getsitepackages())' "${where#"$dir/py"}" 2>>"$dir/log" &&
		PYTHONPATH=$where "$python" -c 'import kvscout.vllm.library_keys, kvscout.vllm_tier.keys, kvscout.sglang.pages, kvscout.aio' 2>>"$dir/log"
	result $? "$python looks where the package is"
}
if [ -n "$python" ]; then
	python_looks_there
else
	skip "Python looks where the package is" "built without it"
fi

echo "1..$n"
exit $failed
