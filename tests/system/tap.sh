# SPDX-License-Identifier: Apache-2.0
# TAP for shell tests; to be sourced. A case is "check NAME COMMAND...": it passes when the command succeeds.

tap_count=0
tap_failed=0
tap_dir=$(mktemp -d) || exit 1
trap 'rm -rf "$tap_dir"' EXIT

check() {
	tap_name=$1
	shift
	tap_count=$((tap_count + 1))
	if "$@" >"$tap_dir/case" 2>&1; then
		echo "ok $tap_count - $tap_name"
	else
		tap_failed=$((tap_failed + 1))
		echo "not ok $tap_count - $tap_name"
		sed 's/^/# /' "$tap_dir/case"
	fi
}

skip() {
	tap_count=$((tap_count + 1))
	echo "ok $tap_count - $1 # SKIP $2"
}

finish() {
	echo "1..$tap_count"
	[ "$tap_failed" -eq 0 ]
}

# limited COMMAND...: with a limit for what hangs.
limited() {
	timeout $((120 * ${CK_TIMEOUT_MULTIPLIER:-1})) "$@"
}

# wait_until COMMAND...: wait until it succeeds; fails at that limit.
wait_until() {
	tap_turns=$((12000 * ${CK_TIMEOUT_MULTIPLIER:-1}))
	until "$@"; do
		tap_turns=$((tap_turns - 1))
		if [ $tap_turns -eq 0 ]; then
			echo "this did not become true: $*"
			return 1
		fi
		sleep 0.05
	done
}

# ends_with STATUS TEXT COMMAND...: the command exits with STATUS and says TEXT somewhere.
ends_with() {
	tap_want=$1
	tap_text=$2
	shift 2
	limited "$@" >"$tap_dir/out" 2>&1
	tap_got=$?
	cat "$tap_dir/out"
	if [ "$tap_got" -ne "$tap_want" ]; then
		echo "exit status $tap_got, not $tap_want"
		return 1
	fi
	if ! grep -qF -- "$tap_text" "$tap_dir/out"; then
		echo "nowhere does it say: $tap_text"
		return 1
	fi
}

# serve NAME COMMAND...: start a server by the command; $server is its pid, $endpoint where it serves. The caller's trap ends it.
serve() {
	mkfifo "$tap_dir/$1.ready"
	serve_name=$1
	shift
	"$@" >"$tap_dir/$serve_name.ready" 2>"$tap_dir/$serve_name.log" &
	server=$!
	read -r serve_line <"$tap_dir/$serve_name.ready"
	endpoint=${serve_line#kvscoutd: ready on }
}

# freeze: stop the server so that it answers nothing: kill returns before the last thread has stopped.
freeze() {
	kill -STOP "$server" && wait_until is_frozen
}

is_frozen() {
	! grep -h '^State:' "/proc/$server/task"/*/status | grep -qv 'T (stopped)'
}

stop() {
	kill -TERM "$server"
	wait "$server"
	stop_status=$?
	server=
	return "$stop_status"
}
