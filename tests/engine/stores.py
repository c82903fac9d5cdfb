# SPDX-License-Identifier: Apache-2.0
"""L2 stores of a session: each is a context manager that yields keys of the session's server. A store's content
outlives the session, so that another session finds it with an engine and a server that were started anew."""

import contextlib
import os
import shutil
import socket
import subprocess
import time

from checks import Skip


def folder(options, name, empty):
    path = os.path.join(options.root, name)
    if empty:
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
    return path


def files(empty):
    @contextlib.contextmanager
    def store(options):
        yield {"l2": f"fs://{folder(options, 'files', empty)}?max_bytes=1Gi"}

    return store


def redis(empty):
    """A redis-server of the session's own, which reads its dump when it starts and writes it when it ends."""

    @contextlib.contextmanager
    def store(options):
        program = shutil.which("redis-server")
        if program is None:
            raise Skip("there is no redis-server (Debian: apt-get install redis-server)")
        path = folder(options, "redis", empty)
        port = free_port()
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", path, "--save", "3600 1"]
        with open(os.path.join(path, "redis.log"), "ab") as log:
            process = subprocess.Popen([*command, "--maxmemory", "1gb"], stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_for_answer(process, port)
            yield {"l2": f"redis://127.0.0.1:{port}"}
        finally:
            process.terminate()  # it writes its dump first
            process.wait(60)

    return store


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for_answer(process, port, seconds=60):
    """Until redis-server answers PING with PONG: it answers otherwise while it reads its dump."""
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"PING\r\n")
                if connection.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"redis-server does not answer on port {port}; its status is {process.poll()}")
        time.sleep(0.05)  # nothing tells when the port opens
