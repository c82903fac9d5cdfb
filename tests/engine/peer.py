#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second engine beside a session's own: in a process of its own, told what to do through a socket.

Peer is the session's side. Run as a program, this is the other one: peer.py DESCRIPTOR MODEL CONNECTOR OPTIONS.
"""

import json
import multiprocessing.connection
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from checks import Failed, Tally, tally

START_S = 400
ANSWER_S = 300


class Peer:
    """Calls of an Engine, each of which waits for its answer; begin_run() and end_run() do not, so that both engines
    run at once."""

    def __init__(self, model, connector, omp_bind, **engine_options):
        ours, theirs = socket.socketpair()
        command = [
            sys.executable,
            "-B",
            os.path.abspath(__file__),
            str(theirs.fileno()),
            model,
            json.dumps(connector),
            json.dumps(engine_options),
        ]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env={**os.environ, "VLLM_CPU_OMP_THREADS_BIND": omp_bind}
        )
        theirs.close()
        self._connection = multiprocessing.connection.Connection(ours.detach())

    def _receive(self, seconds):
        if not self._connection.poll(seconds):
            raise Failed(f"the other engine does not answer in {seconds} s; its status is {self._process.poll()}")
        try:
            result, value, done = self._connection.recv()
        except EOFError:
            raise Failed(f"the other engine ended with status {self._process.wait()}") from None
        tally.add(done)
        if result != "done":
            raise Failed(f"the other engine failed: {value}")
        return value

    def _call(self, *command):
        self._connection.send(command)
        return self._receive(ANSWER_S)

    def wait_ready(self):
        self._receive(START_S)

    def begin_run(self, prompts, output_tokens, **more):
        self._connection.send(("run", prompts, output_tokens, more))

    def end_run(self):
        return self._receive(ANSWER_S)

    def run(self, prompts, output_tokens, **more):
        self.begin_run(prompts, output_tokens, **more)
        return self.end_run()

    def forget(self, connector=False):
        return self._call("forget", connector)

    def load_weights(self, folder):
        return self._call("load_weights", folder)

    def counts(self):
        """Of both sides, by name."""
        return self._call("counts")

    def close(self):
        try:
            self._connection.send(("close",))
            self._process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._connection.close()


def serve(connection, engine):
    from engine import all_counts

    calls = {
        "run": lambda asked, n, more: engine.run(asked, n, **more),
        "forget": lambda connector: engine.forget(connector),
        "load_weights": lambda folder: engine.load_weights(folder),
        "counts": lambda: all_counts(engine),
    }
    while True:
        name, *args = connection.recv()
        if name == "close":
            return
        before = tally.copy()
        try:
            answer = ("done", calls[name](*args))
        except Failed as failure:
            answer = ("failed", str(failure))
        connection.send((*answer, tally.since(before)))


def main():
    from engine import Engine

    connection = multiprocessing.connection.Connection(int(sys.argv[1]))
    engine = Engine(sys.argv[2], connector=json.loads(sys.argv[3]), **json.loads(sys.argv[4]))
    try:
        connection.send(("done", None, Tally()))
        serve(connection, engine)
    except EOFError:
        pass  # the session is gone
    finally:
        engine.close()


if __name__ == "__main__":
    main()
