# SPDX-License-Identifier: Apache-2.0
"""What programs share that print tables of docs/measurements.md: the line above a table, and a Redis of their own."""

import contextlib
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rig import DIES_WITH_PARENT

NOW = time.monotonic


def use(build):
    """The library and the server of this build folder; what was started and made goes away at SIGTERM, too."""
    build = Path(build).resolve()
    os.environ |= {"KVSCOUTD": str(build / "libserver/daemon/kvscoutd"), "PYTHONPATH": str(build / "python")}
    sys.path.insert(0, str(build / "python"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def said(what):
    load, cores = os.getloadavg(), os.cpu_count()
    print(f"{what}. {time.strftime('%Y-%m-%d %H:%M')} UTC, Linux {platform.release()}, {cores} cores, load {load[0]:.1f}"
          f"{' (a loaded machine)' if load[0] > cores / 2 else ''}.\n", flush=True)


def rank_of(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def forget(folder):
    """The files are on the disk, and not in the page cache."""
    os.sync()
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis:
    """A redis-server that has after a kill what it had, or one without any file."""

    version = ""

    def __init__(self, ends, bind="127.0.0.1", lasts=False):
        program = shutil.which("redis-server") or sys.exit("there is no redis-server (Debian: apt-get install redis-server)")
        Redis.version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[2]
        self.port, self.folder = free_port(), ends.enter_context(tempfile.TemporaryDirectory())
        self.command = [*DIES_WITH_PARENT, program, "--bind", *bind.split(), "--port", str(self.port), "--dir", self.folder, "--save", "", "--protected-mode", "no",
                        "--appendonly", "yes" if lasts else "no", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0"]
        self.url = f"redis://{bind.split()[0]}:{self.port}"
        self.host = bind.split()[0]
        self.start()
        ends.callback(self.kill)

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL)
        until = NOW() + 60
        while not self._answers():
            if NOW() > until or self.process.poll() is not None:
                sys.exit(f"redis-server does not answer on port {self.port}")
            time.sleep(0.002)

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")

    def kill(self):
        self.process.kill()
        self.process.wait()
