#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How runs of kvscout-latency end before their time: signals at each phase, servers that stop, die, or are something else,
# outputs that cannot be written. What was measured until then is told, and nothing that was not measured. A run tells how far it is after
# two seconds, so each fault in the middle of one costs more than that.
#
# usage: test_tools_latency_ends.sh KVSCOUT_LATENCY KVSCOUTD
# shellcheck disable=SC2329 # the cases are called by check

tool=${1:?usage: test_tools_latency_ends.sh KVSCOUT_LATENCY KVSCOUTD}
daemon=${2:?usage: test_tools_latency_ends.sh KVSCOUT_LATENCY KVSCOUTD}
python=${PYTHON:-python3}
. "$(dirname "$0")/../tap.sh"
daemon_pid=
run_pid=

cleanup() {
	[ -n "$run_pid" ] && kill -KILL "$run_pid" 2>/dev/null
	[ -n "$daemon_pid" ] && kill -CONT "$daemon_pid" 2>/dev/null && kill "$daemon_pid" 2>/dev/null && wait "$daemon_pid"
	rm -rf "$tap_dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# nap SECONDS: between two looks at a condition, or as long as a fault lasts.
nap() {
	"$python" -c 'import select, sys; select.select([], [], [], float(sys.argv[1]))' "$1"
}

start_daemon() {
	[ -z "$daemon_pid" ] || end_daemon KILL # a case that failed left it
	rm -f "$tap_dir/ready"
	mkfifo "$tap_dir/ready"
	"$daemon" --listen "ipc://$tap_dir/s.sock" --l1_bytes 64Mi >"$tap_dir/ready" 2>"$tap_dir/daemon.err" &
	daemon_pid=$!
	read -r _ <"$tap_dir/ready"
}

end_daemon() {
	kill "-$1" "$daemon_pid"
	wait "$daemon_pid" 2>/dev/null
	daemon_pid=
}

# begin ARGUMENT...: run the tool beside.
begin() {
	rm -f "$tap_dir/o.json" "$tap_dir/err" # what until_said reads is of this run
	"$tool" --json "$tap_dir/o.json" "$@" >"$tap_dir/out" 2>"$tap_dir/err" &
	run_pid=$!
}

# Until it has its handlers, so that a signal is heard: SIGINT and SIGTERM are the bits 2 and 0x4000 of what it catches.
until_it_listens() {
	tries=0
	until [ $((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$run_pid/status" | tail -c 9) & 0x4002)) -eq $((0x4002)) ]; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] || return 1
		nap 0.05
	done
}

# Until standard error says so.
until_said() {
	tries=0
	until grep -q "$1" "$tap_dir/err" 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] || return 1
		nap 0.1
	done
}

# ended STATUS
ended() {
	wait "$run_pid"
	got=$?
	run_pid=
	cat "$tap_dir/out" "$tap_dir/err"
	[ "$got" -eq "$1" ] || echo "exit status $got, not $1"
	[ "$got" -eq "$1" ]
}

# json EXPRESSION: it is true of the result, which is called top.
json() {
	"$python" -c 'import json, sys
top = json.load(open(sys.argv[1]))
if not eval(sys.argv[2]):
    sys.exit("not so: " + sys.argv[2] + "\n" + json.dumps([top["counts"], top["scheduler"], top["failure"]])[:2000])' \
		"$tap_dir/o.json" "$1"
}

# A stopped server that never takes the connection on: connecting is what the tool does for seconds.
while_it_connects() {
	"$python" -c 'import socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listening", flush=True)
connection = listener.accept()
print("connected", flush=True)
time.sleep(600)' "$tap_dir/deaf.sock" >"$tap_dir/deaf" &
	deaf=$!
	until grep -q listening "$tap_dir/deaf"; do nap 0.02; done
	begin --endpoint "ipc://$tap_dir/deaf.sock"
	until grep -q connected "$tap_dir/deaf"; do nap 0.02; done
	kill -INT "$run_pid"
	ended 130
	status=$?
	kill "$deaf"
	wait "$deaf" 2>/dev/null
	# It ended because of the signal, and not since nobody answered.
	[ $status -eq 0 ] && json 'top["interrupted"] and top["failure"] is None' && ! grep -q "no kvscout server" "$tap_dir/err"
}

# Four million hashes take seconds to make and store.
while_it_stores() {
	begin --chunks 100000 --prompts 40
	until_it_listens || return 1
	nap 0.3
	kill "-$1" "$run_pid"
	ended "$2" && json 'top["interrupted"]'
}

as_it_starts() {
	begin --requests 100000000 --compare
	nap "$1"
	kill -TERM "$run_pid"
	ended 143
}

# A peer that does not leave is waited for some seconds after the first signal. The second ends it: nothing is printed any more.
two_signals_end_it() {
	printf 'touch %s\ncat >/dev/null\nexec sleep 5\n' "$tap_dir/peer.is-there" >"$tap_dir/peer.sh"
	begin --compare --peer "sh $tap_dir/peer.sh"
	until [ -e "$tap_dir/peer.is-there" ]; do nap 0.1; done
	kill -INT "$run_pid"
	nap 0.05
	kill -INT "$run_pid"
	ended 130 && [ ! -s "$tap_dir/out" ]
}

# dies MODE: all that was measured before is told, nothing after it counts as answered.
dies() {
	start_daemon
	# 64 in each step of a millisecond, more than three seconds, and the first words come after two: there is time to kill it.
	begin --endpoint "ipc://$tap_dir/s.sock" --mode "$1" --requests 220000
	until_said "[0-9]\{4,\} of 220500 requests" || return 1 # 500 are to warm up
	end_daemon KILL
	ended 1 || return 1
	grep -q "^$1  *[a-z_]*_ns  *[1-9]" "$tap_dir/out" || return 1
	if [ "$1" = sync ]; then
		json 'str(top["failure"]).startswith("sync: ") and 0 < top["counts"]["sync"]["requests"] < 220000' &&
			grep -q "^ended early, what was measured until then: sync: " "$tap_dir/out" || return 1
	else
		json "top['failure'] is None and top['counts']['$1']['failed'] > 0" || return 1
	fi
	# What failed is no throughput.
	json "abs(top['scheduler']['$1']['lookups_per_s'] * top['scheduler']['$1']['seconds']
		- top['counts']['$1']['requests'] + top['counts']['$1']['failed']) < 1"
}

# The daemon is stopped for 250 ms, well below the 450 ms of silence after which a server counts as gone. It fails if a busy machine made more of it.
stand_still() {
	"$python" -c 'import os, select, signal, sys, time
daemon = int(sys.argv[1])
start = time.monotonic()
os.kill(daemon, signal.SIGSTOP)
select.select([], [], [], 0.25)
os.kill(daemon, signal.SIGCONT)
sys.exit(time.monotonic() - start > 0.35)' "$daemon_pid"
}

# Arrivals do not wait for a server that stands still: as many as arrived meanwhile were late, not one for each place.
stop_is_in_the_tail() {
	start_daemon
	runs=0
	while :; do
		begin --endpoint "ipc://$tap_dir/s.sock" --mode "$1" --rate 400 --requests 1400 --warmup 0 --inflight 4 --chunks 16
		until_said "of 1400 requests" || return 1
		stand_still && break
		kill -KILL "$run_pid"
		wait "$run_pid" 2>/dev/null
		runs=$((runs + 1))
		[ $runs -lt 10 ] || return 1
	done
	ended 0 || return 1
	end_daemon TERM
	# 100 arrive while it stands still, 60 of them more than 100 ms before it goes on.
	json "sum(n for low, _, n in top['histograms']['$1']['seen_ns']['buckets'] if low > 100_000_000) > 30"
}

not_a_server() {
	"$python" -c 'import sys, time, zmq
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind(sys.argv[1])
print("listening", flush=True)
while True:
    socket.send_multipart(socket.recv_multipart())' "ipc://$tap_dir/echo.sock" >"$tap_dir/deaf" &
	echo_pid=$!
	until grep -q listening "$tap_dir/deaf"; do nap 0.02; done
	begin --endpoint "ipc://$tap_dir/echo.sock"
	ended 1
	status=$?
	kill "$echo_pid"
	wait "$echo_pid" 2>/dev/null
	[ $status -eq 0 ] && grep -q "no kvscout server answers at .*echo.sock within 5000 ms" "$tap_dir/err" && [ ! -s "$tap_dir/out" ] && [ ! -e "$tap_dir/o.json" ]
}

# It would measure for ten minutes: that it ends is the proof that it looked first.
is_found_first() {
	timeout 60 "$tool" --requests 100000000 "$1" "$2" >"$tap_dir/out" 2>"$tap_dir/err"
	got=$?
	cat "$tap_dir/err"
	[ $got -eq 1 ] && grep -qF "cannot write $2: $3" "$tap_dir/err"
}

check "an interrupt while it connects ends it at once" while_it_connects
check "an interrupt while it stores the keys ends it" while_it_stores INT 130
check "SIGTERM while it stores the keys ends it" while_it_stores TERM 143
for at in 0.05 0.2; do
	check "SIGTERM $at s after its start ends it" as_it_starts $at
done
check "a second signal ends it at once" two_signals_end_it
for mode in async polled sync; do
	check "a server that dies under $mode: what was measured is told" dies $mode
done
for mode in async polled sync; do
	check "$mode, open loop: a stopped server is in the tail of all that arrived" stop_is_in_the_tail $mode
done
if "$python" -c 'import zmq' 2>/dev/null; then
	check "what answers but is no server is named" not_a_server
else
	skip "what answers but is no server is named" "no pyzmq"
fi
for option in --json --plot; do
	check "$option into a folder that is not there is found before it measures" \
		is_found_first $option "$tap_dir/none/x" "No such file or directory"
done
check "an output that is a folder is found before it measures" is_found_first --plot "$tap_dir" "Is a directory"
check "a full disk is told in words" ends_with 1 "cannot write /dev/full: No space left on device" \
	"$tool" --requests 100 --json /dev/full
# shellcheck disable=SC2016 # for the inner shell
check "so is a full disk behind standard output" ends_with 1 "standard output could not be written: No space left on device" \
	sh -c '"$1" --requests 100 >/dev/full' full "$tool"
finish
