#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command kvscout as its users meet it: a real kvscoutd where engines look, a real client, exit statuses, completion.
# usage: test_tools_kvscout.sh KVSCOUT KVSCOUTD COMPLETION [KVSCOUT_LATENCY]
. "$(dirname "$0")/../tap.sh"
kvscout=$(realpath "$1")
kvscoutd=$(realpath "$2")
completion=$3
latency=$4
server=
# shellcheck disable=SC2154 # of tap.sh
trap '[ -z "$server" ] || kill -KILL "$server"; rm -rf "$tap_dir"' EXIT
XDG_RUNTIME_DIR=$tap_dir/run
PATH=$(dirname "$kvscoutd"):$PATH
export XDG_RUNTIME_DIR PATH
mkdir -m 700 "$XDG_RUNTIME_DIR"

check "no command is wrong usage" ends_with 2 "a command is missing" "$kvscout"
check "an unknown command is wrong usage" ends_with 2 '"restart" is no command' "$kvscout" restart
check "-h lists the commands" ends_with 0 "drop what a namespace or a tenant has cached" "$kvscout" -h
for command in status top web ping lookup clear peers verify; do
	check "$command -h lists its options" ends_with 0 "usage: kvscout $command" "$kvscout" "$command" -h
	check "$command refuses an unknown option" ends_with 2 "unknown option" "$kvscout" "$command" --nonsense
done
for command in status top ping peers verify "lookup --tokens-file /dev/null" "clear --namespace n"; do
	# shellcheck disable=SC2086 # a command and its options
	check "$command refuses what is no endpoint" ends_with 2 "nonsense" "$kvscout" $command --endpoint nonsense
	# shellcheck disable=SC2086
	check "$command says that there is no server" ends_with 3 "not a folder" "$kvscout" $command
done

# start NAME ARGUMENTS...: start a server by the command; $endpoint is where.
start() {
	start_name=$1
	shift
	serve "$start_name" "$kvscout" server --l1-bytes 16Mi "$@"
}

# The clear ends in steps.
is_empty() {
	"$kvscout" status --json | grep -qF '"ns.kvscout-latency.bytes": 0, '
}

start auto
check "server serves where engines look" test "$endpoint" = "ipc://$(echo "$XDG_RUNTIME_DIR"/kvscout/ipc-*)/kvscout.sock"
check "a second one says so, with a status of its own" ends_with 4 "pid $server, $endpoint" "$kvscout" server
check "so does one on the same path" ends_with 4 "held by a living server, pid $server" "$kvscoutd" --listen "$endpoint"
check "its lock says what it is" grep -qx "keys = l1_bytes=16Mi" "$XDG_RUNTIME_DIR"/kvscout/ipc-*/server.lock
check "ping" ends_with 0 "$endpoint answered in" "$kvscout" ping
check "ping several times" ends_with 0 "2 answers: " "$kvscout" ping --count 2
check "status" ends_with 0 "server     $endpoint, up " "$kvscout" status
check "sizes are read as kvscoutd reads them" ends_with 0 "of 16.0 MiB used" "$kvscout" status
check "the epoch in JSON is as in the log" sh -c "grep -q \"epoch \$('$kvscout' status --json | sed 's/.*\"epoch\": \"\([0-9a-f]*\)\".*/\1/')\" '$tap_dir/auto.log'"
check "status as JSON" ends_with 0 '"l1.bytes_limit": 16777216, ' "$kvscout" status --json
check "top" ends_with 0 "NAMESPACE, tenants" "$kvscout" top --count 1
check "peers, if there are none" ends_with 0 "[]" "$kvscout" peers --json
check "lookup, if there is no namespace" ends_with 1 "no engine has connected yet" "$kvscout" lookup --tokens-file /dev/null
check "clear, if there is no namespace" ends_with 1 'no namespace "llama"' "$kvscout" clear --namespace llama
for command in status "top --count 1" peers ping; do
	# shellcheck disable=SC2016,SC2086 # for the inner shell; a command and its options
	check "$command to a full disk fails" ends_with 1 "could not be written" sh -c '"$@" >/dev/full' full "$kvscout" $command
done
if [ -n "$latency" ]; then
	PATH=$(dirname "$(realpath "$latency")"):$PATH
	check "latency runs the tool, against this server" ends_with 0 "async" \
		"$kvscout" latency --endpoint auto --mode async --requests 200 --chunks 4
	check "status tells what it did" ends_with 0 "namespace  kvscout-latency" "$kvscout" status
	check "clear drops it" ends_with 0 "dropped " "$kvscout" clear --namespace kvscout-latency
	check "and nothing is left" wait_until is_empty
	check "clear of a tenant that has nothing says so" ends_with 0 "nothing was cached of this tenant" \
		"$kvscout" clear --namespace kvscout-latency --tenant nobody
