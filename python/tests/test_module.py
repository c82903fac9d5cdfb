# SPDX-License-Identifier: Apache-2.0
"""The module: errors, configuration, what cannot import it."""

import pathlib
import pickle
import subprocess
import sys
import unittest

import kvscout
import rig

HERE = "ipc:///tmp/kvscout-nobody-listens-here"


class Values(unittest.TestCase):
    """A program's own tests make answers and ends."""

    def test_a_hit(self):
        hit = kvscout.Hit(512, ticket=7, chunks=2, l1_chunks=1, l2_chunks=1)
        self.assertEqual((hit.tokens, hit.ticket, hit.chunks, hit.reason, hit.error, hit.endpoint), (512, 7, 2, "hit", 0, -1))
        self.assertEqual(kvscout.Hit().reason, "miss")
        self.assertEqual(kvscout.Hit(reason="timeout", error=-11, endpoint=1).reason, "timeout")
        with self.assertRaisesRegex(ValueError, "reason must be 'hit', 'miss'.*, not 'late'"):
            kvscout.Hit(reason="late")
        with self.assertRaises(TypeError):
            kvscout.Hit(5, 6)

    def test_a_done(self):
        missing = {0: (1, 2)}
        done = kvscout.Done(5, status=-12, missing=missing, copy_us=3, server_us=4)
        missing[1] = (3,)
        self.assertEqual((done.job, done.kind, done.ok, done.missing, done.total_us), (5, "retrieve", False, {0: (1, 2)}, 7))
        self.assertEqual(done.error.code, -12)
        self.assertTrue(kvscout.Done(kind="store", chunks=4).ok)
        self.assertEqual((kvscout.Done().missing, kvscout.Done().verified), ({}, ()))
        done = kvscout.Done(kind="verify", chunks=2, mismatched=1, verified=({"chunk": 3},))
        self.assertEqual((done.mismatched, done.verified[0]["chunk"]), (1, 3))
        with self.assertRaisesRegex(ValueError, "kind must be 'retrieve', 'store' or 'verify', not 'load'"):
            kvscout.Done(kind="load")
        with self.assertRaises(TypeError):
            kvscout.Done(missing=(1, 2))

    def test_a_repr_has_the_endpoint_and_the_state(self):
        with kvscout.Server(l1_bytes="16Mi") as server:
            self.assertEqual(repr(server), f"<kvscout.Server endpoint='{server.endpoint}' serves>")
            client, worker = kvscout.Client(endpoint=server.endpoint), kvscout.Worker(endpoint=server.endpoint)
            client.wait_ready(60000)
            self.assertEqual(repr(client), f"<kvscout.Client endpoint='{server.endpoint}' connected>")
            rig.wait_for(lambda: repr(worker) == f"<kvscout.Worker endpoint='{server.endpoint}' connected, not registered>")
            with kvscout.Client(endpoint=[server.endpoint, HERE], kv_ranks=2, namespace="two") as both:
                rig.wait_for(lambda: "connected to 1 of 2 servers>" in repr(both))
            client.close()
            worker.close()
            self.assertEqual(repr(client), f"<kvscout.Client endpoint='{server.endpoint}' closed>")
            self.assertEqual(repr(worker), f"<kvscout.Worker endpoint='{server.endpoint}' closed>")
        self.assertTrue(repr(server).endswith(" closed>"))
        with kvscout.Client(endpoint=HERE) as client, kvscout.Worker(endpoint=HERE) as worker:
            self.assertEqual(repr(client), f"<kvscout.Client endpoint='{HERE}' not connected>")
            self.assertEqual(repr(worker), f"<kvscout.Worker endpoint='{HERE}' not connected>")


