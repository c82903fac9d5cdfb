# SPDX-License-Identifier: Apache-2.0
"""The program in docs/python.md runs, in a runtime folder of its own."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from test_ensure_server import serves
from rig import LIMIT_S, server_program, wait_for

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
HEAD = "import kvscout\nprint(kvscout.ensure_server(l1_bytes='64Mi', idle_exit_s=1))\n"
TAIL = "\nassert all(page[20 * 4096:32 * 4096] == page[:12 * 4096] for page in pages)\n"


class Page(unittest.TestCase):
    def test_its_program_stores_looks_up_and_loads(self):
        blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
        self.assertEqual(len(blocks), 1)
        # Random pages in place of empty ones, or nothing would be seen.
        code = blocks[0].replace("bytearray(64 * 4096)", "bytearray(__import__('os').urandom(64 * 4096))")
        self.assertNotEqual(code, blocks[0])
        with tempfile.TemporaryDirectory(prefix="kvscout-") as folder:
            env = {**os.environ, "XDG_RUNTIME_DIR": folder,
                   "PATH": os.path.dirname(server_program()) + os.pathsep + os.environ.get("PATH", "")}
            ended = subprocess.run([sys.executable, "-W", "error", "-c", HEAD + code + TAIL], env=env, text=True, timeout=LIMIT_S,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            lines = ended.stdout.splitlines()
            self.assertEqual((ended.returncode, len(lines)), (0, 3), ended.stdout)
            wait_for(lambda: not serves(lines[0]), what="the server to end after its last peer")
        self.assertRegex(lines[1], r"^\[Done\(job=\d+, kind='store', status=0 \(SCOUT_OK\), chunks=3,")
        self.assertRegex(lines[2], r"^192 \[Done\(job=\d+, kind='retrieve', status=0 \(SCOUT_OK\), chunks=3, missing=\(\)")


if __name__ == "__main__":
    unittest.main()
