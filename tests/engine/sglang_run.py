#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev engine sglang`: the real SGLang on the CPU. An engine without kvscout says which tokens are right; one with it stores; one in a
new process, whose memory is empty, must give the same tokens and have the prompts from kvscout. The last line is
`N passed, N failed, N skipped`.

usage: sglang_run.py --root FOLDER --kvscoutd PROGRAM [SESSION...]
       sglang_run.py --engine JSON   (one engine, in a process of its own)
"""

import argparse
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

# What an engine does, and of each time that it asks all prompts: which model's answers are right, and whether prompts come from the storage.
STORES = ("stores", ("ask", "stored"), (("model", None),))
LOADS = ("loads", ("ask",), (("model", True),))
HYBRID = (("stores", ("ask", "all_stored"), (("hybrid_model", None),)), ("loads", ("ask",), (("hybrid_model", True),)))


@dataclasses.dataclass(frozen=True)
class Plan:
    layout: str = "page_first_direct"  # --hicache-mem-layout
    mode: str = "cache"  # --hicache-host-memory-mode
    ranks: int = 1
    model: str = "model"  # of Session.models
    kills: bool = False  # the server is frozen, killed and started while the last engine asks
    engines: tuple = (STORES, LOADS)
    same_steps: bool = False  # an engine without kvscout takes the same steps, and its answers are right
    unguarded: bool = False  # kvscout is told of no new weights (sglang_cpu.py): the last engine has wrong KV, and nothing says so


SESSIONS = {
    "sglang": Plan(),
    "sglang-layers": Plan(layout="layer_first"),
    "sglang-buffer": Plan(layout="layer_first", mode="buffer_only"),
    "sglang-kills": Plan(kills=True),
    "sglang-tp2": Plan(ranks=2),
    "sglang-clear": Plan(engines=(
        ("stores and clears", ("ask", "stored", "clear", "flush", "ask", "stored"), (("model", None), ("model", False))), LOADS)),
    "sglang-weights": Plan(engines=((
        "gets new weights", ("ask", "stored", "new_weights", "ask", "attach_again", "flush", "ask", "stored", "flush", "ask"),
        (("model", None), ("other_model", False), ("other_model", False), ("other_model", True))), LOADS)),
    # New prompts after each update without a flush. The first model comes back into an empty cache: then pages are its own again.
    "sglang-weights-unflushed": Plan(same_steps=True, engines=((
        "updates without a flush, then flushes first",
        ("ask", "stored", "other_from_disk", "ask_2", "flush", "ask_2", "flush", "first_from_tensors", "ask", "flush", "other_from_tensors",
         "ask_3", "flush"),
        (("model", None), ("model", False), ("model", False), ("model", True), ("model", False))),
        ("has the first weights", ("ask", "ask_2", "ask_3"), (("model", True), ("model", False), ("model", False))))),
    "sglang-weights-unguarded": Plan(same_steps=True, unguarded=True, engines=(
        ("updates without a flush", ("ask", "stored", "other_from_disk", "ask_2", "stored"), (("model", None), ("model", None))),
        ("has the first weights", ("ask_2",), (("model", True),)))),
    "sglang-attach": Plan(engines=((
        "attaches while no server answers", ("ask", "stored", "detach", "attach_nowhere", "ask", "attach", "flush", "ask"),
        (("model", None), ("model", False), ("model", True))),)),
    "sglang-hybrid": Plan(model="hybrid_model", engines=HYBRID),
    "sglang-hybrid-buffer": Plan(model="hybrid_model", mode="buffer_only", engines=HYBRID),
}
PROMPTS, TOKENS, PAGE = 8, 600, 16
NEW = 16  # tokens of an answer, of which the last one has no KV
PAGES = PROMPTS * ((TOKENS + NEW - 1) // PAGE)
LIMIT_S = 900


def engine(told):
    """One engine: its answers, and what SGLang says of where their KV was."""
    import sglang

    more = {}
    if told["endpoint"]:
        extra = {"backend_name": "kvscout", "module_path": "kvscout.sglang", "class_name": "KVScoutStorage", "interface_v1": 1,
                 "endpoint": told["endpoint"], "prefetch_threshold": PAGE, "lookup_timeout_ms": 2000}
        more = {"enable_hierarchical_cache": True, "hicache_storage_backend": "dynamic", "hicache_io_backend": "direct", "hicache_size": 1,
                "hicache_storage_backend_extra_config": json.dumps(extra), "hicache_storage_prefetch_policy": "wait_complete",
                "hicache_write_policy": "write_through", "hicache_mem_layout": told["layout"], "hicache_host_memory_mode": told["mode"]}
    made = sglang.Engine(
        model_path=told["model"], device="cpu", attention_backend="torch_native", sampling_backend="pytorch", grammar_backend="none",
        disable_cuda_graph=True, disable_overlap_schedule=True, skip_tokenizer_init=True, page_size=PAGE, max_total_tokens=16384,
        dtype="float32", mem_fraction_static=0.3, log_level="info", tp_size=told["tp"], **more)
    steps = Steps(made, told, more)
    answers = [found for found in map(steps.take, told["steps"]) if found is not None]
    with open(told["out"], "w", encoding="ascii") as file:
        json.dump(answers, file)
    made.shutdown()


class Steps:
    """What an engine is told to do, one after the other."""

    def __init__(self, made, told, more):
        self.made, self.told, self.more = made, told, more
        self.pages = 0  # that the server has

    def take(self, step):
        """ask, ask_2 and ask_3 ask other prompts. An engine without kvscout waits for none of its stores."""
        name, _, which = step.partition("ask")
        return self.ask(which) if not name else getattr(self, step)() if self.told["endpoint"] or step != "stored" else None

    def ask(self, which=""):
        drawn, answers = random.Random(f"5{which}"), []
        for _ in range(PROMPTS):
            prompt = [drawn.randrange(3, 500) for _ in range(TOKENS)]
            print("PROMPT", flush=True)
            begin = time.monotonic()
            answer = self.made.generate(input_ids=prompt, sampling_params={"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True})
            details = answer["meta_info"].get("cached_tokens_details") or {}
            answers.append([answer["output_ids"], details.get("storage", 0), time.monotonic() - begin])
        return answers

    def stored(self):
        """Stores are SGLang's own business after an answer: until the server has all whole pages."""
        self.pages += PAGES
        self._wait()

    def all_stored(self):
        """In a hybrid model the number of pages of the other pools is SGLang's business: until the server has KV and no more comes."""
        self.pages += PAGES
        seen = -1
        while seen < self.pages or seen != status(self.told, "l1.chunks"):
            seen = status(self.told, "l1.chunks")
            time.sleep(2)

    def clear(self):
        """As POST /hicache/storage-backend/clear does."""
        self._said(lambda: self.made.tokenizer_manager.clear_hicache_storage())
        self.pages = 0
        self._wait()

    def flush(self):
        self._said(lambda: self.made.tokenizer_manager.flush_cache())

    def new_weights(self):
        self._taken(self.made.update_weights_from_disk(self.told["other_model"]))

    def other_from_disk(self):
        from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

        asked = UpdateWeightFromDiskReqInput(model_path=self.told["other_model"], flush_cache=False)
        self._taken(self.made.loop.run_until_complete(self.made.tokenizer_manager.update_weights_from_disk(asked, None)))

    def first_from_tensors(self):
        self._from_tensors(self.told["model"])

    def other_from_tensors(self):
        self._from_tensors(self.told["other_model"])

    def _from_tensors(self, model):
        """As trainers do: in pieces, without a flush."""
        from safetensors.torch import load_file

        tensors = list(load_file(f"{model}/model.safetensors").items())
        self._taken(self.made.begin_weight_update())
        for first in range(0, len(tensors), 8):
            self._taken(self.made.update_weights_from_tensor(tensors[first : first + 8], flush_cache=False))
        self._taken(self.made.end_weight_update())

    def _taken(self, said):
        if not said[0]:
            raise SystemExit(f"SGLang did not take the new weights: {said[1]}")

    def attach_again(self):
        """As DELETE and PUT of /hicache/storage-backend do."""
        self.detach()
        self.attach()

    def detach(self):
        self._said(lambda: self.made.tokenizer_manager.detach_hicache_storage())

    def attach(self):
        self._said(lambda: self._attach(self.more["hicache_storage_backend_extra_config"]))

    def attach_nowhere(self):
        extra = json.loads(self.more["hicache_storage_backend_extra_config"])
        extra.update(endpoint=extra["endpoint"] + "-none", start_timeout_ms=500)
        said = self.made.loop.run_until_complete(self._attach(json.dumps(extra)))
        if said.success or "Start kvscoutd" not in said.message:
            raise SystemExit(f"SGLang attached a storage without a server, or said something else: {said}")

    def _attach(self, extra):
        return self.made.tokenizer_manager.attach_hicache_storage(
            "dynamic", hicache_storage_backend_extra_config_json=extra, hicache_storage_prefetch_policy="wait_complete",
            hicache_write_policy="write_through")

    def _said(self, call):
        """SGLang refuses until it is idle."""
        until = time.monotonic() + LIMIT_S
        while not (answer := self.made.loop.run_until_complete(call())).success:
            if time.monotonic() > until:
                raise SystemExit(f"SGLang did not do it: {answer}")
            time.sleep(0.05)

    def _wait(self):
        until = time.monotonic() + LIMIT_S
        while status(self.told, "l1.chunks") != self.pages:
            if time.monotonic() > until:
                raise SystemExit(f"the server has {status(self.told, 'l1.chunks')} pages, and not {self.pages}")
            time.sleep(0.05)


