# SPDX-License-Identifier: Apache-2.0
"""Dynamo's own KV indexer (`ai-dynamo-runtime` on PyPI), in an environment of its own; and a wire to it that loses messages."""

import json
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

from checks import Failed, Skip

START_S = 60
MODEL = "model"


class Indexer:
    """`python -m dynamo.indexer` on a port of its own."""

    def __init__(self, root, block_tokens):
        python = os.path.join(root, "dynamo", "bin", "python")
        if not os.path.exists(python):
            raise Skip(f"there is no {python}")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self._url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        self._block_tokens = block_tokens
        self._log = open(os.path.join(root, "indexer.log"), "w")
        self._process = subprocess.Popen(
            [python, "-m", "dynamo.indexer", "--port", self._url.rpartition(":")[2]], stdout=self._log, stderr=subprocess.STDOUT
        )
        self._wait_ready()

    def _wait_ready(self):
        end = time.monotonic() + START_S
        while True:
            try:
                return urllib.request.urlopen(self._url + "/workers", timeout=5).read()
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > end or self._process.poll() is not None:
                    raise Failed(f"the indexer does not answer; its log is {self._log.name}") from None
                time.sleep(0.1)

    def _post(self, path, **body):
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def register(self, number, endpoint, replay_endpoint):
        self._post(
            "/register", instance_id=number, endpoint=endpoint, replay_endpoint=replay_endpoint, model_name=MODEL, block_size=self._block_tokens
        )

    def tokens(self, prompt):
        """By engine: (tokens in the GPU, tokens there or in host memory)."""
        found = self._post("/query", token_ids=prompt, model_name=MODEL)["instances"]
        return {int(number): (tiers["gpu"], tiers["cpu"]) for number, tiers in found.items()}

    def close(self):
        self._process.kill()
        self._process.wait()
        self._log.close()


class Wire:
    """Hands on what an engine publishes, and loses it while `cut` is set."""

    def __init__(self, source):
        import zmq

        self._zmq = zmq
        self._folder = tempfile.mkdtemp(prefix="kvscout-wire-")
        self.endpoint = f"ipc://{self._folder}/events"
        self._source = source
        self.cut = False
        self.lost = self.passed = 0
        self._ends = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        context = self._zmq.Context()
        back, front = context.socket(self._zmq.SUB), context.socket(self._zmq.PUB)
        back.subscribe(b"")
        back.connect(self._source)
        front.bind(self.endpoint)
        while not self._ends:
            if not back.poll(50):
                continue
            parts = back.recv_multipart()
            if self.cut:
                self.lost += 1
            else:
                front.send_multipart(parts)
                self.passed += 1
        context.destroy(linger=0)

    def close(self):
        self._ends = True
        self._thread.join()
