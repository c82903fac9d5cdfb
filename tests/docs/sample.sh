#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# sample.sh README INCLUDE CC...: the scheduler in the README is C that compiles without a warning, given what it leaves out.
set -eu
readme=$1
include=$2
shift 2
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
{
	cat <<'HEAD'
#include <kvscout/client.h>
struct waiting { const char *id; const void *hashes; size_t n_chunks; uint64_t n_tokens, n_on_gpu; };
void die(const char *why);
void engine(struct waiting *r);
void
engine(struct waiting *r)
{
HEAD
	awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$readme" | sed 's/^for each waiting request r {/for (;;) {/'
	echo '}'
} >"$tmp/sample.c"
grep -q scout_try_lookup "$tmp/sample.c" || { echo "no sample in $readme"; exit 1; }
# Behind an endless loop the rest is not reached, which is the sample's own business.
"$@" -std=gnu11 -Wall -Wextra -Werror -Wno-unreachable-code -O2 -I"$include" -c "$tmp/sample.c" -o "$tmp/sample.o"
