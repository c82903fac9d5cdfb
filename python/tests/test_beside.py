# SPDX-License-Identifier: Apache-2.0
"""Other libraries in the process, above all another libzmq (pyzmq's): each calls its own, in both orders of import."""

import importlib.util
import subprocess
import sys
import unittest

import rig

# Both libraries at work at the same time, each with threads, exceptions and CURVE of its own. argv: endpoint, then modules in the order
# of their import.
PROGRAM = """
import importlib, sys, time
modules = {name: importlib.import_module(name) for name in sys.argv[2:]}
kvscout, zmq = modules["kvscout"], modules["zmq"]
client = kvscout.Client(endpoint=sys.argv[1], namespace="beside", chunk_tokens=16, lookup_timeout_ms=60000)
client.wait_ready(60000)
context = zmq.Context()
public, secret = zmq.curve_keypair()
router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
router.curve_server, router.curve_secretkey = True, secret
dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
dealer.curve_serverkey = public
port = router.bind_to_random_port("tcp://127.0.0.1")
dealer.connect("tcp://127.0.0.1:%d" % port)
for i in range(100):
    client.try_lookup(str(i), [i.to_bytes(32, "little")], 17)
    dealer.send(b"%d" % i)
    sender, frame = router.recv_multipart()
    router.send_multipart([sender, frame])
    assert dealer.recv() == b"%d" % i
    until = time.monotonic() + 300
    while (hit := client.poll(str(i))) is None:
        assert time.monotonic() < until
    assert hit.reason == "miss", hit
    client.finish(str(i))
try:
    dealer.connect("nonsense://")
    raise SystemExit("accepted")
except zmq.ZMQError:
    pass
try:
    kvscout.Client(endpoint="nonsense://", namespace="x")
    raise SystemExit("accepted")
except kvscout.KVScoutError:
    pass
dealer.close(0)
router.close(0)
context.term()
client.try_lookup("after", [bytes(32)], 17)
client.close()
print("both worked")
"""


def setUpModule():
    if importlib.util.find_spec("zmq") is None:
        raise unittest.SkipTest("pyzmq is not installed")
    global server
    server = rig.ServerProcess()


def tearDownModule():
    server.stop()


class Beside(unittest.TestCase):
    def run_with(self, *modules):
        done = subprocess.run([sys.executable, "-c", PROGRAM, server.endpoint, *modules], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, timeout=rig.LIMIT_S)
        self.assertEqual((done.returncode, done.stdout.strip().splitlines()[-1:]), (0, ["both worked"]), done.stdout)

    def test_pyzmq_first(self):
        self.run_with("zmq", "kvscout")

    def test_pyzmq_second(self):
        self.run_with("kvscout", "zmq")

    def test_torch_first(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        self.run_with("torch", "zmq", "kvscout")

    def test_vllm_first(self):
        if importlib.util.find_spec("vllm") is None:
            self.skipTest("vLLM is not installed")
        self.run_with("vllm", "zmq", "kvscout")


if __name__ == "__main__":
    unittest.main()
