# SPDX-License-Identifier: Apache-2.0
"""The worker's CUDA backend under vLLM, without a GPU: the stand-in for libcuda.so.1 (tests/rigs/cuda_driver) is loaded in
front of all libraries, and says that the memory of the KV cache is a device's. So the connector's worker copies as it does
on a GPU, by itself: streams, events, registered memory, the kernel (the C that its PTX is compiled from).

This does not show PTX, nor that copies wait for the model's kernels: vLLM on a CPU computes in the calls themselves, and
gives no events (kvscout.vllm.device). tests/unit/copy shows the order of streams.
"""

import ctypes
import os
import random
import sys

import prompts
from checks import Cases, need
from engine import all_counts

AT_ONCE = 8
COUNTS = (
    "to_device",
    "to_host",
    "bytes_to_device",
    "bytes_to_host",
    "kernels",
    "pageable",
    "misused",
    "bad_addresses",
    "faults",
)


def library(kvscoutd):
    """Of the build that has @kvscoutd."""
    build = os.path.join(os.path.dirname(os.path.abspath(kvscoutd)), "..", "..")
    return os.path.realpath(os.path.join(build, "tests", "rigs", "cuda_driver", "libcuda.so.1"))


def on_the_device(session):
    """Such a session begins anew with the stand-in in its environment, which its workers inherit."""

    def preloaded(options):
        path = library(options.kvscoutd)
        if os.environ.get("LD_PRELOAD") == path:
            return session(options)
        if not os.path.exists(path):
            cases = Cases(options.only)
            cases.skip("device", f"there is no {path}: the build has no tests")
            return cases
        environment = {"LD_PRELOAD": path, "KVSCOUT_STANDIN_CUDA_ALL": "1", "KVSCOUT_STANDIN_CUDA_DELAY_US": "200"}
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, "-B", *sys.argv], os.environ | environment)

    return preloaded


def device_counts(worker):
    count = ctypes.CDLL(None).standin_count
    count.restype = ctypes.c_uint64
    return {name: count(name.encode()) for name in COUNTS}


def set_knob(worker, name, text):
    return ctypes.CDLL(None).standin_set(name.encode(), text.encode())


def _set(engine, name, text):
    need(not any(engine.on_workers(set_knob, name, text)), f"the stand-in does not take {name}={text}")


def _counts(engine):
    total = dict.fromkeys(COUNTS, 0)
    workers = engine.on_workers(device_counts)
    for found in workers:
        for name, value in found.items():
            total[name] += value
    return total, len(workers)


def every_byte_went_through_the_device(context, engine):
    """What the workers say they have moved is what the device was given."""
    found, workers = _counts(engine)
    counts = all_counts(engine)
    need(counts["load_bytes"] > 0 and counts["store_bytes"] > 0, "the workers moved nothing")
    need(found["bytes_to_device"] >= counts["load_bytes"], f"loads of {counts['load_bytes']} bytes, but {found}")
    need(found["bytes_to_host"] >= counts["store_bytes"], f"stores of {counts['store_bytes']} bytes, but {found}")
    need(found["kernels"] > 0, f"no kernel was launched: {found}")
    for name in ("misused", "bad_addresses"):
        need(found[name] == 0, f"the stand-in counts {name}={found[name]}")
    # A worker uploads its planes once as it opens.
    need(found["pageable"] <= workers, f"{found['pageable']} copies of memory that is not registered")
    return (
        f"{found['bytes_to_device']} bytes to the device in {found['to_device']} copies, {found['bytes_to_host']} back"
        f" in {found['to_host']}, {found['kernels']} kernels"
    )


def _stream(context, engine, between, requests):
    """Requests one behind the other, AT_ONCE at a time; @between runs in front of each step."""
    asked, n = prompts.of("stream")
    running, added, done = {}, 0, 0
    while done < requests:
        while added < requests and len(running) < AT_ONCE:
            running[engine.add(asked[added % len(asked)], n)] = added % len(asked)
            added += 1
        between()
        for name, answer in engine.step().items():
            at = running.pop(name)
            done += 1
            context.reference.compare([asked[at]], n, [answer])


ENTRIES = ("any", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuLaunchKernel", "cuEventRecord")


def calls_that_fail(context, engine):
    """A call of the driver fails now and then, at random: a job ends with it, and the engine computes what was not
    loaded."""
    draw = random.Random("faults")
    before = all_counts(engine)

    def between():
        if draw.random() < 0.2:
            fault = f"{draw.choice(ENTRIES)}:{draw.randint(1, 6)}:{draw.choice((1, 2, 999))}"
            _set(engine, "FAULT", fault)

    _stream(context, engine, between, 150 if context.short else 400)
    _set(engine, "FAULT", "")
    engine.drain()
    after = all_counts(engine)
    failed = {kind: after[f"{kind}s_failed"] - before.get(f"{kind}s_failed", 0) for kind in ("load", "store")}
    faults = _counts(engine)[0]["faults"]
    need(faults > 0 and failed["load"] > 0 and failed["store"] > 0, f"{faults} calls failed, and with them {failed}")
    loaded = after["loaded_tokens"] - before.get("loaded_tokens", 0)
    need(loaded > 0, "nothing was loaded between the failures")
    return (
        f"{faults} calls failed, and with them {failed['load']} loads and {failed['store']} stores; {loaded} tokens"
        " loaded"
    )


def a_device_that_fails(context, engine):
    """For good: every job on it ends, later ones too, and the engine computes."""
    before = all_counts(engine)
    _set(engine, "STICKY", "20:700")
    _stream(context, engine, lambda: None, 60)
    engine.drain()
    engine.forget()
    asked, n = prompts.of("shared")
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.drain()
    after = all_counts(engine)
    need(after["loads_failed"] > before["loads_failed"], "no load failed")
    failed = {kind: after[f"{kind}s_failed"] - before[f"{kind}s_failed"] for kind in ("load", "store")}
    return f"{failed['load']} loads and {failed['store']} stores failed"
