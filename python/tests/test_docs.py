# SPDX-License-Identifier: Apache-2.0
"""The program in docs/python.md and the example in Python run, each in a runtime folder of its own."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from test_ensure_server import serves
from rig import LIMIT_S, server_program, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
HEAD = "import kvscout\nprint(kvscout.ensure_server(l1_bytes='64Mi', idle_exit_s=1))\n"
# The client that stays keeps the server alive between the runs. On a machine with too many builds an answer may take long.
TWICE = f"""
import functools, runpy; kvscout.Client = functools.partial(kvscout.Client, lookup_timeout_ms={int(LIMIT_S * 1000)})
with kvscout.Client() as stays:
    stays.wait_ready({int(LIMIT_S * 1000)})
    for run in range(2):
        runpy.run_path({str(ROOT / "examples" / "with_asyncio.py")!r})
"""
TAIL = "\nassert all(page[20 * 4096:32 * 4096] == page[:12 * 4096] for page in pages)\n"


class Page(unittest.TestCase):
    def lines_of(self, code):
        """What a program prints that begins with HEAD: the endpoint of the server that it starts, and its own lines."""
        with tempfile.TemporaryDirectory(prefix="kvscout-") as folder:
            env = {**os.environ, "XDG_RUNTIME_DIR": folder,
                   "PATH": os.path.dirname(server_program()) + os.pathsep + os.environ.get("PATH", "")}
            ended = subprocess.run([sys.executable, "-W", "error", "-c", code], env=env, text=True, timeout=LIMIT_S,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(ended.returncode, 0, ended.stdout)
            lines = ended.stdout.splitlines()
            wait_for(lambda: not serves(lines[0]), what="the server to end after its last peer")
        return lines

    def test_its_program_stores_looks_up_and_loads(self):
        program, *parts = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
        self.assertEqual(len(parts), 2)
        for part in parts:
            compile(part, PAGE.name, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        # Random pages in place of empty ones, or nothing would be seen.
        code = program.replace("bytearray(64 * 4096)", "bytearray(__import__('os').urandom(64 * 4096))")
        self.assertNotEqual(code, program)
        lines = self.lines_of(HEAD + code + TAIL)
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[1], r"^\[Done\(job=\d+, kind='store', status=0 \(SCOUT_OK\), chunks=3,")
        self.assertRegex(lines[2], r"^192 \[Done\(job=\d+, kind='retrieve', status=0 \(SCOUT_OK\), chunks=3, missing=\{\}")

    def test_the_example_stores_and_loads(self):
        lines = self.lines_of(HEAD + TWICE)
        self.assertEqual(lines[1:], [f"{n} of 8 requests were loaded, the others stored" for n in (0, 8)])


if __name__ == "__main__":
    unittest.main()
