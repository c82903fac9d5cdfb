# SPDX-License-Identifier: Apache-2.0
"""Ends of objects: close, garbage, interpreter exit, fork, spawn."""

import gc
import multiprocessing
import os
import subprocess
import sys
import unittest
import warnings

import kvscout
import rig

HERE = "ipc:///tmp/kvscout-nobody-listens-here"

MAKE = {
    "Client": lambda: kvscout.Client(endpoint=HERE),
    "Server": lambda: kvscout.Server(l1_bytes="16Mi"),
}


def in_child(action):
    """Run a program: (exit status, stdout, stderr). It leaves as any program does: through the interpreter's exit."""
    code = f"""
import logging, os, sys, kvscout
logging.getLogger("kvscout").setLevel(logging.ERROR)  # a peer that leaves early may be worth a warning
{action}
"""
    ended = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=rig.LIMIT_S)
    return ended.returncode, ended.stdout, ended.stderr


class Garbage(unittest.TestCase):
    def test_an_object_that_nobody_closed_is_told_and_closed(self):
        for name, make in MAKE.items():
            with self.subTest(name), warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                thing = make()
                del thing
                gc.collect()
                self.assertEqual([w.category for w in caught], [ResourceWarning])
                self.assertIn(f"unclosed kvscout.{name}", str(caught[0].message))
                make().close()  # its name is free again

    def test_a_closed_one_is_not_told(self):
        for name, make in MAKE.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("error")
                thing = make()
                thing.close()
                thing.close()
                del thing
                gc.collect()

    def test_a_constructor_that_failed_leaves_nothing(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaises(kvscout.KVScoutError):
                kvscout.Server(listen="ipc:///nowhere/at/all/s")
            with self.assertRaises(kvscout.KVScoutError):
                kvscout.Server(l1_bytes="1Pi")
            with kvscout.Server(l1_bytes="16Mi") as server:
                with self.assertRaises(kvscout.KVScoutError) as caught:
                    kvscout.Server(listen=server.endpoint, l1_bytes="16Mi")
                self.assertEqual(caught.exception.name, "SCOUT_ERR_IN_USE")
            gc.collect()


class Server(unittest.TestCase):
    def test_it_says_where_it_is_and_ends_with_its_block(self):
        with kvscout.Server(listen="tcp://127.0.0.1:0", l1_bytes="16Mi") as server:
            self.assertRegex(server.endpoint, r"^tcp://127\.0\.0\.1:[1-9]\d*$")
            self.assertFalse(server.closed)
        self.assertTrue(server.closed)
        self.assertRegex(server.endpoint, "^tcp://")
        server.stop()
        with self.assertRaises(kvscout.ClosedError):
            server.__enter__()

    def test_bad_configuration_names_key_value_and_what_is_allowed(self):
        with self.assertRaisesRegex(kvscout.ConfigError, r'Server\(\): eviction: "fifo2" is none of'):
            kvscout.Server(eviction="fifo2")
        with self.assertRaisesRegex(TypeError, r"Server\(\): l1_bytes must be a str, int, bool, path or None, not 0\.5"):
            kvscout.Server(l1_bytes=0.5)


class Exit(unittest.TestCase):
    def test_everything_may_be_open(self):
        code = """
server = kvscout.Server(l1_bytes="16Mi")
keep = [kvscout.Client(endpoint=server.endpoint) for _ in range(4)]
"""
        self.assertEqual(in_child(code), (0, "", ""))

    def test_in_a_circle_too(self):
        code = """
class Engine:
    pass
engine = Engine()
engine.server = kvscout.Server(l1_bytes="16Mi")
engine.client = kvscout.Client(endpoint=engine.server.endpoint)
engine.me = engine
sys.engine = engine
"""
        self.assertEqual(in_child(code), (0, "", ""))

    def test_an_object_made_at_exit_is_refused(self):
        code = """
import atexit
@atexit.register  # before kvscout's own, so it runs after it
def late():
    try:
        kvscout.Client(endpoint="ipc:///tmp/nobody")
    except kvscout.StateError as error:
        print(error)
keep = kvscout.Client(endpoint="ipc:///tmp/nobody")
"""
        status, out, err = in_child(code)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Client(): the interpreter is exiting", out)

    def test_threads_that_are_still_at_it_do_not_hold_the_exit(self):
        code = """
import threading
server = kvscout.Server(l1_bytes="16Mi")
def busy():
    while True:
        kvscout.Client(endpoint=server.endpoint).close()
for _ in range(3):
    threading.Thread(target=busy, daemon=True).start()
"""
        for _ in range(5):
            status, out, err = in_child(code)
            self.assertEqual((status, out), (0, ""), err)


@rig.forks
class Fork(unittest.TestCase):
    def test_a_child_is_told_and_leaves_normally_and_the_parent_goes_on(self):
        code = """
server = kvscout.Server(l1_bytes="16Mi")
client = kvscout.Client(endpoint=server.endpoint)
pid = os.fork()
if pid == 0:
    try:
        server.__enter__()
    except kvscout.ClosedError as error:
        assert error.name == "SCOUT_ERR_FORKED", error
    else:
        os._exit(3)
    client.close()
    sys.exit(7)
assert os.waitpid(pid, 0)[1] == 7 << 8
pid = os.fork()
if pid == 0:
    server.stop()
    del server, client
    sys.exit(8)
assert os.waitpid(pid, 0)[1] == 8 << 8
kvscout.Client(endpoint=server.endpoint).close()  # it still serves
client.close()
with server:
    server.__enter__()
print("went on")
"""
        self.assertEqual(in_child(code), (0, "went on\n", ""))

    def test_a_child_may_have_objects_of_its_own(self):
        code = """
server = kvscout.Server(l1_bytes="16Mi")
pid = os.fork()
if pid == 0:
    own = kvscout.Server(l1_bytes="16Mi")
    client = kvscout.Client(endpoint=own.endpoint)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
        self.assertEqual(in_child(code), (0, "", ""))


def spawned(queue):
    with kvscout.Server(l1_bytes="16Mi") as server:
        client = kvscout.Client(endpoint=server.endpoint)
        client.close()
        queue.put(server.endpoint)


class Processes(unittest.TestCase):
    def test_every_start_method_of_multiprocessing_works(self):
        server = kvscout.Server(l1_bytes="16Mi")
        for method in ("spawn", "forkserver") + (() if rig.SANITIZED or rig.EMULATED else ("fork",)):  # rig.forks says why
            with self.subTest(method):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                process = context.Process(target=spawned, args=(queue,))
                process.start()
                self.assertRegex(queue.get(timeout=rig.LIMIT_S), "^ipc://")
                process.join(rig.LIMIT_S)
                self.assertEqual(process.exitcode, 0)
        server.stop()

    def test_objects_cannot_be_pickled(self):
        for name, make in MAKE.items():
            with self.subTest(name):
                thing = make()
                with self.assertRaises(TypeError):
                    thing.__reduce_ex__(4)
                thing.close()


if __name__ == "__main__":
    unittest.main()
