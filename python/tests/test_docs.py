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
# The two stores of the page say the same: one stores both chunks, and the other one finds them.
MIDDLE = """table, sums = list(range(40, 52)), []
hashes = kvscout.hash_blocks(range(1000, 1200), 16)
hit = client.wait_lookup("middle", hashes, len(tokens), stride=4)
{}
while len(sums) < 2:
    select.select([worker], [], [])
    sums += [(done.ok, done.chunks + done.present) for done in worker.poll()]
assert sums == [(True, 2)] * 2, sums
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
        self.assertEqual(len(parts), 3)
        for part in parts:
            compile(part, PAGE.name, "exec", flags=0x2000)  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        # Random pages in place of empty ones, or nothing would be seen.
        code = program.replace("bytearray(64 * 4096)", "bytearray(__import__('os').urandom(64 * 4096))")
        self.assertNotEqual(code, program)
        code = code.replace("worker.close()", MIDDLE.format(next(part for part in parts if "ids_from" in part)) + "worker.close()")
        lines = self.lines_of(HEAD + code + TAIL)
        self.assertEqual(len(lines), 3, lines)
        self.assertRegex(lines[1], r"^\[Done\(job=\d+, kind='store', status=0 \(SCOUT_OK\), chunks=3,")
        self.assertRegex(lines[2], r"^192 \[Done\(job=\d+, kind='retrieve', status=0 \(SCOUT_OK\), chunks=3, missing=\{\}")

    def test_the_example_stores_and_loads(self):
        lines = self.lines_of(HEAD + TWICE)
        self.assertEqual(lines[1:], [f"{n} of 8 requests were loaded, the others stored" for n in (0, 8)])


def defaults_of(page):
    """Defaults that are numbers, by the key that a table of docs/ gives them."""
    found = {}
    for line in (ROOT / "docs" / page).read_text().splitlines():
        keys, *cells = line.strip("| ").split(" | ")
        named = re.findall(r"`(\w+)`", keys) if line.startswith("| `") else []
        told = cells[0].split(", ") if len(cells) > 1 else re.findall(r"default (\d+)", cells[0]) if cells else []
        found.update((key, value) for key, value in zip(named, told) if value.isdigit())
    return found


class Defaults(unittest.TestCase):
    def test_a_wrong_key_is_answered_with_the_defaults_of_the_reference(self):
        from kvscout.sglang import config as sglang
        from kvscout.vllm import config as vllm
        from kvscout.vllm_tier import config as tier

        for module, pages in ((sglang, ("vllm-reference.md", "sglang.md")), (vllm, ("vllm-reference.md",)), (tier, ("vllm-reference.md",))):
            documented = {key: value for page in pages for key, value in defaults_of(page).items()}
            told = {key: found[1] for key, text in module._KEYS.items() if (found := re.search(r"default (\d+)", text))}
            self.assertGreater(len(told), 4)
            self.assertEqual(told, {key: documented.get(key) for key in told})

    def test_defaults_that_are_the_library_s_are_documented_as_the_library_has_them(self):
        own = ("idle_exit_s", "chunk_tokens", "step_wait_us")
        documented, found = defaults_of("vllm-reference.md"), defaults_of("configuration.md")
        same = {key: value for key, value in documented.items() if key in found and key not in own}
        self.assertIn("transfer_timeout_ms", same)
        self.assertEqual(same, {key: found[key] for key in same})


if __name__ == "__main__":
    unittest.main()