def status(told, name):
    said = subprocess.run([told["kvscoutd"], "--status", told["endpoint"]], check=True, capture_output=True, text=True)
    return next(int(line.split()[-1]) for line in said.stdout.splitlines() if line.split()[:1] == [name])


class Session:
    def __init__(self, arguments):
        self.arguments = arguments
        self.endpoint = f"ipc://{arguments.root}/s"
        self.server = None
        self.results = {"passed": 0, "failed": 0}
        self.models = {"model": arguments.model, "other_model": arguments.other_model, "hybrid_model": arguments.hybrid_model}
        self.references = {}

    def start_server(self):
        command = [self.arguments.kvscoutd, "--listen", self.endpoint, "--l1_bytes", "256Mi"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.server.stdout.readline()

    def stop_server(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        self.server = None

    def run_engine(self, name, plan, **told):
        """All answers of an engine, or None if it ended with an error. With kills the server is frozen, killed and started by turns."""
        out = f"{self.arguments.root}/{name}.json"
        told = {"endpoint": self.endpoint, "layout": plan.layout, "mode": plan.mode, **self.models, "model": self.models[plan.model], "out": out,
                "steps": ["ask"], "tp": plan.ranks, "kvscoutd": self.arguments.kvscoutd, **told}
        with open(f"{self.arguments.root}/{name}.log", "w", encoding="utf-8") as log:
            child = subprocess.Popen(
                [sys.executable, "-B", __file__, "--engine", json.dumps(told)], stdout=subprocess.PIPE, stderr=log, text=True,
                # A core for each rank; without it SGLang's ranks on a CPU need a NUMA node each.
                env={**os.environ, **({"SGLANG_CPU_OMP_THREADS_BIND": "0|1"} if plan.ranks > 1 else {}),
                     **({"KVSCOUT_TEST_UNGUARDED": "1"} if plan.unguarded else {})})
            watch = threading.Timer(LIMIT_S, child.kill)
            watch.start()
            prompts = 0
            for line in child.stdout:
                prompts += line.startswith("PROMPT")
                if told.get("kills") and line.startswith("PROMPT"):
                    self.trouble(prompts)
            watch.cancel()
            if child.wait() != 0:
                return None
        with open(out, encoding="ascii") as file:
            return json.load(file)

    def trouble(self, prompt):
        """Prompt 3 meets a frozen server, 4 the same one again, 5 none, 6 and later an empty one."""
        if prompt == 3:
            self.server.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.server.pid, os.WSTOPPED)
        elif prompt == 4:
            self.server.send_signal(signal.SIGCONT)
        elif prompt == 5:
            self.stop_server()
        elif prompt == 6:
            self.start_server()

    def case(self, name, ok, more=""):
        self.results["passed" if ok else "failed"] += 1
        print(f"{'ok' if ok else 'not ok'} {name}{': ' + more if more else ''}", flush=True)

    def classes(self):
        """The cases of test_sglang.py, with SGLang's own classes and torch."""
        tests = os.path.join(os.path.dirname(__file__), "..", "..", "python", "tests")
        command = [sys.executable, "-B", os.path.join(tests, "tap.py"), os.path.join(tests, "test_sglang.py")]
        said = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "KVSCOUTD": self.arguments.kvscoutd})
        cases = [line for line in said.stdout.splitlines() if line.startswith(("ok", "not ok"))]
        bad = [line for line in cases if line.startswith("not ok") or "# SKIP" in line]
        ok = said.returncode == 0 and bool(cases) and not bad
        self.case("test_sglang.py with SGLang's own classes", ok, "; ".join(bad) or f"{len(cases)} cases")

    def reference(self, which, ranks):
        """The answers of an engine without kvscout."""
        if (which, ranks) not in self.references:
            found = self.run_engine(f"sglang-reference-{which}-{ranks}", Plan(ranks=ranks, model=which), endpoint=None)
            self.case(f"an engine of {ranks} rank{'s' * (ranks > 1)} without kvscout ends well", found is not None)
            self.references[which, ranks] = found and found[0]
        return self.references[which, ranks]

    def run(self, name):
        plan = SESSIONS[name]
        self.start_server()
        try:
            for number, (does, steps, expected) in enumerate(plan.engines):
                found = self.run_engine(f"{name}-{number}", plan, steps=steps, kills=plan.kills and number == len(plan.engines) - 1)
                if found is None:
                    self.case(f"{name}: the engine that {does} ends well", False, f"see {self.arguments.root}/{name}-{number}.log")
                    return
                same = self.run_engine(f"{name}-reference-{number}", plan, steps=steps, endpoint=None) if plan.same_steps else None
                for at, (answers, (which, from_storage)) in enumerate(zip(found, expected, strict=True)):
                    right = same[at] if same else self.reference(which, plan.ranks)
                    is_wrong = plan.unguarded and number == len(plan.engines) - 1
                    self.compare(f"{name}: the engine that {does}", answers, right, from_storage, plan.kills, is_wrong)
        finally:
            self.stop_server()

    def compare(self, name, answers, reference, from_storage, kills, is_wrong):
        different = sum(a != b for (one, *_), (other, *_) in zip(answers, reference, strict=True) for a, b in zip(one, other, strict=True))
        total = sum(len(tokens) for tokens, *_ in answers)
        slowest = max(seconds for *_, seconds in answers)
        words = "answers otherwise than" if is_wrong else "answers as"
        self.case(f"{name} {words} one without kvscout", (different > 0) == is_wrong, f"{different} of {total} tokens differ, slowest {slowest:.1f} s")
        storage = [n for _, n, _ in answers]
        if from_storage:
            wanted = min(storage[:2] if kills else storage)
            self.case(f"{name} has prompts from kvscout", wanted >= TOKENS // PAGE * PAGE - PAGE, f"tokens of each prompt from storage: {storage}")
        elif from_storage is not None:
            self.case(f"{name} has no prompt from kvscout", not any(storage), f"tokens of each prompt from storage: {storage}")


def main():
    if sys.argv[1] == "--engine":
        return engine(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--kvscoutd", required=True)
    parser.add_argument("--model", help="a folder; by default the tiny Llama is made")
    parser.add_argument("sessions", nargs="*", metavar="SESSION")
    arguments = parser.parse_args()
    import models

    arguments.model = arguments.model or models.make("llama", arguments.root)
    arguments.other_model = models.make("llama", arguments.root, models.SEED + 1)
    arguments.hybrid_model = models.make("mellum", arguments.root)
    run = Session(arguments)
    run.classes()
    for name in run.arguments.sessions or SESSIONS:
        run.run(name)
    print(f"{run.results['passed']} passed, {run.results['failed']} failed, 0 skipped")
    return 1 if run.results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
