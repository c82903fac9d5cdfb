#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvscoutd as its operator meets it: its counters, a reader of its output that leaves, what it says and ends with. A thread of its own
# writes its log: a line may come after what it tells of.
# usage: test_server_kvscoutd.sh KVSCOUTD
. "$(dirname "$0")/../tap.sh"
kvscoutd=$1
server=
# shellcheck disable=SC2154 # of tap.sh
trap '[ -z "$server" ] || kill -KILL "$server"; rm -rf "$tap_dir"' EXIT

# start NAME ARGS...: a server on $tap_dir/NAME.sock or what ARGS say; $endpoint is where.
start() {
	start_name=$1
	shift
	serve "$start_name" "$kvscoutd" --listen "ipc://$tap_dir/$start_name.sock" --l1_bytes 16Mi "$@"
}

start plain
check "--status prints counters" ends_with 0 "l1.bytes_limit 16777216" "$kvscoutd" --status "$endpoint"
# shellcheck disable=SC2016 # for the inner shell
check "--status to a full disk fails" ends_with 1 "could not be written" \
	sh -c '"$1" --status "$2" >/dev/full' full "$kvscoutd" "$endpoint"
check "a second server is told who has the path" ends_with 4 "held by a living server, pid $server" \
	"$kvscoutd" --listen "$endpoint"
freeze
check "--status of a stopped server ends" ends_with 1 "no answer within 2 s" "$kvscoutd" --status "$endpoint"
kill -CONT "$server"
check "SIGTERM ends it with 0" stop
check "--status of no server ends" ends_with 1 "No such file or directory" "$kvscoutd" --status "$endpoint"
check "a port of another program is no server" ends_with 1 "cannot be bound: Address already in use" sh -c '
	exec python3 -c "import socket, subprocess, sys