else
	skip "latency runs the tool, against this server" "built without jansson"
fi
freeze
check "a server that hangs is none" ends_with 3 "no answer within 2 s" "$kvscout" ping
kill -CONT "$server"
check "it ends with 0" stop
check "no socket is told at once" ends_with 3 "No such file or directory" "$kvscout" ping --endpoint ipc:///nowhere/s
check "so is a port where nobody listens" ends_with 3 "no server listens there" timeout 1 "$kvscout" ping --endpoint tcp://127.0.0.1:1
check "help is --help" ends_with 0 "usage: kvscout COMMAND" "$kvscout" help
check "version is --version" ends_with 0 "kvscout 0" "$kvscout" version
check "a misspelt command is told the one that was meant" ends_with 2 "did you mean status?" "$kvscout" statis
check "and then there is none" ends_with 3 "no server serves there" "$kvscout" ping

# A program next to the command comes before those of PATH.
mkdir "$tap_dir/bin"
cp "$kvscout" "$tap_dir/bin/kvscout"
# shellcheck disable=SC2016 # for the inner shell
printf '#!/bin/sh\necho "beside: $*"\n' >"$tap_dir/bin/kvscout-copy"
chmod +x "$tap_dir/bin/kvscout-copy"
check "a program next to the command is executed" ends_with 0 "beside: --pieces 3" "$tap_dir/bin/kvscout" copy --pieces 3
check "one that is not there is named" ends_with 1 "kvscout-replay is neither next to kvscout nor in PATH" \
	env PATH=/nonexistent "$tap_dir/bin/kvscout" replay

if [ -n "$latency" ]; then
	start files --listen "ipc://$tap_dir/files.sock" --l2 "fs://$tap_dir/l2"
	"$kvscout" latency --endpoint "$endpoint" --mode async --requests 20 --chunks 4 >/dev/null
	check "clear of one tenant, with L2, says what to do instead" ends_with 1 "Give the tenant another name" \
		"$kvscout" clear --endpoint "$endpoint" --namespace kvscout-latency --tenant chat
	check "clear of all, with L2" ends_with 0 ", and everything in L2" \
		"$kvscout" clear --endpoint "$endpoint" --namespace kvscout-latency
	check "clear in L2 of a name that no engine has said asks whether it is right" ends_with 0 "is the name right?" \
		"$kvscout" clear --endpoint "$endpoint" --namespace never-named
	check "a server with L2 ends with 0" stop
else
	skip "clear of one tenant, with L2, says what to do instead" "built without jansson"
fi

serve pool "$kvscout" server
check "a server without l1_bytes, started by hand, has the pool that an engine's has" grep -q "a pool of .* MiB: .* l1_bytes sets another" "$tap_dir/pool.log"
check "that server ends, too" stop

# Serve at $4 and ask at $3, in a network namespace that has ::1 and no IPv4 if $5 says so.
cat >"$tap_dir/serve_v6" <<'END'
if [ "$5" = v6 ]; then
	ip link set lo up && ip addr del 127.0.0.1/8 dev lo || exit 1
fi
"$2" --listen "$4" --l1-bytes 16Mi >/dev/null 2>&1 &
server=$!
for try in 1 2 3 4 5 6 7 8 9 10; do
	"$1" ping --endpoint "$3" && break
	sleep 0.2
done
kill "$server"
wait "$server"
END
if unshare -rn ip link set lo up 2>/dev/null; then
	for listen in "tcp://[::1]:7711" "tcp://[::]:7711" "tcp://*:7711"; do
		check "$listen serves IPv6" ends_with 0 "answered in" unshare -rn sh "$tap_dir/serve_v6" "$kvscout" "$kvscoutd" "tcp://[::1]:7711" "$listen" v6
	done
else
	skip "IPv6 alone" "no network namespace, or no ip(8)"
fi
check "* serves IPv4, too" ends_with 0 "answered in" sh "$tap_dir/serve_v6" "$kvscout" "$kvscoutd" tcp://127.0.0.1:7712 "tcp://*:7712" v4
check "a name is looked up" ends_with 0 "answered in" sh "$tap_dir/serve_v6" "$kvscout" "$kvscoutd" tcp://localhost:7713 tcp://localhost:7713 v4