class Errors(unittest.TestCase):
    CODES = [code for code in range(-64, 0) if kvscout.error_name(code) != "SCOUT_ERR_?"]

    def test_every_code_has_an_exception_with_its_number_and_name(self):
        self.assertGreaterEqual(len(self.CODES), 36)
        for code in self.CODES:
            error = kvscout.error_of(code)
            self.assertIsInstance(error, kvscout.KVScoutError)
            self.assertEqual((error.code, error.name), (code, kvscout.error_name(code)))
            self.assertIn(f"({error.name}, {code})", str(error))
            self.assertIn(error.scope, ("call", "request", "connection", "client", "device"))
            self.assertIsInstance(error.retriable, bool)

    def test_the_class_says_what_a_caller_does_about_it(self):
        classes = {kvscout.error_name(code): type(kvscout.error_of(code)).__name__ for code in self.CODES}
        self.assertEqual(classes["SCOUT_ERR_INVALID"], "ArgumentError")
        self.assertEqual(classes["SCOUT_ERR_REQUEST_ID"], "ArgumentError")
        self.assertEqual(classes["SCOUT_ERR_CONFIG_KEY"], "ConfigError")
        self.assertEqual(classes["SCOUT_ERR_BUSY"], "BusyError")
        self.assertEqual(classes["SCOUT_ERR_CLOSED"], "ClosedError")
        self.assertEqual(classes["SCOUT_ERR_FORKED"], "ClosedError")
        self.assertEqual(classes["SCOUT_ERR_STATE"], "StateError")
        self.assertEqual(classes["SCOUT_ERR_NOT_REGISTERED"], "StateError")
        self.assertEqual(classes["SCOUT_ERR_UNREACHABLE"], "ServerError")
        self.assertEqual(classes["SCOUT_ERR_NAMESPACE"], "ServerError")
        self.assertEqual(classes["SCOUT_ERR_TIMEOUT"], "KVScoutError")

    def test_a_wrong_argument_is_a_ValueError_too(self):
        self.assertTrue(issubclass(kvscout.ArgumentError, ValueError))
        self.assertTrue(issubclass(kvscout.ConfigError, kvscout.ArgumentError))

    def test_an_error_survives_pickling(self):
        error = pickle.loads(pickle.dumps(kvscout.error_of(-3)))
        self.assertIs(type(error), kvscout.BusyError)
        self.assertEqual((error.code, error.name, error.retriable), (-3, "SCOUT_ERR_BUSY", True))

    def test_one_that_Python_code_makes_has_the_attributes(self):
        self.assertEqual(kvscout.KVScoutError("mine").code, 0)

    def test_unknown_codes_and_wrong_types_are_told(self):
        self.assertEqual(kvscout.error_name(-10000), "SCOUT_ERR_?")
        self.assertEqual(kvscout.error_name(1 << 80), "SCOUT_ERR_?")
        with self.assertRaisesRegex(TypeError, "code must be an int, not '-3'"):
            kvscout.error_of("-3")
        with self.assertRaisesRegex(TypeError, "text must be a str, not 5"):
            kvscout.error_of(-3, 5)
        with self.assertRaisesRegex(TypeError, "not 0 arguments"):
            kvscout.error_of()


class Configuration(unittest.TestCase):
    def refused(self, error, text, **config):
        with self.assertRaisesRegex(error, text) as caught:
            kvscout.Client(**{"endpoint": HERE, **config})
        return caught.exception

    def test_an_unknown_key_gets_the_librarys_sentence(self):
        error = self.refused(kvscout.ConfigError, "lookup_timeout", lookup_timeot_ms=5)
        self.assertEqual(error.name, "SCOUT_ERR_CONFIG_KEY")

    def test_a_wrong_value_names_key_value_and_what_is_allowed(self):
        error = self.refused(kvscout.ConfigError, r'lookup_timeout_ms = "soon": must be a number', lookup_timeout_ms="soon")
        self.assertEqual(error.name, "SCOUT_ERR_CONFIG_SYNTAX")
        error = self.refused(kvscout.ConfigError, r'hash_bytes = "8": must be 16\.\.32', hash_bytes=8)
        self.assertEqual(error.name, "SCOUT_ERR_CONFIG_RANGE")
        self.refused(kvscout.ConfigError, "lookup_mode", lookup_mode=True)
        self.refused(kvscout.ConfigError, "must not hold a NUL", endpoint="ipc:///tmp/a\0b")

    def test_a_wrong_type_names_what_is_allowed(self):
        self.refused(TypeError, r"chunk_tokens must be a str, int, bool, path or None, not 0\.5", chunk_tokens=0.5)
        self.refused(TypeError, r"chunk_tokens must be .*, not \[1\]", chunk_tokens=[1])
        self.refused(TypeError, r"endpoint must be .* list of these, not b'x'", endpoint=[b"x"])
        with self.assertRaisesRegex(TypeError, "by name only"):
            kvscout.Client(HERE)

    def test_values_of_all_kinds_are_taken(self):
        kvscout.Client(endpoint=HERE, chunk_tokens="512", max_lookups=16, arena_bytes="1Mi", lookup_poll_key_all=True,
                       lookup_mode="polled", weights_version=None, cpus=["inherit"]).close()
        kvscout.Client(endpoint=[HERE, HERE + "2"], kv_ranks=2, lookup_refresh_ms="never").close()

    def test_a_path_is_its_text(self):
        self.refused(kvscout.KVScoutError, "/nowhere/key", curve_secret_file=pathlib.Path("/nowhere/key"),
                     curve_server_key="x" * 40)


class Import(unittest.TestCase):
    def run_python(self, code):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=rig.LIMIT_S)

    def test_a_subinterpreter_is_refused(self):
        code = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
import kvscout
interpreter = interpreters.create()
source = '''
try:
    import kvscout
except ImportError as error:
    assert "subinterpreter" in str(error), error
else:
    raise SystemError("imported")
'''
failure = interpreters.run_string(interpreter, source)
assert failure is None, failure
interpreters.destroy(interpreter)
kvscout.Client(endpoint="ipc:///tmp/kvscout-nobody-listens-here").close()
"""
        ended = self.run_python(code)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_importing_the_extension_twice_makes_types_of_its_own(self):
        code = """
import sys, kvscout
first = kvscout.KVScoutError
for name in [name for name in sys.modules if name.startswith("kvscout")]:
    del sys.modules[name]
import kvscout
assert kvscout.KVScoutError is not first
try:
    kvscout.Client(no_such_key=1)
except kvscout.ConfigError:
    pass
"""
        ended = self.run_python(code)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_the_version_is_the_librarys(self):
        self.assertRegex(kvscout.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
