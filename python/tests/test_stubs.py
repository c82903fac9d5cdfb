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
from kvscout import _kvscout, config

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

    def config(self):
        """mypy before 1.7 knows Unpack, and wants to be asked."""
        file = tempfile.NamedTemporaryFile("w", suffix=".ini")
        self.addCleanup(file.close)
        file.write("[mypy]\nenable_incomplete_feature = Unpack\n")
        file.flush()
        return file.name

    def test_they_say_what_the_extension_has(self):
        ended = self.run_module("mypy.stubtest", "kvscout._kvscout", "--mypy-config-file", self.config())
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_a_program_that_uses_them_is_checked_strictly(self):
        ended = self.run_module("mypy", "--strict", "--config-file", self.config(), "--cache-dir", os.devnull, str(HERE / "typed_sample.py"))
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_the_package_itself_is_checked_strictly(self):
        """But for what vLLM loads, which has no types of its own."""
        folder = pathlib.Path(kvscout.__file__).resolve().parent
        modules = [str(path) for path in sorted(folder.glob("*.py"))]
        self.assertIn(str(folder / "aio.py"), modules)
        ended = self.run_module("mypy", "--strict", "--config-file", self.config(), "--cache-dir", os.devnull, *modules)
        self.assertEqual(ended.returncode, 0, ended.stdout)

    def test_public_names_have_docstrings(self):
        for name in (name for name in vars(_kvscout) if name[0] != "_" and hasattr(kvscout, name)):
            thing = getattr(kvscout, name)
            self.assertTrue(thing.__doc__, name)
            for member, value in vars(thing).items() if isinstance(thing, type) else ():
                if member[0] != "_" and not isinstance(value, (int, str)):
                    self.assertTrue(value.__doc__, f"{name}.{member}")


class Keys(unittest.TestCase):
    """kvscout.config against the library's tables of options."""

    KINDS = {"Client": config.ClientConfig, "Worker": config.WorkerConfig, "Server": config.ServerConfig}

    def test_each_key_is_one_that_the_library_has(self):
        for kind, keys in self.KINDS.items():
            for key in keys.__annotations__:
                with self.subTest(kind=kind, key=key):
                    try:
                        _kvscout.check_keys(kind, **{key: "\x01"})
                    except kvscout.ConfigError as error:
                        self.assertNotEqual(error.name, "SCOUT_ERR_CONFIG_KEY")


if __name__ == "__main__":
    unittest.main()
