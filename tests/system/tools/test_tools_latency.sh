#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvscout-latency from the outside: what its JSON holds, what it refuses, what it says when it is interrupted.
#
# usage: test_tools_latency.sh KVSCOUT_LATENCY [KVSCOUTD]
#
# TAP. The tool runs for well under a second in each case, but for three that wait 5 s for a server. Without the daemon the cases that need one are skipped.

tool=${1:?usage: test_tools_latency.sh KVSCOUT_LATENCY [KVSCOUTD]}
daemon=${2:-}
python=/usr/bin/python3
[ -x "$python" ] || python=python3
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvscout-test-XXXXXX") || exit 1
n=0
failed=0
daemon_pid=

cleanup() {
	[ -n "$daemon_pid" ] && kill "$daemon_pid" 2>/dev/null && wait "$daemon_pid" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# ok STATUS NAME
ok() {
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n - $2"
	else
		failed=$((failed + 1))
		echo "not ok $n - $2"
		for file in out err; do
			sed "s/^/# $file: /" "$dir/$file" 2>/dev/null | head -20
		done
	fi
}

skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# run STATUS ARGUMENT...: run the tool, expect that exit status.
run() {
	expected=$1
	shift
	"$tool" "$@" >"$dir/out" 2>"$dir/err"
	status=$?
	[ "$status" -eq "$expected" ] && return 0
	echo "# exit status $status instead of $expected: $*"
	return 1
}

small="--requests 200 --warmup 20 --inflight 8 --step-us 200 --chunks 16"

# check MODES: the JSON in $dir/out against what every run promises.
check() {
	"$python" - "$dir/out" "$@" <<'PY'
import json
import math
import sys

METRICS = {
    "async": {"submit_ns", "pending_ns", "seen_ns", "stall_ns_per_step"},
    "polled": {"landed_ns", "seen_ns", "stall_ns_per_step"},
    "sync": {"rtt_ns", "stall_ns_per_step"},
    "floor": {"rtt_ns"},
}
with open(sys.argv[1], encoding="utf-8") as file:
    top = json.load(file)
requests = int(sys.argv[2])
modes = sys.argv[3:]
assert top["tool"] == "kvscout-latency", top["tool"]
assert set(top["modes"]) == set(modes), set(top["modes"])
for mode in modes:
    metrics = top["modes"][mode]
    assert set(metrics) == METRICS[mode], (mode, set(metrics))
    for name, hist in metrics.items():
        assert set(hist) == {"n", "min", "p50", "p90", "p99", "p999", "max"}, (mode, name, hist)
        if hist["n"] == 0:
            assert name == "pending_ns" and hist["p50"] is None, (mode, name, hist)
            continue
        order = [hist[key] for key in ("min", "p50", "p90", "p99", "p999", "max")]
        assert order == sorted(order) and order[0] > 0, (mode, name, hist)
    for name in ("submit_ns", "seen_ns", "landed_ns", "rtt_ns"):
        if name in metrics:
            assert metrics[name]["n"] == requests, (mode, name, metrics[name], requests)
    counts = top["counts"][mode]
    assert counts["requests"] == requests and counts["failed"] == 0 and counts["wrong"] == 0, (mode, counts)
    for name, hist in metrics.items():
        buckets = top["histograms"][mode][name]["buckets"]
        assert sum(count for _, _, count in buckets) == hist["n"], (mode, name)
        assert all(low <= high for low, high, _ in buckets), (mode, name)
        if hist["n"]:
            assert buckets[0][0] <= hist["min"] <= buckets[0][1], (mode, name)
            assert buckets[-1][0] <= hist["max"] <= buckets[-1][1], (mode, name)
            # What a reader of the buckets finds is what the percentiles say.
            for key, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
                left = max(1, math.ceil(q * hist["n"]))
                for low, high, count in buckets:
                    left -= count
                    if left <= 0:
                        break
                assert low <= hist[key] <= high, (mode, name, key, hist)
        assert len(top["round_p50"][mode][name]) <= top["options"]["rounds"], (mode, name)
    scheduler = top["scheduler"][mode]
    assert scheduler["lookups_per_s"] > 0, (mode, scheduler)
    if mode == "async":
        assert scheduler["steps_to_answer"]["n"] == requests, scheduler
        assert scheduler["steps_to_answer"]["min"] >= 1 and 0 <= scheduler["same_step_share"] <= 1, scheduler
        assert scheduler["switches_per_lookup"] >= 0 and scheduler["others_cpu_ns_per_lookup"] > 0, scheduler
        assert top["options"]["endpoint"] or scheduler["lookups_per_server_cpu_s"] > 0, scheduler
    else:
        assert scheduler["same_step_share"] is None, (mode, scheduler)
    if "landed_ns" in metrics:  # each answer is published before its caller has it
        for key in ("min", "p50", "p90", "p99", "p999", "max"):
            assert metrics["landed_ns"][key] <= metrics["seen_ns"][key], (mode, key)
    if "stall_ns_per_step" in metrics:
        assert metrics["stall_ns_per_step"]["n"] == counts["steps"], (mode, counts)
assert top["clock_ns"]["n"] > 0
assert top["failure"] is None
# A build that is not made for speed says so.
assert top["environment"]["slow_build"] == (top["environment"]["build_type"] in ("debug", "debugoptimized")
                                            or top["environment"]["sanitizer"] != "none"), top["environment"]
for key in ("version", "revision", "build_type", "sanitizer", "compiler", "kernel", "cpu", "cores", "governor", "time"):
    assert top["environment"][key], key
assert top["interrupted"] is False
assert top["loop"] == "closed"
if len(modes) > 1:
    ratios = top["ratios_to_floor"]
    rounds = top["options"]["rounds"]
    assert ratios["floor"]["rtt_ns"] == {"n": rounds, "min": 1.0, "p50": 1.0, "max": 1.0}, ratios
    assert set(ratios) == set(modes)
    sync = ratios["sync"]["rtt_ns"]
    assert sync["n"] == rounds and 0 < sync["min"] <= sync["p50"] <= sync["max"], sync
PY
}

for mode in async polled sync floor; do
	# shellcheck disable=SC2086
	run 0 $small --mode "$mode" --verify --json - && check 200 "$mode"
	ok $? "mode $mode has its metrics and no other"
done

# shellcheck disable=SC2086
run 0 $small --compare --rounds 3 --verify --json - && check 200 async polled sync floor
ok $? "--compare has all modes and their ratios to the floor"

# shellcheck disable=SC2086
run 0 $small --mode async --json "$dir/file.json" &&
	grep -q '^async  *submit_ns  *200 ' "$dir/out" &&
	grep -q "^kvscout-latency [0-9.]*: .*, Linux $(uname -r), 20" "$dir/out" && cp "$dir/file.json" "$dir/out" && check 200 async
ok $? "--json FILE writes the file and prints the table, which says where it was measured"

# shellcheck disable=SC2086
run 1 $small --json "$dir/no/such/folder" && grep -q "no/such/folder" "$dir/err"
ok $? "a file that cannot be written is named"

hits() {
	"$python" -c 'import json, sys
counts = json.load(open(sys.argv[1]))["counts"][sys.argv[2]]
print(counts["hit_chunks"], counts["asked_chunks"])' "$dir/out" "$1"
}

# 160 requests are each of 16 prompts ten times; 0.3 of 256 chunks are 76.
for ratio in 0 0.3 1; do
	# shellcheck disable=SC2086
	run 0 $small --requests 160 --prompts 16 --hit-ratio $ratio --mode sync --verify --json - &&
		[ "$(hits sync)" = "$("$python" -c "print(int($ratio * 256) * 10, 2560)")" ]
	ok $? "--hit-ratio $ratio is what the server answers"
done

# A pool that is too small for the keys: the answers are not what was stored, and only --verify minds.
tiny="--chunks 512 --prompts 64 --l1-bytes 512Ki --requests 64 --warmup 0"
for mode in async polled sync; do
	# shellcheck disable=SC2086
	run 1 $tiny --mode $mode --verify --json - && grep -q "$mode: wrong answers; the first: prompt" "$dir/err"
	ok $? "--verify fails on an answer to $mode that is not the truth"
done
# shellcheck disable=SC2086
run 0 $tiny --mode sync --json - && ! grep -q '"wrong": 0' "$dir/out" && grep -q "is the pool too small" "$dir/err"
ok $? "without --verify wrong answers are counted, and told"

# The delay is a deferred reply: a blocking caller has it in every round trip, a scheduler loop in none of its steps.
# shellcheck disable=SC2086
run 0 $small --requests 40 --compare --rounds 2 --server-delay-us 3000 --json - && "$python" - "$dir/out" <<'PY'
import json, sys
modes = json.load(open(sys.argv[1]))["modes"]
assert modes["sync"]["rtt_ns"]["min"] >= 3000000, modes["sync"]
assert modes["polled"]["seen_ns"]["min"] >= 3000000, modes["polled"]
assert modes["async"]["seen_ns"]["min"] >= 3000000, modes["async"]
assert modes["async"]["pending_ns"]["n"] > 0, modes["async"]
assert modes["async"]["stall_ns_per_step"]["p50"] < 3000000, modes["async"]
assert modes["floor"]["rtt_ns"]["p50"] < 3000000, modes["floor"]
PY
ok $? "--server-delay-us is in every answer and in no step of async"

# shellcheck disable=SC2086
run 0 $small --requests 40 --compare --rounds 2 --spin-us 20 --server-spin-us 20 --verify --json - &&
	"$python" - "$dir/out" <<'PY'
import json, sys
top = json.load(open(sys.argv[1]))
assert top["options"]["server_spin_us"] == 20 and top["floor_transport"] == "ipc", top["options"]
for mode in ("async", "polled", "sync", "floor"):
    assert any(metric["n"] for metric in top["modes"][mode].values()), mode
PY
ok $? "all modes run with both sides spinning, with the right answers"

# A server that takes 3 ms for each is asked 2000 times a second: one round trip after the other cannot follow, and the
# time from the intended start says so, which the round trip does not.
# shellcheck disable=SC2086
run 0 $small --requests 100 --warmup 0 --compare --rounds 1 --rate 2000 --server-delay-us 3000 --verify --json - &&
	"$python" - "$dir/out" <<'PY'
import json, sys
top = json.load(open(sys.argv[1]))
modes = top["modes"]
assert top["loop"] == "open" and top["options"]["rate"] == 2000
for mode, of_service in (("async", "service_ns"), ("polled", "service_ns"), ("sync", "rtt_ns")):
    assert modes[mode]["seen_ns"]["n"] == modes[mode][of_service]["n"] == 100, mode
    for key in ("min", "p50", "max"):
        assert modes[mode]["seen_ns"][key] >= modes[mode][of_service][key], (mode, key)
assert modes["sync"]["seen_ns"]["p50"] > 10 * modes["sync"]["rtt_ns"]["min"], modes["sync"]
assert set(modes["floor"]) == {"rtt_ns"}
PY
ok $? "--rate counts from the intended start"

# shellcheck disable=SC2086
run 0 $small --requests 200 --clients 20 --mode async --verify --json - && check 200 async &&
	run 0 $small --requests 200 --clients 20 --mode polled --verify --json - && check 200 polled
ok $? "--clients asks through as many connections"

for chunks in 1 100000; do
	run 0 --requests 4 --warmup 1 --inflight 2 --chunks $chunks --compare --rounds 2 --verify --json - &&
		check 4 async polled sync floor
	ok $? "--chunks $chunks works in every mode"
done

if "$python" -c 'import os; os.sched_setaffinity(0, {0, 1})' 2>/dev/null; then
	# shellcheck disable=SC2086
	run 0 $small --pin 0,1 --compare --rounds 2 --verify --json - && check 200 async polled sync floor
	ok $? "--pin runs on the CPUs that it names"
else
	skip "--pin runs on the CPUs that it names" "CPU 0 and 1 are not both allowed"
fi
# shellcheck disable=SC2086
run 1 $small --pin 1022,1023 && grep -q -e "--pin 1022,1023: .* CPU 1022; it may on [0-9]" "$dir/err"
ok $? "--pin to CPUs that are not there fails by name, and says which are"

# shellcheck disable=SC2086
run 0 $small --compare --rounds 4 --plot "$dir/t.svg" --json "$dir/t.json" &&
	grep -q '^sync  *rtt_ns' "$dir/out" && "$python" - "$dir" <<'PY'
import json, sys, xml.etree.ElementTree as tree
folder = sys.argv[1]
modes = json.load(open(folder + "/t.json"))["modes"]
root = tree.parse(folder + "/t.svg").getroot()
space = "{http://www.w3.org/2000/svg}"
assert root.tag == space + "svg"
texts = " ".join(node.text for node in root.iter(space + "text"))
for mode in modes:
    assert mode + " (p50" in texts, texts
assert len([node for node in root.iter(space + "path") if node.get("fill") == "none"]) == 7
PY
ok $? "the SVG is well-formed and has a curve for each mode"
# shellcheck disable=SC2086
run 1 $small --plot "$dir/no/such/folder" && grep -q "no/such/folder" "$dir/err"
ok $? "an output that cannot be written is named"
# shellcheck disable=SC2086
run 0 $small --plot - && "$python" -c 'import sys, xml.etree.ElementTree as tree; tree.parse(sys.argv[1])' "$dir/out"
ok $? "--plot - has standard output for itself"

peer=$(dirname "$0")/../../../bench/scripts/peer_python.py
if "$python" -c 'import zmq' 2>/dev/null; then
	# shellcheck disable=SC2086
	run 0 $small --compare --rounds 2 --hit-ratio 0.5 --peer "$python $peer" --verify --json - &&
		"$python" - "$dir/out" <<'PY'
import json, sys
top = json.load(open(sys.argv[1]))
peer, counts = top["modes"]["peer"], top["counts"]["peer"]
assert set(peer) == {"submit_ns", "pending_ns", "seen_ns", "stall_ns_per_step", "rtt_ns"}
assert all(peer[name]["n"] == 200 for name in ("submit_ns", "seen_ns", "rtt_ns")), peer
assert counts["requests"] == 200 and counts["wrong"] == 0, counts
assert counts["asked_chunks"] == 200 * 16, counts
assert top["ratios_to_floor"]["peer"]["rtt_ns"]["n"] == 2
PY
	ok $? "--peer runs the Python peer in the same rounds"
	# shellcheck disable=SC2086
	run 0 $small --compare --rounds 2 --rate 2000 --server-delay-us 3000 --peer "$python $peer" --json - &&
		"$python" - "$dir/out" <<'PY'
import json, sys
peer = json.load(open(sys.argv[1]))["modes"]["peer"]
assert peer["seen_ns"]["n"] == peer["service_ns"]["n"] == 200, peer
assert peer["seen_ns"]["max"] > peer["service_ns"]["max"] and peer["rtt_ns"]["min"] >= 3000000, peer
PY
	ok $? "with --rate the peer has an open loop, too"
else
	skip "--peer runs the Python peer in the same rounds" "no pyzmq"
fi
# Two sets of results: the same one twice, and one that is twice as slow.
"$python" - "$dir" <<'PY'
import json, sys
folder = sys.argv[1]
top = json.load(open(folder + "/t.json"))
for i in range(4):
    for name, factor in (("same", 1), ("slow", 2)):
        for mode in top["modes"].values():
            for hist in mode.values():
                if hist["p50"] is not None:
                    hist["p50"] *= factor
        json.dump(top, open(f"{folder}/{name}{i}.json", "w"))
        for mode in top["modes"].values():
            for hist in mode.values():
                if hist["p50"] is not None:
                    hist["p50"] //= factor
PY
compare=$(dirname "$0")/../../../bench/scripts/compare.py
"$python" "$compare" "$dir"/same?.json --with "$dir"/slow?.json >"$dir/out" 2>"$dir/err" &&
	grep -q "^sync rtt_ns p50 .* 2.000  2.000..2.000  higher$" "$dir/out" &&
	grep -q "^sync rtt_ns p99 .* 1.000  1.000..1.000  no difference$" "$dir/out"
ok $? "compare.py finds what is twice as slow, and only that"
"$python" "$compare" "$dir/t.json" "$dir/t.json" >"$dir/out" 2>"$dir/err" &&
	grep -q "^sync rtt_ns p50 .* 1.000  .*  no difference (one run)$" "$dir/out"
ok $? "compare.py takes the rounds of a single run, and marks it"
! "$python" "$compare" "$dir/t.json" "$dir/t.svg" >"$dir/out" 2>"$dir/err" && grep -q t.svg "$dir/err"
ok $? "compare.py names a file that is no result"

# shellcheck disable=SC2086
run 1 $small --compare --peer "true" && grep -q -e "--peer: it" "$dir/err"
ok $? "a peer that leaves is a failure"
# shellcheck disable=SC2086
run 1 $small --compare --peer "echo nonsense #" && grep -q -e "--peer: " "$dir/err"
ok $? "a peer that talks nonsense is a failure"

# refused OPTION VALUE WORD: wrong usage, and the message names option, value and what is allowed.
refused() {
	run 2 "$1" "$2" && grep -qF -e "$1" "$dir/err" && grep -qF -e "$2" "$dir/err" && grep -qF -e "$3" "$dir/err" &&
		[ ! -s "$dir/out" ]
	ok $? "$1 $2 is refused by name, value and range"
}

refused --mode asynch "async, polled, sync, floor"
refused --requests 0 "1..100000000"
refused --requests many "1..100000000"
refused --warmup -1 "0..100000000"
refused --rounds 0 "1..1000"
refused --chunks 100001 "1..100000"
refused --chunks 1.5 "1..100000"
refused --inflight 4097 "1..4096"
refused --step-us 10000001 "0..10000000"
refused --hit-ratio 1.1 "0..1"
refused --hit-ratio half "0..1"
refused --prompts 1000001 "0..1000000"
refused --server-delay-us 10000001 "0..10000000"
refused --spin-us 1000001 "0..1000000"
refused --server-spin-us 1000001 "0..1000000"
refused --rate 10000001 "0..10000000"
refused --clients 0 "1..1000"
refused --clients 1001 "1..1000"
refused --pin 0 "CPU,CPU"
refused --pin 0,1,2 "CPU,CPU"
refused --pin a,b "CPU,CPU"
refused --pin 0,1024 "0..1023"
refused --seed x "0..9223372036854775807"
refused --l1-bytes 2Ti "0..1Ti"
refused --endpoint ipc:///a,ipc:///b "one endpoint"
refused --endpoint "ipc:///a ipc:///b" "one endpoint"

run 2 --endpoint nonsense --requests 1 && grep -qF 'client of nonsense: endpoint "nonsense": ' "$dir/err"
ok $? "an endpoint of no known kind is a wrong value, too"
run 2 --nonsense && grep -q -e --nonsense "$dir/err"
ok $? "an unknown option is named"
run 2 --compare --mode sync && grep -q -e --compare "$dir/err"
ok $? "--compare and --mode exclude each other"
run 2 --peer cat && grep -q -e "--peer is for --compare" "$dir/err"
ok $? "--peer needs --compare"
run 2 --json "$dir/x" --plot "$dir/x" && grep -q -e "--json and --plot name the same file" "$dir/err"
ok $? "two outputs cannot share a file"
run 2 --mode sync --clients 2 && grep -q -e "--clients is for the modes async and polled" "$dir/err"
ok $? "--clients is refused where it would be ignored"
run 2 --json "$dir/x" --namespace "$(printf 'a\377')" && grep -q -e "--namespace: must be UTF-8" "$dir/err"
ok $? "a name that no file could hold is refused before anything is measured"
run 2 --json - --plot - && grep -q "only one of" "$dir/err"
ok $? "two outputs cannot share standard output"
run 2 --clients 1000 --inflight 4096 && grep -q -e "--clients times --inflight" "$dir/err"
ok $? "--clients times --inflight is limited"
for option in --server-delay-us=5 --server-spin-us=5 --l1-bytes=1Mi; do
	run 2 --endpoint "ipc://$dir/none" $option && grep -q -e "${option%=*} is for the embedded server" "$dir/err"
	ok $? "${option%=*} is refused with --endpoint"
done
key=0123456789abcdefghijklmnopqrstuvwxyzABCD
run 2 --curve-secret-file "$dir/x" --curve-server-key $key && grep -q "for a server at --endpoint" "$dir/err"
ok $? "keys are refused without --endpoint"
run 2 --endpoint "ipc://$dir/none" --curve-secret-file "$dir/x" && grep -q "given both, or none" "$dir/err" &&
	run 2 --endpoint "ipc://$dir/none" --curve-server-key $key && grep -q "given both, or none" "$dir/err"
ok $? "one key without the other is refused"
run 2 --endpoint "ipc://$dir/none" --curve-secret-file "$dir/x" --curve-server-key ${key}E &&
	grep -q -e "--curve-server-key = \"${key}E\": must be a public key, 40 characters" "$dir/err"
ok $? "a server key that is none is refused by name and value"
run 2 --requests && grep -q "needs a value" "$dir/err"
ok $? "a missing value is named"
run 0 --help && grep -q -- "--requests N .*(default: 10000; 1..100000000)" "$dir/out"
ok $? "--help prints the defaults"
run 1 --endpoint "ipc://$dir/none" --requests 1 && grep -qF "$dir/none" "$dir/err"
ok $? "a server that is not there is named"

# Long enough to be interrupted for certain; progress on stderr says that it measures.
"$tool" --requests 100000000 --warmup 0 --inflight 8 --chunks 16 --json "$dir/file.json" >"$dir/out" 2>"$dir/err" &
pid=$!
until grep -q "of 100000000 requests" "$dir/err" || ! kill -0 $pid; do
	sleep 0.1
done
kill -INT $pid
wait $pid
status=$?
[ $status -eq 130 ] && grep -q "^interrupted" "$dir/out" && grep -q '^async  *submit_ns  *[1-9]' "$dir/out" &&
	grep -q '"interrupted": true' "$dir/file.json"
ok $? "an interrupt prints what was measured until then"

if [ -n "$daemon" ]; then
	mkfifo "$dir/ready"
	"$daemon" --listen "ipc://$dir/server.sock" --l1_bytes 64Mi >"$dir/ready" 2>"$dir/daemon.err" &
	daemon_pid=$!
	read -r line <"$dir/ready"
	[ "$line" = "kvscoutd: ready on ipc://$dir/server.sock" ]
	ok $? "a daemon for the next cases is ready"
	for ratio in 1 0.5; do
		# shellcheck disable=SC2086
		run 0 $small --endpoint "ipc://$dir/server.sock" --compare --rounds 2 --hit-ratio $ratio --verify \
			--json - && check 200 async polled sync floor
		ok $? "--endpoint measures a running daemon, hit ratio $ratio"
	done

	# A second one, with keys, over tcp.
	server_key=$("$daemon" --curve-keygen "$dir/server.key") &&
		"$daemon" --curve-keygen "$dir/tool.key" >"$dir/clients.keys" &&
		"$daemon" --curve-keygen "$dir/stranger.key" >"$dir/stranger.pub"
	kill "$daemon_pid" && wait "$daemon_pid" 2>/dev/null
	"$daemon" --listen "tcp://127.0.0.1:*" --l1_bytes 64Mi --curve_secret_file "$dir/server.key" \
		--curve_clients_file "$dir/clients.keys" >"$dir/ready" 2>"$dir/daemon.err" &
	daemon_pid=$!
	read -r line <"$dir/ready"
	address=${line#kvscoutd: ready on }
	# encrypted STATUS SECRET_FILE SERVER_KEY ARGUMENT...: run the tool with these keys.
	encrypted() {
		encrypted_status=$1 encrypted_file=$2 encrypted_key=$3
		shift 3
		# shellcheck disable=SC2086
		run "$encrypted_status" $small --endpoint "$address" --curve-secret-file "$encrypted_file" \
			--curve-server-key "$encrypted_key" "$@"
	}
	encrypted 0 "$dir/tool.key" "$server_key" --compare --rounds 2 --verify --json - &&
		check 200 async polled sync floor && grep -q '"curve": true' "$dir/out" &&
		grep -q '"floor_transport": "tcp"' "$dir/out"
	ok $? "with its keys a daemon on tcp is measured in all modes, on tcp the floor, too"
	encrypted 0 "$dir/tool.key" "$server_key" --mode floor && grep -qF "$address, encrypted (CURVE)" "$dir/out"
	ok $? "the table says that it was encrypted"
	# shellcheck disable=SC2086
	run 1 $small --endpoint "$address" && grep -q "the server requires CURVE keys" "$dir/err"
	ok $? "without keys it is told that the server wants some"
	encrypted 1 "$dir/stranger.key" "$server_key" && grep -q "its curve_clients_file must list the public key" "$dir/err"
	ok $? "a key that is not on the server's list is told"
	encrypted 1 "$dir/tool.key" "$(cat "$dir/stranger.pub")" && grep -q "is curve_server_key the server's" "$dir/err"
	ok $? "a key that is not the server's is told"
	encrypted 1 "$dir/none.key" "$server_key" && grep -qF -e "--curve-secret-file: key file $dir/none.key" "$dir/err"
	ok $? "a key file that is not there is named"
	chmod 644 "$dir/tool.key"
	encrypted 1 "$dir/tool.key" "$server_key" && grep -q "tool.key has mode 0" "$dir/err"
	ok $? "a key file that others can read is refused"
	encrypted 2 "$dir/tool.key" "$server_key" --compare --peer cat && grep -q "no keys" "$dir/err"
	ok $? "--peer is refused with keys"
else
	skip "--endpoint measures a running daemon" "no kvscoutd given"
	skip "with its keys a daemon on tcp is measured in all modes" "no kvscoutd given"
fi

echo "1..$n"
[ $failed -eq 0 ]
