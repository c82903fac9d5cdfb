#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# with_server.sh KVSCOUTD COMMAND [ARGS...]: start kvscoutd on a private ipc endpoint, run COMMAND ARGS ENDPOINT, stop the
# server by SIGTERM, and fail unless both ended well. The command's output (TAP) is passed on. KVSCOUTD_CONFIG may name a config
# file, which overrides that endpoint.
set -u
kvscoutd=$1
shift
dir=$(mktemp -d "${TMPDIR:-/tmp}/kvscout-test-XXXXXX") || exit 1
server=
cleanup()
{
	[ -z "$server" ] || kill -KILL "$server" 2>/dev/null
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# A fifo, so that waiting for the ready line is a blocking read and not a loop.
mkfifo "$dir/ready"
"$kvscoutd" --listen "ipc://$dir/kvscout.sock" --l1_bytes 16Mi ${KVSCOUTD_CONFIG:+--config "$KVSCOUTD_CONFIG"} \
	>"$dir/ready" 2>"$dir/log" &
server=$!
read -r line <"$dir/ready" || line=
case $line in
"kvscoutd: ready on "*) endpoint=${line#kvscoutd: ready on } ;;
*)
	echo "Bail out! kvscoutd did not start: $line"
	sed 's/^/# /' "$dir/log"
	exit 1
	;;
esac

"$@" "$endpoint"
status=$?
kill -TERM "$server"
wait "$server"
stopped=$?
server=
if [ "$stopped" -ne 0 ]; then
	echo "Bail out! kvscoutd ended with $stopped after SIGTERM"
	sed 's/^/# /' "$dir/log"
	exit 1
fi
exit "$status"