with socket.create_server((\"127.0.0.1\", 0)) as s:
    sys.exit(subprocess.call([sys.argv[1], \"--listen\", \"tcp://127.0.0.1:%d\" % s.getsockname()[1]]))" "$1"' port "$kvscoutd"
check "--l2 with commas is told how lists are written" ends_with 2 "write several URLs with blanks" "$kvscoutd" --l2 fs:///a,fs:///b
check "--status of what is no endpoint is refused" ends_with 2 "nonsense" "$kvscoutd" --status nonsense
check "a value that only the start can judge is a wrong value, too" ends_with 2 'scheme "ftp": must be one of' "$kvscoutd" --l2 ftp://a/b
check "so is a pool beyond the machine's memory" ends_with 2 "is larger than the memory" "$kvscoutd" --l1_bytes 512Ti
check "so is a wrong place for metrics" ends_with 2 metrics "$kvscoutd" --metrics nonsense
check "a folder that is not there is none" ends_with 1 "No such file or directory" "$kvscoutd" --listen ipc:///no/such/folder/s

check "an unknown option is named as it was written" ends_with 2 "unknown option \"--no-such-key\"" "$kvscoutd" --no-such-key=1
check "--instance is not for hands" ends_with 1 "To start a server by hand, leave --instance out" "$kvscoutd" --instance "$tap_dir"
# Each key is given what is a URL with a password in another one; and all that a server with such an L2 says.
no_key_shows_a_password() {
	for key in $("$kvscoutd" --help | sed -n 's/^  --\([a-z0-9-]*\).*/\1/p'); do
		echo "$key = redis://user:PLANTED@127.0.0.1:1" >"$tap_dir/planted.conf"
		for option in "--$key=redis://user:PLANTED@127.0.0.1:1" "--config=$tap_dir/planted.conf"; do
			"$kvscoutd" --listen "ipc://$tap_dir/planted.sock" --l1_bytes 16Mi "$option" --idle_exit_s 1
		done
	done >"$tap_dir/planted.txt" 2>&1
	grep -q '127.0.0.1:1' "$tap_dir/planted.txt" && ! grep PLANTED "$tap_dir/planted.txt"
}
check "no key shows a password that it was given" no_key_shows_a_password
start planted --l2 redis://user:PLANTED@127.0.0.1:1 --metrics 127.0.0.1:0 --log-level debug
# nothing_shows NAME SECRET [OPTION...]: STATUS (asked with OPTION), the metrics page, the log and the command line of the server NAME.
nothing_shows() {
	name=$1 secret=$2 page=$(sed -n 's/.*metrics on \(http:[^ ]*\).*/\1/p' "$tap_dir/$1.log")
	shift 2
	"$kvscoutd" --status "$endpoint" "$@" >"$tap_dir/shown.txt" &&
		python3 -c 'import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())' "$page" >>"$tap_dir/shown.txt" &&
		grep -q '^l1\.chunks ' "$tap_dir/shown.txt" && grep -q '^kvscout_up\|^kvscout_loop_steps_total' "$tap_dir/shown.txt" &&
		! grep -aF "$secret" "$tap_dir/shown.txt" "$tap_dir/$name.log" "/proc/$server/cmdline"
}
check "nor does a server with that L2: its STATUS, metrics, log and command line" nothing_shows planted PLANTED
check "which ends" stop
start idle --idle_exit_s 1
check "without a peer it ends with 0 by itself" wait "$server"
server=
check "and says why" grep -q "no peer for idle_exit_s = 1 seconds" "$tap_dir/idle.log"

# SIGHUP applies the shares of the file, or says why not, and the server serves on.
says() {
	wait_until grep -qF "$1" "$tap_dir/shares.log"
}
echo "tenant_share = chat:40%" >"$tap_dir/shares.conf"
start shares --config "$tap_dir/shares.conf" --namespace_share m:30%
echo "tenant_share = chat:20% batch:10%" >"$tap_dir/shares.conf"
kill -HUP "$server"
check "SIGHUP applies tenant_share of the file" says "tenant_share = chat:20% batch:10%"
check "and namespace_share of the command line" says "namespace_share = m:30%"
echo "tenant_share = chat:70% batch:40%" >"$tap_dir/shares.conf"
kill -HUP "$server"
check "a wrong sum is not applied" says "not applied: tenant_share: the shares add up to 110%: must be 100% or less"
rm "$tap_dir/shares.conf"
kill -HUP "$server"
check "nor is a file that is gone" says "shares.conf"
mkfifo "$tap_dir/shares.conf"
hang_up() {
	kill -HUP "$server"
	grep -q "still being read" "$tap_dir/shares.log"
}
check "a pipe that nobody writes keeps no signal waiting" wait_until hang_up
check "it serves on" ends_with 0 "l1.bytes_limit 16777216" "$kvscoutd" --status "$endpoint"
check "and ends with 0" stop
# Where the tests run under nohup, every process ignores SIGHUP from its start.
plain_kvscoutd=$kvscoutd
# shellcheck disable=SC2016 # for the inner shell
printf '#!/bin/sh\nexec env --default-signal=HUP "%s" "$@"\n' "$plain_kvscoutd" >"$tap_dir/terminal.sh"
chmod +x "$tap_dir/terminal.sh"
kvscoutd=$tap_dir/terminal.sh
start terminal
kvscoutd=$plain_kvscoutd
kill -HUP "$server"
hung_up() {
	wait "$server"
	[ $? -eq 129 ]
}
check "without a file, SIGHUP ends it as ever" hung_up
server=

# The ready line goes to a pipe that nobody reads: the reader has left before it is written.
mkfifo "$tap_dir/left"
(: <"$tap_dir/left") &
exec 9>"$tap_dir/left"
wait
"$kvscoutd" --listen "ipc://$tap_dir/left.sock" --l1_bytes 16Mi >&9 2>"$tap_dir/left.log" &
server=$!
exec 9>&-
# shellcheck disable=SC2016 # for the inner shell
check "a reader that left does not end it" timeout 60 sh -c 'until "$1" --status "$2"; do :; done' \
	until "$kvscoutd" "ipc://$tap_dir/left.sock"
check "it is told in the log" wait_until grep -q "the ready line could not be written" "$tap_dir/left.log"
check "and it ends as ever" stop

# An operator's taskset (or CPUAffinity= of systemd) is kept: all threads have the CPUs that the process was started with.
masks() {
	sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/"$1"/task/*/status | sort -u
}
if command -v taskset >/dev/null; then
	cpu=$(masks $$ | sed 's/[-,].*//')
	# shellcheck disable=SC2016 # for the inner shell
	printf '#!/bin/sh\nexec taskset -c %s "%s" "$@"\n' "$cpu" "$plain_kvscoutd" >"$tap_dir/pinned"
	chmod +x "$tap_dir/pinned"
	kvscoutd=$tap_dir/pinned
	start pinned
	check "it keeps the CPUs that it was started with" test "$(masks "$server")" = "$cpu"
	check "and ends as ever" stop
	kvscoutd=$plain_kvscoutd
else
	skip "it keeps the CPUs that it was started with" "no taskset"
fi

"$kvscoutd" --curve-keygen "$tap_dir/server.key" >"$tap_dir/public"
: >"$tap_dir/clients"
start keys --listen tcp://127.0.0.1:0 --curve_secret_file "$tap_dir/server.key" --curve_clients_file "$tap_dir/clients" \
	--metrics 127.0.0.1:0 --log-level debug
check "an empty list of keys is a warning" wait_until grep -q "warn server: CURVE: .* 0 clients may connect" "$tap_dir/keys.log"
check "--status with the server's own key" ends_with 0 "curve.refused 0" \
	"$kvscoutd" --status "$endpoint" --curve_secret_file "$tap_dir/server.key"
check "nothing shows what a file of keys holds" nothing_shows keys "$(cat "$tap_dir/server.key")" --curve_secret_file "$tap_dir/server.key"
check "--status without it ends" ends_with 1 "CURVE keys" "$kvscoutd" --status "$endpoint"
"$kvscoutd" --curve-keygen "$tap_dir/other.key" >"$tap_dir/public"
check "--status with another one ends" ends_with 1 "is this its public key?" \
	"$kvscoutd" --status "$endpoint" --curve_secret_file "$tap_dir/other.key"
check "a server with keys ends with 0" stop
finish
