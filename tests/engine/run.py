#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the sessions of `./dev engine`, one engine at a time, and adds up their cases. The last line is `N passed, N
failed, N skipped`.

usage: run.py --root FOLDER --kvscoutd PROGRAM [--short] [--list] [SESSION...]

A named session runs after those whose files it reads: its reference, unless that has passed since the files that it is made from were
written, and what fills its store. --list prints the names of the sessions that would run.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# In order: a reference comes before the sessions that compare with it. (name, starts of an engine, limit in seconds)
SESSIONS = (
    ("llama-reference", 1, 900),
    ("llama", 1, 1200),
    ("llama-kills", 1, 3000),
    ("llama-device", 1, 1200),
    ("llama-device-faults", 1, 1200),
    ("llama-device-kills", 1, 3000),
    ("llama-absent", 1, 900),
    ("llama-files-store", 1, 900),
    ("llama-files-load", 1, 900),
    ("llama-redis-store", 1, 900),
    ("llama-redis-load", 1, 900),
    ("llama-partial", 1, 900),
    ("llama-two", 2, 1200),
    ("llama-two-versions", 2, 1200),
    ("llama-reset", 1, 900),
    ("llama-ngram", 1, 900),
    ("llama-draft", 1, 900),
    ("llama-eagle", 1, 900),
    ("llama-eagle-tp2", 1, 900),
    ("llama-tp2", 1, 900),
    ("llama-pp2", 1, 900),
    ("llama-multi", 1, 900),
    ("llama-hooks", 1, 900),
    ("llama-verify", 1, 2400),
    ("llama-verify-tp2", 1, 900),
    ("llama-sync", 1, 1200),
    ("llama-sync-kills", 1, 3000),
    ("window-reference", 1, 900),
    ("window", 1, 900),
    ("gemma-reference", 1, 900),
    ("gemma", 1, 1200),
    ("gemma-evicted", 1, 900),
    ("gemma-kills", 1, 3000),
    ("gemma-blocks", 1, 900),
    ("gemma-verify", 1, 900),
    ("recurrent-reference", 1, 900),
    ("recurrent", 1, 900),
    ("mla", 1, 1800),
    ("mla-tp2", 1, 1800),
    ("lora-reference", 1, 900),
    ("lora", 1, 900),
    ("lora-verify", 1, 900),
    ("images-reference", 1, 900),
    ("images", 1, 900),
    ("images-verify", 1, 900),
    ("prefix-verify", 1, 900),
    ("identity", 33, 3900),
    ("serve", 2, 1200),
    ("start", 0, 300),
    ("groups-manager", 0, 600),
    ("tier-manager", 0, 600),
    ("tier", 1, 900),
    ("tier-tp2", 1, 900),
    ("tier-gemma", 1, 900),
    ("events-dynamo", 2, 1800),
)
SHORT = ("llama-reference", "llama", "llama-kills")
# The models of sessions whose name does not begin with it, and what references are made from.
MODELS = {"serve": "llama", "tier": "llama", "tier-tp2": "llama", "tier-gemma": "gemma", "prefix-verify": "llama"}
MADE_FROM = ("models.py", "prompts.py", "reference.py", "variants.py")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# What a CPU cannot show; named in each run so that no reader takes it for tested.
NOT_RUN = (
    "asynchronous scheduling (vLLM turns it off on a CPU)",
    "vLLM's model runner V2 (it needs Triton)",
    "KV in GPU memory, CUDA events of the model's (the sessions llama-device copy on a stand-in for the driver)",
    "workers that are forked (the CPU build spawns them)",
)
# What a CPU could show, and why it does not.
NOT_COMPARED = (
    "answers of models with MLA (this build does not repeat its own; the bytes of their KV are compared)",
    (
        "answers of models with recurrent layers when requests run at once or are aborted, and behind the engine's own"
        " cached prefix (an engine without a connector gives others there, too)"
    ),
)


def passed_file(root, name):
    return os.path.join(root, f"{name}.passed")


def first(name, root):
    """The sessions whose files this one reads and that have to run before it."""
    if name.endswith("-reference"):
        return []
    reference = MODELS.get(name, name.split("-")[0]) + "-reference"
    passed = passed_file(root, reference)
    made_from = max(os.path.getmtime(os.path.join(HERE, file)) for file in MADE_FROM)
    fresh = os.path.exists(passed) and os.path.getmtime(passed) >= made_from
    return ([] if fresh else [reference]) + ([name[: -len("load")] + "store"] if name.endswith("-load") else [])


def run_session(name, limit, options, command=None):
    """(passed, failed, skipped) of one session, or of another program's @command. One that ends badly without saying so is a failure."""
    log = os.path.join(options.root, f"{name}.log")
    if command is None:
        command = [sys.executable, "-B", os.path.join(HERE, "session.py"), name, "--root", options.root, "--kvscoutd", options.kvscoutd]
        command += ["--short"] * options.short
    start = time.monotonic()
    if os.path.exists(passed_file(options.root, name)):
        os.unlink(passed_file(options.root, name))
    with open(log, "w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            end_group(process)
    with open(log) as file:
        lines = file.read().splitlines()
    for line in lines:
        if line.startswith("== "):
            print(f"{name}: {line[3:]}", flush=True)
    counts = next((COUNTS.match(line) for line in reversed(lines) if COUNTS.match(line)), None)
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    if status == 0 and name.endswith("-reference"):
        open(passed_file(options.root, name), "w").close()
    if counts is not None and status in (0, 1):
        return [int(n) for n in counts.groups()]
    done = [sum(line.startswith(f"== {word} ") for line in lines) for word in ("passed", "failed", "skipped")]
    reason = f"did not end in {limit} s" if status is None else f"ended with status {status}"
    print(f"{name}: FAILED, it {reason}; its log is {log}", flush=True)
    print("\n".join(lines[-30:]), flush=True)
    return [done[0], done[1] + 1, done[2]]


def end_group(process):
    """Workers of an engine that died would otherwise stay."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--kvscoutd", required=True)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("sessions", nargs="*")
    options = parser.parse_args()
    known = [name for name, _, _ in SESSIONS]
    for name in options.sessions:
        if name not in known:
            parser.error(f"there is no session {name}; there are: {' '.join(known)}")
    wanted = set(options.sessions or (SHORT if options.short else known))
    wanted.update(*(first(name, options.root) for name in options.sessions))
    if options.list:
        print("\n".join(name for name in known if name in wanted))
        return 0
    total = [0, 0, 0]
    starts = 0
    for name, n, limit in SESSIONS:
        if name in wanted:
            starts += n
            total = [a + b for a, b in zip(total, run_session(name, limit, options))]
    print(f"{starts} starts of the engine. Not run, because a CPU cannot show it: " + "; ".join(NOT_RUN))
    print("Not compared: " + "; ".join(NOT_COMPARED))
    print("{} passed, {} failed, {} skipped".format(*total))
    return 0 if total[1] == 0 and total[0] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
