# SPDX-License-Identifier: Apache-2.0
"""A kvscoutd of a test: start, kill, freeze, restart, and read its counters."""

import os
import re
import select
import signal
import subprocess
import tempfile
import time


class Server:
    def __init__(self, kvscoutd, folder=None, **keys):
        self._program = kvscoutd
        self._folder = folder or tempfile.mkdtemp(prefix="kvscout-engine-")
        self.endpoint = f"ipc://{self._folder}/server.sock"
        self._keys = {"l1_bytes": "512Mi", "extent_bytes": "16Mi", **keys}
        self._process = None
        self.kills = 0

    def start(self):
        args = [self._program, "--listen", self.endpoint, "--log-level", "warn"]
        for key, value in self._keys.items():
            args += [f"--{key}", str(value)]
        log = open(os.path.join(self._folder, "server.log"), "ab")
        self._process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log)
        log.close()
        readable, _, _ = select.select([self._process.stdout], [], [], 20)
        line = self._process.stdout.readline().decode() if readable else ""
        if "ready" not in line:
            raise RuntimeError(f"kvscoutd did not start: {line!r}; its log is {self._folder}/server.log")
        return self

    @property
    def runs(self):
        return self._process is not None and self._process.poll() is None

    def kill(self):
        """As a crash is: no message, no clean-up."""
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self.kills += 1

    def freeze(self):
        """All of its threads have stopped when this returns."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self):
        self._process.send_signal(signal.SIGCONT)

    def stop(self):
        if not self.runs:
            return
        self.thaw()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._process.stdout.close()

    def status(self):
        """Counters by name, as numbers."""
        text = subprocess.run(
            [self._program, "--status", self.endpoint], capture_output=True, text=True, timeout=20, check=True
        ).stdout
        return {name: int(value) for name, value in re.findall(r"^([a-z0-9_.]+) (\d+)$", text, re.M)}

    def wait_until(self, holds, seconds=20):
        """The counters as soon as holds(counters) is true; the last ones if it does not become so."""
        end = time.monotonic() + seconds
        while True:
            found = self.status()
            if holds(found) or time.monotonic() > end:
                return found
