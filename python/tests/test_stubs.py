# SPDX-License-Identifier: Apache-2.0
"""The type stubs: mypy compares them with the extension, and checks a program that uses them."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kvscout
import rig

HERE = pathlib.Path(__file__).resolve().parent


@unittest.skipIf(rig.SANITIZED, "a sanitizer finds nothing here")
@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Stubs(unittest.TestCase):
    def run_module(self, *command):
        with tempfile.TemporaryDirectory() as folder:
            where = str(pathlib.Path(kvscout.__file__).resolve().parent.parent)
            env = dict(os.environ)
            if "site-packages" not in where:  # what is installed mypy finds by itself
                env["MYPYPATH"] = env["PYTHONPATH"] = where
            return subprocess.run([sys.executable, "-m", *command], cwd=folder, env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=rig.LIMIT_S)

    def test_they_say_what_the_extension_has(self):
        ended = self.run_module("mypy.stubtest", "kvscout._kvscout")
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_a_program_that_uses_them_is_checked_strictly(self):
        ended = self.run_module("mypy", "--strict", "--cache-dir", os.devnull, str(HERE / "typed_sample.py"))
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_public_names_have_docstrings(self):
        for name in kvscout.__all__:
            thing = getattr(kvscout, name)
            if name == "__version__":
                continue
            self.assertTrue(thing.__doc__, name)
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                if member[0] != "_" and not isinstance(value, (int, str)):
                    self.assertTrue(value.__doc__, f"{name}.{member}")


if __name__ == "__main__":
    unittest.main()
