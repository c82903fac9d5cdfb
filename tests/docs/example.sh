#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# example.sh KVSCOUTD BIN COMMAND LINE [COMMAND LINE]...: each COMMAND, in a folder of its own with kvscoutd and the folder BIN on PATH, ends with
# status 0 and LINE as its last line. Then the script ends the server that the examples started, whose files are in the same folder.
set -eu
kvscoutd=$(realpath "$1")
bin=$2
shift 2
tmp=$(mktemp -d "${TMPDIR:-/tmp}/kvscout-test-XXXXXX") || exit 1
end_server()
{
	pid=$(sed -n 's/^pid = //p' "$tmp"/kvscout/ipc-*/server.lock 2>/dev/null || true)
	[ -z "$pid" ] || ! kill -TERM "$pid" 2>/dev/null || tail -s 0.1 --pid="$pid" -f /dev/null
	rm -rf "$tmp"
}
trap end_server EXIT; trap 'exit 1' INT TERM
# On a machine with too many builds an answer may take longer than the default of half a second.
export KVSCOUT_LOOKUP_TIMEOUT_MS=60000 XDG_RUNTIME_DIR="$tmp" PATH="${kvscoutd%/*}:$bin:$PATH"
cd "$tmp"
while [ $# -gt 0 ]; do
	sh -eu -c "$1" >out 2>&1 || { cat out; echo "failed: $1"; cat kvscout/ipc-*/kvscoutd.log 2>/dev/null; exit 1; }
	cat out
	[ "$(tail -n 1 out)" = "$2" ] || { echo "expected: $2"; exit 1; }
	shift 2
done
