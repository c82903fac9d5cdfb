#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvscout-replay, whole: against an independent simulation, and with wrong input.
# usage: test_tools_replay.sh KVSCOUT_REPLAY [KVSCOUTD]   (KVSCOUT_TRACE names a large trace to replay as well)
here=$(dirname "$0")
. "$here/../tap.sh"
replay=$1
kvscoutd=${2:-}
python=${PYTHON:-python3}
trace=$tap_dir/trace.jsonl

"$python" "$here/lru_sim.py" generate 7 1500 >"$trace" || exit 1

# field FILE NAME: one number of a result
field() {
	"$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"
}

# agrees TRACE BLOCKS BLOCK_BYTES KV_RANKS [LIMIT]: every number is the simulation's, every byte was compared
agrees() {
	limited "$replay" --trace "$1" --l1-blocks "$2" --block-bytes "$3" --kv-ranks "$4" --limit "${5:-0}" --eviction lru \
		--json "$tap_dir/result.json" || return 1
	want=$("$python" "$here/lru_sim.py" simulate "$1" "$2" "${5:-0}") || return 1
	for name in requests blocks hit_blocks evicted bytes_verified wrong_bytes missing_blocks; do
		eval "$name=\$(field "$tap_dir/result.json" $name)" || return 1
	done
	echo "simulation: $want"
	echo "replay:     $requests $blocks $hit_blocks $evicted"
	[ "$want" = "$requests $blocks $hit_blocks $evicted" ] || return 1
	[ "$hit_blocks" -gt 0 ] || return 1
	echo "verified $bytes_verified, wrong $wrong_bytes, missing $missing_blocks"
	[ "$bytes_verified" -eq $((hit_blocks * $3 * $4)) ] && [ "$wrong_bytes" -eq 0 ] && [ "$missing_blocks" -eq 0 ]
}

# With L2 on files a pool of 300 blocks hits what an infinite cache does: the longest prompt fits into it.
agrees_with_l2() {
	limited "$replay" --trace "$trace" --l1-blocks 300 --block-bytes 1024 --kv-ranks "$1" --l2 "fs://$tap_dir/l2-$1" \
		--limit "$2" --json "$tap_dir/result.json" || return 1
	want=$("$python" "$here/lru_sim.py" simulate "$trace" 1000000 "$2") || return 1
	for name in requests blocks hit_blocks l2_hit_blocks evicted bytes_verified wrong_bytes missing_blocks; do
		eval "$name=\$(field "$tap_dir/result.json" $name)" || return 1
	done
	echo "simulation: $want"
	echo "replay:     $requests $blocks $hit_blocks, of these $l2_hit_blocks from L2; evicted $evicted"
	[ "${want% *}" = "$requests $blocks $hit_blocks" ] || return 1
	[ "$l2_hit_blocks" -gt 0 ] && [ "$evicted" -gt 0 ] || return 1
	echo "verified $bytes_verified, wrong $wrong_bytes, missing $missing_blocks"
	[ "$bytes_verified" -eq $((hit_blocks * 1024 * $1)) ] && [ "$wrong_bytes" -eq 0 ] && [ "$missing_blocks" -eq 0 ]
}

# The same through a server process, whose pool of 16 MiB has room for 4096 blocks.
agrees_with_kvscoutd() {
	sh "$here/../with_server.sh" "$kvscoutd" "$replay" --trace "$trace" --json "$tap_dir/result.json" --endpoint || return 1
	want=$("$python" "$here/lru_sim.py" simulate "$trace" 4096) || return 1
	for name in requests blocks hit_blocks evicted wrong_bytes; do
		eval "$name=\$(field "$tap_dir/result.json" $name)" || return 1
	done
	echo "simulation: $want"
	[ "$want" = "$requests $blocks $hit_blocks $evicted" ] && [ "$wrong_bytes" -eq 0 ]
}