# A watch goes on when the server is started anew: three sheets at least, one of each server.
start watched --listen "ipc://$tap_dir/watched.sock"
"$kvscout" status --json --watch 0.2 --endpoint "$endpoint" >"$tap_dir/watch" 2>"$tap_dir/watch.err" &
watch=$!
epochs() {
	test "$(grep -o '"epoch": "[0-9a-f]*"' "$tap_dir/watch" | sort -u | wc -l)" -eq "$1"
}
check "status --watch asks the first server" wait_until epochs 1
check "the first server ends" stop
check "what is missed is said" wait_until grep -q . "$tap_dir/watch.err"
start watched --listen "ipc://$tap_dir/watched.sock"
check "and the next one is asked, too" wait_until epochs 2
kill "$watch"
check "the second server ends" stop

"$kvscoutd" --curve-keygen "$tap_dir/server.key" >"$tap_dir/server.public"
"$kvscoutd" --curve_keygen "$tap_dir/client.key" >"$tap_dir/clients"
"$kvscoutd" --curve-keygen "$tap_dir/stranger.key" >/dev/null
start keys --listen tcp://127.0.0.1:0 --curve-secret-file "$tap_dir/server.key" --curve-clients-file "$tap_dir/clients"
check "ping with the server's own key" ends_with 0 "answered in" "$kvscout" ping --endpoint "$endpoint" \
	--curve-secret-file "$tap_dir/server.key"
check "ping with a key of its list" ends_with 0 "answered in" "$kvscout" ping --endpoint "$endpoint" \
	--curve-secret-file "$tap_dir/client.key" --curve-server-key "$(cat "$tap_dir/server.public")"
check "a key that is not listed is told at once" ends_with 3 "does not list this key" timeout 1 "$kvscout" ping --endpoint "$endpoint" \
	--curve-secret-file "$tap_dir/stranger.key" --curve-server-key "$(cat "$tap_dir/server.public")"
check "ping without a key has no answer" ends_with 3 "CURVE keys" "$kvscout" ping --endpoint "$endpoint"
check "the server's key alone is no use" ends_with 2 "needs --curve-secret-file" "$kvscout" ping --endpoint "$endpoint" \
	--curve-server-key "$(cat "$tap_dir/server.public")"
check "a server with keys ends with 0" stop

echo "$(cat "$tap_dir/clients") engine team/*" >"$tap_dir/rights"
start rights --listen tcp://127.0.0.1:0 --curve-secret-file "$tap_dir/server.key" --curve-clients-file "$tap_dir/clients" \
	--curve-rights-file "$tap_dir/rights"
as_engine=$tap_dir/as_engine
echo "exec '$kvscout' \"\$@\" --endpoint $endpoint --curve-secret-file '$tap_dir/client.key' --curve-server-key '$(cat "$tap_dir/server.public")'" >"$as_engine"
check "an engine's key may not drop" ends_with 1 "this key is an engine's: dropping by name is the operator's" sh "$as_engine" clear --namespace team/a
check "and the log names it" wait_until grep -qF "DROP of a peer without HELLO refused (RIGHTS): this key is an engine's: dropping by name is the operator's (key $(cat "$tap_dir/clients"))" "$tap_dir/rights.log"
check "it may ask how the server is" ends_with 0 "server     $endpoint, up " sh "$as_engine" status
echo wrong >"$tap_dir/rights"
kill -HUP "$server"
check "SIGHUP with a wrong file changes nothing" wait_until grep -q "SIGHUP: not applied: curve_rights_file .*line 1: must be" "$tap_dir/rights.log"
check "nor may the key list peers" ends_with 1 "this key is an engine's: listing peers and tenants is the operator's" sh "$as_engine" peers
echo "$(cat "$tap_dir/clients") operator" >"$tap_dir/rights"
kill -HUP "$server"
check "SIGHUP makes the key an operator's" wait_until sh "$as_engine" peers
check "a server with rights ends with 0" stop

# completed WORDS...: what bash offers for the last one.
completed() {
	# shellcheck disable=SC2016 # for the inner shell
	bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvscout; echo "${COMPREPLY[*]}"' bash "$completion" "$@"
}
if command -v bash >/dev/null; then
	check "bash completes a command" test "$(completed kvscout pe)" = peers
	check "bash completes an option" test "$(completed "$kvscout" clear --na)" = --namespace
	check "bash completes a file" test "$(completed "$kvscout" lookup --tokens-file "$tap_dir/server.p")" = "$tap_dir/server.public"
else
	skip "bash completes" "no bash"
fi
finish
