#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# sample.sh ROOT BUILD CC...: the C in README.md is in an example, and each C example compiles without a warning and links by the command
# in its first comment alone, with the flags of pkg-config: those of an installation, and those of the build tree.
set -eu
root=$(realpath "$1")
build=$(realpath "$2")
shift 2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
awk -v to="$tmp/readme" '/^```c$/ { n++; on = 1; next } /^```$/ { on = 0 } on { print >to "." n }' "$root/README.md"
[ -e "$tmp/readme.2" ] || { echo "README.md shows no loop, or no lookup_mode=polled"; exit 1; }
for block in "$tmp"/readme.*; do
	lines=$(tr '\n' '\001' <"$block")
	found=
	for example in "$root"/examples/*.c; do
		if tr '\n' '\001' <"$example" | grep -qF "$lines"; then found=1; fi
	done
	[ "$found" ] || { echo "these lines of README.md are in no example:"; cat "$block"; exit 1; }
done
# A build of archives only compiles them: an engine that links archives knows their dependencies.
[ -e "$build/libclient/libkvscout-client.so" ] || set -- "$@" -c
# A library that was built with a sanitizer lacks its runtime here.
cat >"$tmp/cc" <<END
#!/bin/sh
PATH='$PATH'
exec $* -Wall -Wextra -Werror -O2 -Wl,--allow-shlib-undefined "\$@"
END
chmod +x "$tmp/cc"
compile() # NAME, with pkg-config's variables in the environment
{
	command=$(sed -n 's/^ \*   \(cc [^&]*\) &&.*/\1/p' "$root/examples/$1")
	[ -n "$command" ] || { echo "$1: its first comment has no line 'cc ... && ...'"; exit 1; }
	(cd "$tmp" && ln -sf "$root/examples/$1" . && PATH=$tmp:$PATH sh -eu -c "$command") || { echo "$1: $command"; exit 1; }
}
DESTDIR=$tmp/installed meson install -C "$build" --no-rebuild --quiet >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
installed=$(dirname "$(find "$tmp/installed" -name kvscout-client.pc)")
for example in "$root"/examples/*.c; do
	name=${example##*/}
	(export PKG_CONFIG_SYSROOT_DIR="$tmp/installed" PKG_CONFIG_PATH="$installed" && compile "$name")
	(export PKG_CONFIG_PATH="$build/meson-uninstalled" && compile "$name")
	grep -q "($name)" "$root/examples/README.md" || { echo "examples/README.md does not name $name"; exit 1; }
done