# The same through one with keys, on tcp.
agrees_with_keys() {
	server_key=$("$kvscoutd" --curve-keygen "$tap_dir/server.key") || return 1
	"$kvscoutd" --curve-keygen "$tap_dir/tool.key" >"$tap_dir/clients.keys" || return 1
	printf '%s\n' 'listen = tcp://127.0.0.1:*' "curve_secret_file = $tap_dir/server.key" \
		"curve_clients_file = $tap_dir/clients.keys" >"$tap_dir/keys.conf"
	KVSCOUTD_CONFIG=$tap_dir/keys.conf sh "$here/../with_server.sh" "$kvscoutd" "$replay" --trace "$trace" --limit 300 \
		--json "$tap_dir/result.json" --curve-secret-file "$tap_dir/tool.key" --curve-server-key "$server_key" \
		--endpoint || return 1
	want=$("$python" "$here/lru_sim.py" simulate "$trace" 4096 300) || return 1
	for name in requests blocks hit_blocks evicted wrong_bytes; do
		eval "$name=\$(field "$tap_dir/result.json" $name)" || return 1
	done
	echo "simulation: $want"
	[ "$want" = "$requests $blocks $hit_blocks $evicted" ] && [ "$wrong_bytes" -eq 0 ] &&
		grep -q '"curve": true' "$tap_dir/result.json"
}

# The whole object is on standard output, and nothing else.
json_on_stdout() {
	limited "$replay" --trace "$trace" --limit 20 --json - >"$tap_dir/stdout.json" || return 1
	"$python" - "$tap_dir/stdout.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
for name in ("requests", "blocks", "hit_blocks", "hit_ratio", "evicted", "bytes_verified", "wrong_bytes", "wall_s"):
    assert isinstance(result[name], (int, float)), name
assert abs(result["hit_ratio"] - result["hit_blocks"] / result["blocks"]) < 1e-6
assert result["hit_blocks"] <= result["ceiling_blocks"] == result["endless_blocks"], result
assert result["requests"] == 20 and result["wall_s"] > 0
assert result["environment"]["kernel"] and result["config"]["l1_blocks"] == 10000
PY
}

# In a pool that is too small for the trace's conversations, perfect hints gain hits.
hints_help() {
	for hints in oracle:0,0 oracle:100,0; do
		limited "$replay" --trace "$trace" --l1-blocks 1000 --block-bytes 64 --hints $hints --json "$tap_dir/result.json" ||
			return 1
		hit_blocks=$(field "$tap_dir/result.json" hit_blocks) || return 1
		echo "$hints: $hit_blocks"
		[ $hints = oracle:100,0 ] || without=$hit_blocks
	done
	[ "$hit_blocks" -gt "$without" ]
}

# bad NAME TEXT LINE...: a trace with these lines is refused, and the text is said
bad() {
	bad_name=$1
	bad_text=$2
	shift 2
	printf '%s\n' "$@" >"$tap_dir/bad.jsonl"
	check "$bad_name" ends_with 1 "$bad_text" "$replay" --trace "$tap_dir/bad.jsonl"
}

good='{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1]}'

check "a pool of 5000 blocks evicts nothing that matters" agrees "$trace" 5000 4096 1
check "a pool of 200 blocks hits what LRU with tail-first touch hits" agrees "$trace" 200 4096 1
check "requests longer than a pool of 50 blocks keep their heads" agrees "$trace" 50 4096 1
check "a pool of one block" agrees "$trace" 1 4096 1
check "three KV ranks, odd sizes" agrees "$trace" 200 1001 3
check "blocks of two bytes" agrees "$trace" 100 2 1
check "L2 makes the pool as good as an infinite one" agrees_with_l2 1 500
check "L2, three KV ranks" agrees_with_l2 3 200
check "--limit ends after so many requests" agrees "$trace" 200 4096 1 333
if [ -n "$kvscoutd" ]; then
	check "through kvscoutd at an endpoint" agrees_with_kvscoutd
	check "through kvscoutd with keys, on tcp" agrees_with_keys
else
	skip "through kvscoutd at an endpoint" "no kvscoutd was given"
	skip "through kvscoutd with keys, on tcp" "no kvscoutd was given"
fi
check "hints that are right gain hits" hints_help
check "hints of another form are refused" ends_with 2 "oracle:101,0" "$replay" --trace "$trace" --hints oracle:101,0
check "--json - writes one JSON object and nothing else" json_on_stdout
check "--help lists the options" ends_with 0 --l1-blocks "$replay" --help
check "--trace is required" ends_with 2 "--trace FILE is required" "$replay"
check "--l2 with a wrong URL is told what is wrong" ends_with 2 "path is missing" "$replay" --trace "$trace" --l2 fs://
check "the second --l2 is added to the first" ends_with 2 "path is missing" "$replay" --trace "$trace" --l2 "fs://$tap_dir/first" --l2 fs://
check "--l2 with commas is told how lists are written" ends_with 2 "several URLs with blanks" "$replay" --trace "$trace" --l2 fs:///a,fs:///b
check "--endpoint of two servers is refused" ends_with 2 "must be one endpoint" "$replay" --trace "$trace" --endpoint "ipc:///a ipc:///b"
check "--l2 with --endpoint is refused" ends_with 2 "--endpoint" "$replay" --trace "$trace" --l2 fs:///x --endpoint ipc:///x
check "an unknown eviction policy is refused by name" ends_with 2 fifo9 "$replay" --trace "$trace" --eviction fifo9
check "a pool larger than memory is refused" ends_with 2 "memory" "$replay" --trace "$trace" --l1-blocks 100000000 \
	--block-bytes 1Mi
