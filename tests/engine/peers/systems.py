# SPDX-License-Identifier: Apache-2.0
"""The systems that are compared: for each one its server, and the engine's configuration. All listen on loopback or in
a folder."""

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time

START_S = 60
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
MEMORY_GB = 3


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def wait_for_port(port, process, log):
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.5)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"no server listens on port {port}; its log is {log}")


class System:
    """No connector: nothing to start, nothing to tell."""

    name = "none"
    title = "no connector"

    def __init__(self, folder, options):
        self.folder = folder
        self.options = options
        self.log = os.path.join(options.logs, f"{self.name}-server.log")
        self.server = None

    def start(self):
        pass

    def transfer(self):
        return None

    def environment(self):
        return {}

    def _run(self, command, **more):
        with open(self.log, "wb") as log:
            self.server = subprocess.Popen(
                [*DIES_WITH_PARENT, *command], stderr=log, stdout=more.pop("stdout", log), start_new_session=True, **more
            )

    @property
    def pids(self):
        return [self.server.pid] if self.server is not None and self.server.poll() is None else []

    def kill(self):
        self.server.kill()
        self.server.wait()

    def stop(self):
        if self.pids:
            self.server.terminate()
            try:
                self.server.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class KVScout(System):
    name = "kvscout"
    title = "kvscout"
    keys = ()  # of the server, beside its memory
    extra = {}  # keys of the connector

    def start(self):
        self.endpoint = f"ipc://{self.folder}/{self.name}.sock"
        command = [self.options.kvscoutd, "--listen", self.endpoint, "--l1_bytes", f"{MEMORY_GB}Gi", *self.keys]
        self._run(command, stdout=subprocess.PIPE)
        readable, _, _ = select.select([self.server.stdout], [], [], START_S)
        line = self.server.stdout.readline().decode() if readable else ""
        if "ready" not in line:
            raise RuntimeError(f"kvscoutd did not start: {line!r}; its log is {self.log}")

    def transfer(self):
        extra = {"endpoint": self.endpoint, **self.extra, **json.loads(self.options.extra)}
        return {
            "kv_connector": "KVScoutConnector",
            "kv_role": "kv_both",
            "kv_connector_module_path": "kvscout.vllm",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": extra,
        }

    def environment(self):
        return {"PYTHONPATH": self.options.package}


class KVScoutPrealloc(KVScout):
    """The pool is there before the first prompt."""

    name = "kvscout-prealloc"
    title = "kvscout, prealloc=on"
    keys = ("--prealloc", "on")


class KVScoutWaits(KVScout):
    """A step waits for the answers to its new lookups."""

    name = "kvscout-waits"
    title = "kvscout, step_wait_us=500"
    extra = {"step_wait_us": 500}


class KVScoutNeverWaits(KVScout):
    name = "kvscout-never-waits"
    title = "kvscout, step_wait_us=0"
    extra = {"step_wait_us": 0}


class Offloading(System):
    """vLLM's own: its tiering manager with its region of host memory, behind a worker of the test, because vLLM's own refuses a CPU."""

    name = "offloading"
    title = "vLLM's offloading"

    def transfer(self):
        return {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "spec_name": "CpuTieringSpec", "spec_module_path": "tier_spec", "cpu_bytes_to_use": MEMORY_GB << 30,
                "offload_prompt_only": False,
            },
        }


class Mooncake(System):
    name = "mooncake"
    title = "Mooncake store"

    def start(self):
        import mooncake

        program = os.path.join(os.path.dirname(mooncake.__file__), "mooncake_master")
        self.port = free_port()
        command = [
            program,
            "-rpc_address=127.0.0.1",
            f"-rpc_port={self.port}",
            "-metrics_host=127.0.0.1",
            f"-metrics_port={free_port()}",
        ]
        self._run(command)
        wait_for_port(self.port, self.server, self.log)
        self.config = os.path.join(self.folder, "mooncake.json")
        with open(self.config, "w") as file:
            json.dump(
                {
                    "mode": "embedded",
                    "metadata_server": "P2PHANDSHAKE",
                    "master_server_address": f"127.0.0.1:{self.port}",
                    "protocol": "tcp",
                    "device_name": "",
                    "global_segment_size": f"{MEMORY_GB}GB",
                    "local_buffer_size": "256MB",
                },
                file,
            )

    def transfer(self):
        return {
            "kv_connector": "MooncakeStoreConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"load_async": True},
        }

    def environment(self):
        return {"MOONCAKE_CONFIG_PATH": self.config}


class LMCache(System):
    name = "lmcache"
    title = "LMCache (MP)"

    def start(self):
        self.port = free_port()
        self._run(
            [
                sys.executable,
                "-m",
                "lmcache.v1.multiprocess.server",
                "--host",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--supported-transfer-mode",
                "engine_driven",
                "--shm-name",
                f"kvscout-peers-{os.getpid()}",
                "--l1-size-gb",
                str(MEMORY_GB),
                "--eviction-policy",
                "LRU",
                "--chunk-size",
                str(self.options.block_tokens),
                "--disable-observability",
                "--disable-metrics",
            ]
        )
        wait_for_port(self.port, self.server, self.log)

    def transfer(self):
        return {
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_module_path": "lmcache.integration.vllm.lmcache_mp_connector",
            "kv_connector_extra_config": {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": self.port},
        }


USUAL = (System, KVScout, Mooncake, LMCache)
SYSTEMS = {each.name: each for each in (*USUAL, KVScoutPrealloc, KVScoutWaits, KVScoutNeverWaits, Offloading)}
