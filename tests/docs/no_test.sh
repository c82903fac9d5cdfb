#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# no_test.sh SUMMARY META: what the summary of a run says, and what `./dev test NAME` builds; META is the build's folder meson-info. For a
# name that no test has, that there is none, and which tests are like it; also where other tests have run.
set -eu
export KVSCOUT_ALONE=no
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/meson-info"
cp "$2/intro-tests.json" "$tmp/meson-info/"
python=/usr/bin/python3
[ -x "$python" ] || python=python3
status=0
"$python" -B "$1" "$tmp" 0 --suite abi docs_no_tset >"$tmp/out" || status=$?
cat "$tmp/out"
[ "$status" = 1 ]
grep -q '^Tests: .*abi_' "$tmp/out"
grep -q 'there is no test docs_no_tset; like it: .*docs_no_test' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 1 failed, 0 skipped' ]

mkdir "$tmp/meson-logs"
printf '%s\n' '{"name": "kvscout:abi / docs_no_test", "result": "OK", "returncode": 0, "stdout": ""}' >"$tmp/meson-logs/testlog.json"
"$python" -B "$1" "$tmp" 0 --suite abi --repeat 2 'docs_*' docs_no_test >"$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 0 skipped' ]
status=0
"$python" -B "$1" "$tmp" 0 docs_no_test docs_no_tset --suite=abbi >"$tmp/out" || status=$?
cat "$tmp/out"
[ "$status" = 1 ]
grep -q 'there is no test docs_no_tset; like it: .*docs_no_test' "$tmp/out"
grep -q 'there is no suite abbi; like it: abi' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 2 failed, 0 skipped' ]

# What `./dev test ARGS` builds: the program and what it starts; all of it (no line) for a test that is given the build folder.
needed() {
	"$python" -B "${summary%/*}/chosen.py" "${meta%/meson-info}" needed "$@"
}
summary=$1
meta=$2
[ "$(needed server_process | tr '\n' ' ')" = 'build.ninja tests/test_server_process ' ]
[ "$(needed fault_froz\* | tr '\n' ' ')" = 'build.ninja libserver/daemon/kvscoutd tests/rigs/actor tests/test_fault_frozen ' ]
[ "$(needed docs_links docs_no_tset)" = build.ninja ]
needed --suite=timing | grep -x tests/test_timing_client >/dev/null
[ "$(needed --suite unit --repeat 2 | grep -c timing)" = 0 ]
for args in '' abi_rooms '--setup jitter server_process' '--no-suite unit'; do
	[ -z "$(needed $args)" ]
done

# What `./dev engine SESSION` runs first: what it reads the files of, unless that is there.
sessions() {
	"$python" -B "${summary%/rigs/*}/engine/run.py" --root "$tmp" --kvscoutd none --list "$@" | tr '\n' ' '
}
[ "$(sessions llama lora)" = 'llama-reference llama lora-reference lora ' ]
[ "$(sessions llama-redis-load tier)" = 'llama-reference llama-redis-store llama-redis-load tier ' ]
: >"$tmp/llama-reference.passed"
[ "$(sessions llama tier-gemma mla)" = 'llama gemma-reference mla tier-gemma ' ]

# A case that an emulator cannot run counts as skipped, with its reason; another of its program fails.
printf '%s\n' '# comment' 'abi_rooms impossible no such thing here' >"$tmp/expected"
printf '%s\n' '{"name": "kvscout:abi / abi_rooms", "result": "ERROR", "returncode": 1,
"stdout": "1..2\nok 1 - x.c:t:good: Passed\nnot ok 2 - x.c:t:impossible: it cannot\n"}' | tr -d '\n' >"$tmp/meson-logs/testlog.json"
KVSCOUT_EXPECTED=$tmp/expected "$python" -B "$1" "$tmp" 1 abi_rooms >"$tmp/out"
cat "$tmp/out"
grep -q '^SKIPPED .*abi_rooms impossible: no such thing here$' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 1 skipped' ]
sed -i 's/good/bad/; s/ok 1/not &/' "$tmp/meson-logs/testlog.json"
status=0
KVSCOUT_EXPECTED=$tmp/expected "$python" -B "$1" "$tmp" 1 abi_rooms >"$tmp/out" || status=$?
[ "$status" = 1 ]
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 1 failed, 1 skipped' ]

