# SPDX-License-Identifier: Apache-2.0
"""What a package carries with it: encryption, metrics and Redis are built in, and the console scripts run."""

import array
import ctypes.util
import hashlib
import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from unittest import mock

import kvscout
import rig

SCRIPTS = ["kvscout", "kvscoutd", "kvscout-latency", "kvscout-replay"]


class Process:
    """A server with options of its own; `line` is what it printed when it served."""

    def __init__(self, test, *options):
        self.process = subprocess.Popen([*rig.DIES_WITH_PARENT, rig.server_program(), "--l1_bytes", "64Mi", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.end)
        self.line = self.process.stdout.readline()
        test.assertRegex(self.line, "^kvscoutd: ready on ")
        self.endpoint = self.line.split()[-1]

    def logged(self, pattern):
        """The first match in its log; reads on until there is one."""
        for line in self.process.stderr:
            found = re.search(pattern, line)
            if found:
                return found
        raise AssertionError(f"no line of the log matches {pattern!r}")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def needs(part):
    """What the build options leave out of a build tree, which says so in the environment; a wheel has all."""
    return unittest.skipIf(part in os.environ.get("KVSCOUT_TEST_WITHOUT", "").split(), f"built without {part}")


class BuiltIn(unittest.TestCase):
    def test_lookups_cross_an_encrypted_connection_and_a_strangers_key_is_refused(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        keys = {}
        for name in ("server", "client", "stranger"):
            keys[name] = subprocess.run([rig.server_program(), "--curve-keygen", f"{folder.name}/{name}"], check=True,
                                        stdout=subprocess.PIPE, text=True).stdout.split()[-1]
        with open(f"{folder.name}/clients", "w", encoding="ascii") as file:
            file.write(keys["client"] + "\n")
        server = Process(self, "--listen", "tcp://127.0.0.1:0", "--curve_secret_file", f"{folder.name}/server",
                         "--curve_clients_file", f"{folder.name}/clients")
        config = {"endpoint": server.endpoint, "namespace": "curve", "chunk_tokens": 16, "curve_server_key": keys["server"],
                  "lookup_timeout_ms": 60000}
        with kvscout.Client(curve_secret_file=f"{folder.name}/client", **config) as client:
            client.wait_ready(60000)
            client.try_lookup("r", [bytes(32)], 17)
            hit = rig.wait_for(lambda: client.poll("r"), what="the answer")
            self.assertEqual((hit.tokens, hit.reason), (0, "miss"))
        with kvscout.Client(curve_secret_file=f"{folder.name}/stranger", **config) as client:
            with self.assertRaises(kvscout.KVScoutError) as caught:
                client.wait_ready(60000)
            self.assertIn(caught.exception.name, ("SCOUT_ERR_PERMISSION", "SCOUT_ERR_UNREACHABLE"))

    @needs("metrics")
    def test_the_server_serves_metrics(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        server = Process(self, "--listen", f"ipc://{folder.name}/s", "--metrics", "127.0.0.1:0")
        url = server.logged(r"metrics on (http://\S+)")[1]
        with urllib.request.urlopen(url, timeout=rig.LIMIT_S) as answer:
            self.assertEqual(answer.status, 200)
            self.assertIn(b"kvscout_", answer.read())

    def asked_first(self, url, environment=()):
        """What a server with L2 at @url, which has a place for a port, sends there first. There is nobody who answers."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        asked = []

        def answer():
            with listener.accept()[0] as peer:
                peer.settimeout(rig.LIMIT_S)
                asked.append(peer.recv(4096))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        with mock.patch.dict(os.environ, environment):
            Process(self, "--listen", f"ipc://{folder.name}/s", "--l2", url % listener.getsockname()[1])
        thread.join(rig.LIMIT_S)
        return asked[0]

    @needs("redis")
    def test_the_server_speaks_to_redis(self):
        self.assertRegex(self.asked_first("redis://127.0.0.1:%d"), rb"^\*\d+\r\n\$\d+\r\n[A-Z]+\r\n")

    @needs("s3")
    @unittest.skipUnless(ctypes.util.find_library("curl"), "this host has no libcurl")
    def test_the_server_speaks_to_s3(self):
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        asked = self.asked_first("s3://bucket/prefix?lookup=index&endpoint=http://127.0.0.1:%d", keys)
        self.assertRegex(asked, rb"(?s)^GET /bucket\S* HTTP/1.1\r\n.*AWS4-HMAC-SHA256 Credential=a/")


class Installed(unittest.TestCase):
    """Only where the package was installed by pip."""

    def setUp(self):
        try:
            self.version = importlib.metadata.version("kvscout")
        except importlib.metadata.PackageNotFoundError:
            self.skipTest("kvscout is not installed: this is the build tree")

    def test_the_version_is_the_distributions(self):
        self.assertEqual(kvscout.__version__, self.version)

    def test_hashes_take_the_instructions_of_the_cpu(self):
        """Beside hashlib's SHA-256 of as many bytes: without the CPU's instructions it takes three to four times as long."""
        tokens, per_block, bytes_of_token = 1 << 16, 1024, 5  # what a token above 65535 takes
        ids = array.array("I", [1 << 16]) * tokens
        text = bytes(tokens * bytes_of_token)

        def cost(work):
            """The least of several runs, in CPU time of this thread: other processes do not count."""
            costs = []
            for _ in range(20):
                began = time.thread_time()
                work()
                costs.append(time.thread_time() - began)
            return min(costs)

        ours, floor = cost(lambda: kvscout.hash_blocks(ids, per_block)), cost(lambda: hashlib.sha256(text).digest())
        self.assertLess(ours, 2 * floor)

    @unittest.skipIf(kvscout._kvscout.cuda_problem() is None, "there is a driver for CUDA")
    def test_a_machine_without_a_driver_is_told_so(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        endpoint = f"ipc://{folder.name}/no-server"  # it is not asked
        with self.assertRaisesRegex(kvscout.KVScoutError, "no driver .libcuda.so.1.; install NVIDIA's driver 525 or newer"):
            kvscout.Worker(endpoint=endpoint, chunk_tokens=16, backend="cuda")
        with kvscout.Worker(endpoint=endpoint, chunk_tokens=16) as worker:
            with self.assertRaisesRegex(kvscout.KVScoutError, "copies plain memory only, no GPU's"):
                worker.register([(1 << 12, 64, 64)], 16, n_blocks=4)  # nothing is mapped there

    def test_vllm_finds_the_connectors_registration_which_never_raises(self):
        (found,) = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "kvscout"]
        found.load()()

    def test_each_console_script_becomes_the_program_beside_the_extension(self):
        for name in SCRIPTS:
            with self.subTest(name):
                script = os.path.join(os.path.dirname(sys.executable), name)
                done = subprocess.run([script, "--help"], stdout=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, 0)
                self.assertIn(name, done.stdout)

    def test_a_script_passes_arguments_and_status(self):
        script = os.path.join(os.path.dirname(sys.executable), "kvscoutd")
        done = subprocess.run([script, "--no-such-key", "1"], stderr=subprocess.PIPE, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no-such-key", done.stderr)

    def test_a_program_that_is_missing_is_told(self):
        folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.addCleanup(folder.cleanup)
        shutil.copy(os.path.join(os.path.dirname(kvscout.__file__), "_programs.py"), folder.name)
        done = subprocess.run([sys.executable, "-c", "import _programs; _programs.kvscoutd()"], cwd=folder.name,
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"kvscoutd: cannot run {folder.name}/kvscoutd", done.stderr)


if __name__ == "__main__":
    unittest.main()
