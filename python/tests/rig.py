# SPDX-License-Identifier: Apache-2.0
"""What the tests share: a kvscoutd of their own, and waiting for a condition.

The server is the program that KVSCOUTD names (meson sets it), else the one on PATH (the wheel's).
"""

import atexit
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

MULTIPLIER = float(os.environ.get("KVSCOUT_TEST_TIMES", "1"))
LIMIT_S = 300 * MULTIPLIER  # for what hangs
SANITIZED = os.environ.get("KVSCOUT_TEST_SANITIZED") == "1"
# A child of a process with threads: gcc 12's AddressSanitizer takes no lock of its allocator before fork(), so the child hangs in malloc()
# when another thread held one. It happens inside the interpreter, too, before a line of the child's code runs.
# In qemu-user such a child dies of an assertion of the emulator's, or hangs.
EMULATED = os.environ.get("KVSCOUT_TEST_EMULATED") == "1"
forks = unittest.skipIf(SANITIZED or EMULATED, "a child of a process with threads may hang in gcc 12's AddressSanitizer, and in qemu-user")


# A program behind this ends when its parent dies. As a command, because a preexec_fn is a fork(), too.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


def server_program():
    program = os.environ.get("KVSCOUTD") or shutil.which("kvscoutd")
    if not program:
        raise unittest.SkipTest("there is no kvscoutd: set KVSCOUTD, or install it")
    return program


def open_more_than_a_thousand(test):
    """Descriptors that come after this are above 1023, as in an engine with many connections, until the end of @test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    test.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
    for fd in [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]:
        test.addCleanup(os.close, fd)


def wait_for(condition, what="the condition"):
    """What `condition` returns once it is true; an AssertionError if it never is."""
    until = time.monotonic() + LIMIT_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"waited {LIMIT_S} s for {what}")
        time.sleep(0.001)


def pings(start):
    """The most PINGs that a connection has sent since `start` of time.monotonic() for operations in flight: one after each 150 ms."""
    return int((time.monotonic() - start) / 0.15)


class ServerProcess:
    """kvscoutd in a folder of its own; `endpoint` is where it serves."""

    def __init__(self, l1_bytes="64Mi", **config):
        self.folder = tempfile.TemporaryDirectory(prefix="kvscout-")
        self.endpoint = f"ipc://{self.folder.name}/s"
        self.config = {"l1_bytes": l1_bytes, **config}
        self.process = None
        atexit.register(self.stop)
        self.start()

    def start(self):
        command = [*DIES_WITH_PARENT, server_program(), "--listen", self.endpoint]
        for key, value in self.config.items():
            command += ["--" + key, str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("kvscoutd: ready on"):
            raise AssertionError(f"kvscoutd said {line!r} and ended with {self.process.wait(LIMIT_S)}")

    def freeze(self):
        """Stop it, so that it answers nothing; all of its threads have stopped when this returns."""
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_for(lambda: all(state == "T" for state in self.states()), what="the server to stop")

    def states(self):
        """The state of each of its threads, as /proc names it."""
        tasks = f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="ascii") as file:
                yield file.read().rpartition(")")[2].split()[0]

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def counter(self, name):
        """A line of `kvscoutd --status`, as a number."""
        said = subprocess.run([server_program(), "--status", self.endpoint], check=True, capture_output=True, text=True, timeout=LIMIT_S)
        return next(int(line.split()[-1]) for line in said.stdout.splitlines() if line.split()[:1] == [name])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.process = None
        self.folder.cleanup()