# log PROGRAM RESULT STATUS SECONDS STDOUT: a line of meson's log.
log() {
	printf '{"name": "kvscout:abi / %s", "result": "%s", "returncode": %s, "duration": %s, "stdout": "%s"}\n' "$@"
}

# summary STATUS ARGS...: of a run that meson ended with that status; left in out. Returns its own status.
summary() {
	status=0
	"$python" -B "$summary" "$tmp" "$@" >"$tmp/out" || status=$?
	cat "$tmp/out"
	return $status
}

# The slowest ten programs with their seconds, over both logs of a run.
for i in 1 2 3 4 5 6 7 8 9 10; do
	log "docs_$i" OK 0 "$i.25" ''
done >"$tmp/meson-logs/testlog.json"
log docs_11 OK 0 0.5 '' >"$tmp/meson-logs/testlog-timing.json"
summary 0
[ "$(tail -n 1 "$tmp/out")" = '11 passed, 0 failed, 0 skipped' ]
[ "$(grep -c ' s  kvscout:abi / docs_' "$tmp/out")" = 10 ]
grep -A 1 '^The slowest' "$tmp/out" | grep -qx ' *10\.2 s  kvscout:abi / docs_10'
! grep -q docs_11 "$tmp/out"
rm "$tmp/meson-logs/testlog-timing.json"

# A case that says while it runs that it judged nothing counts as skipped; more words than passed cases are a failure.
log abi_rooms OK 0 1 '1..2\n# SKIP the machine was busy for 3 s\nok 1 - x\n# SKIPPED no\nok 2 - y\n' >"$tmp/meson-logs/testlog.json"
summary 0
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 1 skipped' ]
grep -qx 'SKIPPED kvscout:abi / abi_rooms: the machine was busy for 3 s' "$tmp/out"
# Skips are counted by reason, whatever numbers it has, and however a program says it.
log abi_rooms OK 0 1 '1..3\n# SKIP it took 3.5 s\nok 1 - x\nok 2 - y # SKIP no GPU\nok 3 - z\n' >"$tmp/meson-logs/testlog.json"
log docs_links SKIP 77 1 'looked\nno GPU\n' >>"$tmp/meson-logs/testlog.json"
log abi_exports SKIP 77 1 '' >>"$tmp/meson-logs/testlog.json"
log server_process SKIP 0 1 '1..0 # SKIP it took 4 s\n' >>"$tmp/meson-logs/testlog.json"
summary 0
[ "$(sed -n '/^Skipped, and why:/,/^$/p' "$tmp/out" | tr -s ' \n' ' ')" = \
	'Skipped, and why: 2 no GPU 2 it took 3.5 s 1 no reason is given ' ]
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 5 skipped' ]
# The same as a newer meson writes it.
sed -i 's|kvscout:abi / |abi - kvscout:|; $s/$/\n/' "$tmp/meson-logs/testlog.json"
summary 0
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 0 failed, 5 skipped' ]
log abi_rooms OK 0 1 '1..1\n# SKIP a\n# SKIP b\nok 1 - x\n' >"$tmp/meson-logs/testlog.json"
summary 1 abi_rooms && exit 1
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 1 failed, 0 skipped' ]

# What failed runs alone up to 20 times and stays failed, however often it passes: here it fails at every fourth time. Arguments are those
# of the run, but for suites.
mkdir "$tmp/bin"
cat >"$tmp/bin/meson" <<END
#!/bin/sh
echo "\$*" >>"$tmp/runs"
[ \$((\$(wc -l <"$tmp/runs") % 4)) -ne 0 ]
END
chmod +x "$tmp/bin/meson"
PATH=$tmp/bin:$PATH
unset KVSCOUT_ALONE
log abi_rooms ERROR 1 1 '1..2\nok 1 - x\nnot ok 2 - y\n' >"$tmp/meson-logs/testlog.json"
summary 1 --suite abi --timeout-multiplier 7 && exit 1
grep -q '^FAILED kvscout:abi / abi_rooms: y; alone: 5 of 20 runs failed$' "$tmp/out"
grep -qx 'running abi_rooms alone: 5 of 20 runs failed' "$tmp/out"
grep -q "^To run those that failed: meson test -C $tmp abi_rooms\$" "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = '1 passed, 1 failed, 0 skipped' ]
[ "$(sort -u "$tmp/runs")" = "test -C $tmp --no-rebuild --logbase again --timeout-multiplier 7 abi_rooms" ]

