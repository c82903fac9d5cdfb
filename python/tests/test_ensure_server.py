# SPDX-License-Identifier: Apache-2.0
"""kvscout.ensure_server(): the server of this host, in a folder of the test's own."""

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import kvscout
from kvscout.vllm import config
from kvscout.vllm.library_keys import IDLE_EXIT_S
from pages import CHUNK_TOKENS, Pages, hashes_of, wait_done
from rig import LIMIT_S, server_program, wait_for


def serves(endpoint):
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(endpoint.removeprefix("ipc://"))
        except OSError:
            return False
        return True


def end(endpoint):
    """Ends the server that listens there, if there is one."""
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(endpoint.removeprefix("ipc://"))
        except OSError:
            return
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not serves(endpoint), what="the server to end")


class EnsureServer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        self.where = {"endpoint": "auto://" + folder.name, "server_program": server_program()}
        self.keys = {"l1_bytes": "64Mi", "idle_exit_s": 60}
        logging.getLogger("kvscout").setLevel(logging.ERROR)
        self.addCleanup(logging.getLogger("kvscout").setLevel, logging.NOTSET)

    def ensure(self, **more):
        endpoint = kvscout.ensure_server(**self.where, **{**self.keys, **more})
        self.addCleanup(end, endpoint)
        return endpoint

    def test_the_first_starts_it_and_the_second_finds_it(self):
        endpoint = self.ensure()
        self.assertRegex(endpoint, "^ipc:///")
        self.assertTrue(serves(endpoint))
        with kvscout.Worker(endpoint=endpoint, chunk_tokens=CHUNK_TOKENS) as worker:
            pages = Pages()
            self.assertTrue(pages.register(worker))
            self.assertTrue(wait_done(worker, worker.store(0, hashes_of("e", 1), range(4))).ok)
            self.assertEqual(kvscout.ensure_server(**self.where), endpoint)

    def test_it_ends_after_idle_exit_s_without_a_peer(self):
        endpoint = self.ensure(idle_exit_s=1)
        wait_for(lambda: not serves(endpoint), what="the server to end without a peer")

    def test_a_signal_ends_the_wait_for_a_server_that_does_not_come(self):
        def on_alarm(number, frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, on_alarm)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        folder = self.where["endpoint"].removeprefix("auto://")
        program = os.path.join(folder, "hangs")
        with open(program, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\nwhile [ -e {folder} ]; do sleep 0.1; done\n")
        os.chmod(program, 0o700)
        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            kvscout.ensure_server(endpoint=self.where["endpoint"], server_program=program, timeout_ms=60000)
        self.assertLess(time.monotonic() - start, 30)

    def test_another_process_finds_it_and_its_end_changes_nothing(self):
        code = f"import kvscout\nprint(kvscout.ensure_server(**{ {**self.where, **self.keys}!r}))"
        ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
        self.assertEqual(ended.returncode, 0)
        endpoint = self.ensure()
        self.assertEqual(ended.stdout.strip(), endpoint)
        client = kvscout.Client(endpoint=endpoint, chunk_tokens=CHUNK_TOKENS, lookup_timeout_ms=60000)
        self.addCleanup(client.close)
        client.wait_ready(60000)
        self.assertEqual(client.wait_lookup("r", hashes_of("none", 1), 100).reason, "miss")

    def test_clients_and_workers_without_an_endpoint_do_it_themselves(self):
        self.ensure()
        with kvscout.Worker(endpoint=self.where["endpoint"], chunk_tokens=CHUNK_TOKENS) as worker:
            self.assertTrue(Pages().register(worker))

    def test_a_server_that_vllm_starts_outlives_a_restart_of_the_engine(self):
        """vLLM makes no client or worker before the model is loaded, which takes minutes."""
        library = config.parse({"endpoint": self.where["endpoint"], "l1_bytes": "64Mi"}, 4).library
        keys = {**library.settings(None), "server_program": self.where["server_program"], "chunk_tokens": CHUNK_TOKENS}
        with kvscout.Worker(**keys) as worker:
            pages = Pages()
            self.assertTrue(pages.register(worker))
            self.assertTrue(wait_done(worker, worker.store(0, hashes_of("e", 1), range(4))).ok)
            endpoint = kvscout.ensure_server(**self.where)
        self.addCleanup(end, endpoint)
        with open(os.path.join(os.path.dirname(endpoint.removeprefix("ipc://")), "server.lock"), encoding="utf-8") as file:
            self.assertIn(f"keys = idle_exit_s={IDLE_EXIT_S} l1_bytes={64 << 20}\n", file.read())
        with kvscout.Client(**keys, lookup_timeout_ms=60000) as client:
            client.wait_ready(60000)
            self.assertEqual(client.wait_lookup("r", hashes_of("e", 1), CHUNK_TOKENS + 1).chunks, 1)

    def test_errors_say_what_was_wrong(self):
        for error, text, more in [
            (kvscout.KVScoutError, r"ensure_server\(\): .*/nowhere/kvscoutd", {"server_program": "/nowhere/kvscoutd"}),
            (kvscout.KVScoutError, r"ensure_server\(\): .*tcp://x", {"endpoint": "tcp://x"}),
            (kvscout.ConfigError, r"ensure_server\(\): .*l1_byte", {"l1_byte": 5}),
            (kvscout.ConfigError, r'ensure_server\(\): timeout_ms: "0" must be 1\.\.3600000', {"timeout_ms": 0}),
            (kvscout.ConfigError, r'l2: "fs:///a fs:///b" must not hold blanks; give several values as a list', {"l2": "fs:///a fs:///b"}),
            (kvscout.ConfigError, r'l2 = "ftp://host/kv": scheme "ftp": must be one of fs', {"l2": "ftp://host/kv"}),
            (kvscout.KVScoutError, r"l1_bytes = \d+ .* is larger than the memory of this machine", {"l1_bytes": "512Ti"}),
            (TypeError, r"l1_bytes must be a str, int, bool, path or None, not 0\.5", {"l1_bytes": 0.5}),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(error, text):
                kvscout.ensure_server(**{**self.where, **more})
        with self.assertRaisesRegex(TypeError, "by name only"):
            kvscout.ensure_server("auto")


if __name__ == "__main__":
    unittest.main()
