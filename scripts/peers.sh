# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev engine --peers`: vLLM without a connector, with kvscout, with Mooncake's store and with LMCache, by turns in one run. engine.sh sources
# this file when it is asked for; ENGINE_DIR and engine_install() are there.
#
# build-engine/peers-venv holds the peers, on top of the environment that ./dev engine has.

PEERS_LIST=$ROOT/tests/engine/peers/requirements.txt
PEERS_VENV=$ENGINE_DIR/peers-venv

peers_usage()
{
	cat <<'END'
usage: ./dev engine --peers [--rounds N] [OPTIONS...]    OPTIONS go to tests/engine/peers/compare.py

  ./dev engine --peers                     5 rounds and a kill of each server, 10 minutes on 2 idle cores; up to 12 GB of memory
  ./dev engine --peers --rounds 1 --systems none,kvscout --threads
                                           two of the four, with the CPU time of each thread
  ./dev engine --peers --systems none,kvscout,kvscout-prealloc
                                           kvscout without and with the server's key prealloc

The command prints the table of bench/measurements-record.md, and writes all results to build-engine/peers.json. From that file
bench/scripts/first_token_picture.py makes docs/img/first_token.svg.
END
}

peers_install()
{
	pi_stamp=$(cat "$ENGINE_LIST" "$PEERS_LIST" | cksum)
	if [ -f "$ENGINE_DIR/peers-stamp" ] && [ "$(cat "$ENGINE_DIR/peers-stamp")" = "$pi_stamp" ]; then
		return 0
	fi
	say "engine: installing Mooncake and LMCache into build-engine/peers-venv (0.2 GB, from PyPI)"
	rm -rf "$PEERS_VENV" "$ENGINE_DIR/peers-stamp"
	"$(engine_python)" -m venv "$PEERS_VENV" || not_ready "engine: cannot make an environment in $PEERS_VENV"
	for pi_site in "$PEERS_VENV"/lib/python3.*/site-packages; do
		printf '%s\n' "$ENGINE_DIR/venv/lib/${pi_site#"$PEERS_VENV/lib/"}" >"$pi_site/engine.pth"
	done
	engine_pip 'the peers' "$PEERS_VENV" "$PEERS_LIST" "$ENGINE_DIR/peers-install.log"
	printf '%s\n' "$pi_stamp" >"$ENGINE_DIR/peers-stamp"
}

engine_peers()
{
	case ${1:-} in
	-h | --help)
		peers_usage
		return
		;;
	esac
	# shellcheck disable=SC2086 # lists of names
	need_base $TEST_PACKAGES libibverbs1
	build "$ROOT/build-peers" --buildtype=release -Dtests=disabled -Dwerror=false || return 1
	engine_install || return 1
	peers_install || return 1
	"$PEERS_VENV/bin/python" -B "$ROOT/tests/engine/peers/compare.py" --root "$ENGINE_DIR" --package "$ROOT/build-peers/python" \
		--kvscoutd "$ROOT/build-peers/libserver/daemon/kvscoutd" --json "$ENGINE_DIR/peers.json" "$@"
}
