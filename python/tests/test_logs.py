# SPDX-License-Identifier: Apache-2.0
"""Log lines of the library's threads in `logging`."""

import logging
import os
import subprocess
import sys
import threading
import time
import unittest

import kvscout
from kvscout import _logs
from rig import LIMIT_S, forks, wait_for

RING = 512  # lines


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def texts(self):
        return [record.getMessage() for record in self.records]


class Logs(unittest.TestCase):
    def setUp(self):
        self.keep = Keep()
        self.logger = logging.getLogger("kvscout")
        self.logger.addHandler(self.keep)
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        _logs.flush()
        self.keep.records.clear()

    def tearDown(self):
        self.logger.removeHandler(self.keep)
        self.logger.setLevel(logging.NOTSET)

    def some_lines(self):
        with kvscout.Server(l1_bytes="16Mi"):
            pass

    def test_a_line_comes_with_its_level_and_the_time_it_was_logged(self):
        before = time.time()
        with _logs._turn:  # lines wait
            self.some_lines()
            after = time.time()
        _logs.flush()
        record = next(r for r in self.keep.records if "serving ipc://" in r.getMessage())
        self.assertEqual((record.name, record.levelno), ("kvscout", logging.INFO))
        self.assertTrue(before - 0.001 <= record.created <= after, (before, record.created, after))
        self.assertTrue(self.keep.texts()[-1].endswith("stopped"))

    def test_nobody_has_to_call_for_lines_to_come(self):
        self.some_lines()
        wait_for(lambda: any("stopped" in text for text in self.keep.texts()), what="the last line")
        self.assertEqual({record.threadName for record in self.keep.records}, {"kvscout-log"})

    def test_client_and_server_both_log(self):
        with kvscout.Server(l1_bytes="16Mi") as server:
            client = kvscout.Client(endpoint=server.endpoint)
            wait_for(lambda: any(f"client: {server.endpoint}: connected" in text for text in self.keep.texts()))
            client.close()

    def test_no_line_shows_the_password_of_a_store(self):
        with kvscout.Server(l1_bytes="16Mi", l2="redis://me:PLANTED@127.0.0.1:1"):
            wait_for(lambda: any("127.0.0.1:1" in text for text in self.keep.texts()), what="a line about the store")
        self.assertFalse([text for text in self.keep.texts() if "PLANTED" in text])

    def test_a_full_ring_drops_the_newest_and_says_how_many(self):
        servers = 0
        with _logs._turn:
            while servers * 3 < RING + 100:  # each logs at least serving, stopping, stopped
                self.some_lines()
                servers += 1
        _logs.flush()
        warnings = [record for record in self.keep.records if "log lines were lost here" in record.getMessage()]
        self.assertEqual(len(warnings), 1)
        self.assertEqual(warnings[0].levelno, logging.WARNING)
        lost = int(warnings[0].getMessage().split()[0])
        # The thread may have taken one line before it had to wait.
        self.assertIn(len(self.keep.records) - 1, (RING, RING + 1))
        total = len(self.keep.records) - 1 + lost
        self.assertTrue(servers * 3 <= total < servers * 4, (servers, total))  # a server that was slow says so
        self.assertIn("serving", self.keep.texts()[0])
        self.keep.records.clear()
        self.some_lines()
        _logs.flush()
        self.assertTrue(self.keep.texts()[-1].endswith("stopped"))
        self.assertFalse([text for text in self.keep.texts() if "lost here" in text])

    def test_a_filter_that_raises_does_not_end_the_log(self):
        def broken(record):
            raise RuntimeError("planted")

        errors, sys.stderr = sys.stderr, open(os.devnull, "w")
        self.logger.addFilter(broken)
        try:
            self.some_lines()
            _logs.flush()
        finally:
            self.logger.removeFilter(broken)
            sys.stderr.close()
            sys.stderr = errors
        self.some_lines()
        wait_for(lambda: any("stopped" in text for text in self.keep.texts()))

    def test_a_level_that_is_not_enabled_costs_no_record(self):
        self.logger.setLevel(logging.ERROR)
        self.some_lines()
        _logs.flush()
        self.assertEqual(self.keep.records, [])

    def test_a_handler_that_calls_the_library_does_not_hang(self):
        class Calls(logging.Handler):
            def emit(self, record):
                calls.append(record)
                _logs.flush()

        calls, handler = [], Calls()
        self.logger.addHandler(handler)
        try:
            self.some_lines()
            wait_for(lambda: any("stopped" in text for text in self.keep.texts()))
        finally:
            self.logger.removeHandler(handler)
        self.assertEqual(calls, self.keep.records)

    @forks
    def test_a_forked_child_reports_no_line_of_its_parent(self):
        with _logs._turn:
            self.some_lines()
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    self.keep.records.clear()
                    _logs.flush()
                    os.write(writer, repr(self.keep.texts()).encode())
                    self.some_lines()
                    wait_for(lambda: any("stopped" in text for text in self.keep.texts()))
                    status = 0
                finally:
                    os._exit(status)
            os.close(writer)
            told = os.read(reader, 4096)
            os.close(reader)
            _, status = os.waitpid(pid, 0)
        self.assertEqual((told, status), (b"[]", 0))
        _logs.flush()
        self.assertTrue(self.keep.texts()[-1].endswith("stopped"))


class AtExit(unittest.TestCase):
    CODE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
import kvscout
keep = kvscout.Server(l1_bytes="16Mi")
"""

    def test_the_lines_of_the_end_are_handed_over(self):
        ended = subprocess.run([sys.executable, "-c", self.CODE], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("serving ipc://", ended.stdout)
        self.assertTrue(ended.stdout.endswith("server: stopped\n"), ended.stdout)

    def test_what_handles_a_line_and_never_returns_does_not_hold_the_exit(self):
        code = self.CODE + """
import threading
def never(record):  # a filter: logging.shutdown() would wait for the lock of a handler
    stuck.set()
    threading.Event().wait()
stuck = threading.Event()
logging.getLogger("kvscout").addFilter(never)
kvscout.Server(l1_bytes="16Mi").stop()
stuck.wait()
"""
        start = time.monotonic()
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertGreaterEqual(time.monotonic() - start, 2)

    def test_without_a_handler_warnings_are_on_stderr_and_nothing_else(self):
        code = "import kvscout\nkvscout.Server(l1_bytes='16Mi').stop()"
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