check "--l1-blocks with --endpoint is refused" ends_with 2 "--endpoint" "$replay" --trace "$trace" --l1-blocks 5 \
	--endpoint ipc:///nowhere
key=0123456789abcdefghijklmnopqrstuvwxyzABCD
check "keys are refused without --endpoint" ends_with 2 "for a server at --endpoint" "$replay" --trace "$trace" \
	--curve-secret-file x --curve-server-key $key
check "one key without the other is refused" ends_with 2 "given both, or none" "$replay" --trace "$trace" \
	--endpoint ipc:///nowhere --curve-server-key $key
check "a server key that is none is refused by name and value" ends_with 2 "--curve-server-key = \"x\"" "$replay" \
	--trace "$trace" --endpoint ipc:///nowhere --curve-secret-file x --curve-server-key x
check "a key file that is not there is named" ends_with 1 "key file $tap_dir/none.key" "$replay" --trace "$trace" \
	--endpoint ipc:///nowhere --curve-secret-file "$tap_dir/none.key" --curve-server-key $key
check "a missing trace file is named" ends_with 1 "$tap_dir/none.jsonl" "$replay" --trace "$tap_dir/none.jsonl"
check "a JSON file that cannot be written is named" ends_with 1 "$tap_dir/none/x.json" "$replay" --trace "$trace" \
	--limit 5 --json "$tap_dir/none/x.json"
bad "a line that is no JSON is named by its number" bad.jsonl:3: "$good" "$good" '{"timestamp": 1,'
bad "a missing field is named" '2: field "hash_ids" is missing' "$good" \
	'{"timestamp": 0, "input_length": 600, "output_length": 5}'
bad "a field of a wrong type is named" '1: field "input_length" is a string' \
	'{"timestamp": 0, "input_length": "600", "output_length": 5, "hash_ids": [1]}'
bad "a negative field is named" '1: field "output_length" is negative' \
	'{"timestamp": 0, "input_length": 600, "output_length": -5, "hash_ids": [1]}'
bad "a negative hash id is named by its place" '1: hash_ids[1] is negative' \
	'{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, -2]}'
bad "an empty trace is refused" "no request in it" ""
if [ -n "$KVSCOUT_TRACE" ]; then
	check "the trace in KVSCOUT_TRACE, 10000 blocks" agrees "$KVSCOUT_TRACE" 10000 4096 1
else
	skip "the trace in KVSCOUT_TRACE, 10000 blocks" "KVSCOUT_TRACE is not set"
fi

# Long enough to be interrupted for certain; progress on standard error says that it replays.
interrupt_is_no_loss() {
	"$python" -c 'for i in range(400000):
    print("{\"timestamp\": %d, \"input_length\": 1536, \"output_length\": 1, \"hash_ids\": [%d, %d, %d]}" % (i, i % 97, i % 89, i))' \
		>"$tap_dir/long.jsonl"
	rm -f "$tap_dir/result.json"
	"$replay" --trace "$tap_dir/long.jsonl" --json "$tap_dir/result.json" >"$tap_dir/long.out" 2>"$tap_dir/long.err" &
	pid=$!
	wait_until grep -q "requests" "$tap_dir/long.err"
	kill -INT $pid
	wait $pid
	status=$?
	cat "$tap_dir/long.out" "$tap_dir/long.err"
	requests=$(field "$tap_dir/result.json" requests) && [ $status -eq 130 ] && [ "$requests" -gt 0 ] &&
		[ "$requests" -lt 400000 ] && [ "$(field "$tap_dir/result.json" interrupted)" = True ] &&
		grep -q "^kvscout-replay: interrupted" "$tap_dir/long.err" && grep -q "^hit ratio" "$tap_dir/long.out"
}
check "an interrupt prints what was replayed until then" interrupt_is_no_loss
finish
