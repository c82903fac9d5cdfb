#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./dev engine sglang`: the real SGLang on the CPU. An engine without kvscout says which tokens are right; one with it stores; one in a
new process, whose memory is empty, must give the same tokens and have the prompts from kvscout. The last line is
`N passed, N failed, N skipped`.

usage: sglang_run.py --root FOLDER --kvscoutd PROGRAM [SESSION...]
       sglang_run.py --engine JSON   (one engine, in a process of its own)
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

# Name: (--hicache-mem-layout, --hicache-host-memory-mode, what happens to the server while the last engine runs)
SESSIONS = {
    "sglang": ("page_first_direct", "cache", None),
    "sglang-layers": ("layer_first", "cache", None),
    "sglang-buffer": ("layer_first", "buffer_only", None),
    "sglang-kills": ("page_first_direct", "cache", "kills"),
}
PROMPTS, TOKENS, PAGE = 8, 600, 16
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
        dtype="float32", mem_fraction_static=0.3, log_level="info", **more)
    drawn, answers = random.Random(5), []
    for _ in range(PROMPTS):
        prompt = [drawn.randrange(3, 500) for _ in range(TOKENS)]
        print("PROMPT", flush=True)
        answer = made.generate(input_ids=prompt, sampling_params={"temperature": 0, "max_new_tokens": 16, "ignore_eos": True})
        details = answer["meta_info"].get("cached_tokens_details") or {}
        answers.append([answer["output_ids"], details.get("storage", 0)])
    with open(told["out"], "w", encoding="ascii") as file:
        json.dump(answers, file)
    if told["stored"]:
        wait_stored(told)
    made.shutdown()


def wait_stored(told):
    """Stores are SGLang's own business after an answer: until the server has all whole pages."""
    until = time.monotonic() + LIMIT_S
    while status(told, "l1.chunks") < told["stored"]:
        if time.monotonic() > until:
            raise SystemExit(f"the server has {status(told, 'l1.chunks')} pages, and {told['stored']} were expected")
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

    def start_server(self):
        command = [self.arguments.kvscoutd, "--listen", self.endpoint, "--l1_bytes", "256Mi"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.server.stdout.readline()

    def stop_server(self):
        if self.server is not None:
            self.server.kill()
            self.server.wait()
        self.server = None

    def run_engine(self, name, session, **told):
        """The answers of an engine, or None if it ended with an error. With kills the server is frozen, killed and started by turns."""
        layout, mode, _ = session
        out = f"{self.arguments.root}/{name}.json"
        told = {"endpoint": self.endpoint, "layout": layout, "mode": mode, "model": self.arguments.model, "out": out, "stored": 0,
                "kvscoutd": self.arguments.kvscoutd, **told}
        with open(f"{self.arguments.root}/{name}.log", "w", encoding="utf-8") as log:
            child = subprocess.Popen([sys.executable, "-B", __file__, "--engine", json.dumps(told)], stdout=subprocess.PIPE, stderr=log, text=True)
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
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "KVSCOUTD": self.arguments.kvscoutd})
        cases = [line for line in said.stdout.splitlines() if line.startswith(("ok", "not ok"))]
        bad = [line for line in cases if line.startswith("not ok") or "# SKIP" in line]
        self.case("test_sglang.py with SGLang's own classes", said.returncode == 0 and bool(cases) and not bad, "; ".join(bad) or f"{len(cases)} cases")

    def run(self, name, reference):
        session = SESSIONS[name]
        pages = PROMPTS * (TOKENS // PAGE)
        self.start_server()
        try:
            first = self.run_engine(name + "-store", session, stored=pages)
            second = self.run_engine(name + "-load", session, kills=session[2]) if first else None
        finally:
            self.stop_server()
        for which, found in (("stores", first), ("loads", second)):
            if found is None:
                self.case(f"{name}: the engine that {which} ends well", False, f"see {self.arguments.root}/{name}-*.log")
                continue
            different = sum(a != b for (one, _), (other, _) in zip(found, reference, strict=True) for a, b in zip(one, other, strict=True))
            total = sum(len(tokens) for tokens, _ in found)
            self.case(f"{name}: the engine that {which} answers as one without kvscout", different == 0, f"{different} of {total} tokens differ")
        if second is not None:
            storage = [n for _, n in second]
            wanted = min(storage[:2]) if session[2] else min(storage)
            self.case(f"{name}: prompts come from kvscout", wanted >= TOKENS // PAGE * PAGE - PAGE, f"tokens of each prompt from storage: {storage}")


def main():
    if sys.argv[1] == "--engine":
        return engine(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--kvscoutd", required=True)
    parser.add_argument("--model", help="a folder; by default the tiny Llama is made")
    parser.add_argument("sessions", nargs="*", metavar="SESSION")
    arguments = parser.parse_args()
    if arguments.model is None:
        import models

        arguments.model = models.make("llama", arguments.root)
    run = Session(arguments)
    reference = run.run_engine("sglang-reference", SESSIONS["sglang"], endpoint=None)
    run.case("an engine without kvscout ends well", reference is not None)
    run.classes()
    for name in run.arguments.sessions or SESSIONS:
        if reference is not None:
            run.run(name, reference)
    print(f"{run.results['passed']} passed, {run.results['failed']} failed, 0 skipped")
    return 1 if run.results["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
