#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# sample.sh README BUILD CC...: the scheduler in the README, given what it leaves out, is C that compiles without a warning and
# links with the flags of pkg-config alone: those of an installation, and those of the build tree.
set -eu
readme=$1
build=$2
shift 2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
{
	cat <<'HEAD'
#include <kvscout/client.h>
struct waiting { const char *id; const void *hashes; size_t n_chunks; uint64_t n_tokens, n_on_gpu; };
void die(const char *why);
void engine(struct waiting *r);
void die(const char *why) { (void)why; }
int main(void) { engine(0); }
void
engine(struct waiting *r)
{
HEAD
	awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$readme" | sed 's/^for each waiting request r {/for (;;) {/'
	echo '}'
} >"$tmp/sample.c"
grep -q scout_try_lookup "$tmp/sample.c" || { echo "no sample in $readme"; exit 1; }
# A build of archives only compiles it: an engine that links archives knows their dependencies.
if [ -e "$build/libclient/libkvscout-client.so" ]; then
	what='--cflags --libs'
else
	what=--cflags
	set -- "$@" -c
fi
cc=$*
compile() # FLAGS...: pkg-config's. Behind an endless loop the rest is not reached, which is the sample's own business.
{
	[ $# -gt 0 ] || { echo "pkg-config has no flags"; exit 1; }
	# A library that was built with a sanitizer lacks its runtime here.
	[ "$what" = --cflags ] || set -- "$@" -Wl,--allow-shlib-undefined
	# shellcheck disable=SC2086 # a list of words
	$cc -std=gnu11 -Wall -Wextra -Werror -Wno-unreachable-code -O2 "$tmp/sample.c" "$@" -o "$tmp/sample"
}
DESTDIR=$tmp/installed meson install -C "$build" --no-rebuild --quiet >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
installed=$(dirname "$(find "$tmp/installed" -name kvscout-client.pc)")
# shellcheck disable=SC2046,SC2086 # lists of words
compile $(PKG_CONFIG_SYSROOT_DIR=$tmp/installed PKG_CONFIG_PATH=$installed pkg-config $what kvscout-client)
# shellcheck disable=SC2046,SC2086
compile $(PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config $what kvscout-client)