# At most ten programs, and none with KVSCOUT_ALONE=no, as ./dev test NAME says.
rm "$tmp/runs"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
	log "docs_$i" FAIL 1 0.1 ''
done >"$tmp/meson-logs/testlog.json"
summary 1 && exit 1
[ "$(wc -l <"$tmp/runs")" = 200 ]
[ "$(grep -c '; alone: 5 of 20 runs failed$' "$tmp/out")" = 10 ]
[ "$(tail -n 1 "$tmp/out")" = '0 passed, 12 failed, 0 skipped' ]
rm "$tmp/runs"
export KVSCOUT_ALONE=no
summary 1 && exit 1
[ ! -e "$tmp/runs" ]

# The time of these runs is bounded: by a clock that a test sets, and by a limit for one that hangs.
PYTHONPATH=$(dirname "$summary") "$python" -B - <<'END'
import again

now = 0.0


def run(left_s):
    global now
    if left_s < 60:
        return None
    now += 60
    return True


assert again.count(run, 250, lambda: now) == (4, 4), now
now = 0.0
assert again.count(lambda left_s: None, 60, lambda: now) == (0, 0)
assert again.run_once(["cat", "/dev/null"], 60) is False
assert again.run_once(["sh", "-c", "exit 3"], 60) is True
assert again.run_once(["tail", "-f", "/dev/null"], 0.1) is None
END

# A meson that is too old (scripts/packages.sh): python3-venv is installed in its place, and meson alone comes from PyPI into PATH. An archive
# that is too old in what PyPI does not have is refused before anything is installed.
mkdir -p "$tmp/old" "$tmp/tree/scripts"
fake() {
	{ echo '#!/bin/sh' && cat; } >"$tmp/old/$1" && chmod +x "$tmp/old/$1"
}
echo 'echo 0.61.2' | fake meson
echo 'exit 1' | fake dpkg-query
echo '[ "$1" = -n ] || exec "$@"' | fake sudo
echo "echo \"\$@\" >>$tmp/apt" | fake apt-get
echo "sed -n \"s/^\$2 /  Candidate: /p\" $tmp/archive" | fake apt-cache
fake python3 <<'END'
mkdir -p "$4/bin"
printf '#!/bin/sh\nprintf "#!/bin/sh\\necho 1.2.3\\n" >"%s/meson" && chmod +x "%s/meson"\n' "$4/bin" "$4/bin" >"$4/bin/python"
chmod +x "$4/bin/python"
END
need() {
	rm -f "$tmp/apt"
	PATH=$tmp/old:$PATH sh -c 'ROOT=$1; say() { printf "%s\n" "$@"; }; not_ready() { say "$*"; exit 2; }; . "$2"
		need_base; meson --version; command -v python3' sh "$tmp/tree" "${summary%/rigs/*}/../scripts/packages.sh" >"$tmp/out"
}
printf 'meson 0.61.2-1\nlibssl-dev 3.0.2-0ubuntu1\n' >"$tmp/archive"
need
[ "$(tail -n 2 "$tmp/out" | tr '\n' ' ')" = "1.2.3 $tmp/old/python3 " ]
grep ' install .* python3-venv' "$tmp/apt" >/dev/null
[ "$(grep -c ' meson' "$tmp/apt")" = 0 ]
echo 'libssl-dev 1.1.1f-1' >"$tmp/archive"
status=0
need || status=$?
[ "$status" = 2 ]
grep '^libssl-dev 1.1.1f-1 of this system is too old: 3.0 or newer is needed' "$tmp/out" >/dev/null
[ "$(grep -c ' install ' "$tmp/apt")" = 0 ]
