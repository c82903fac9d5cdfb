# SPDX-License-Identifier: Apache-2.0
"""Cases of a model with several KV cache groups: full attention beside windows, under vLLM's hybrid memory manager."""

import os
import struct
import time

import prompts
from checks import need
from models import GEMMA_WINDOW

CHUNK = 128
# In the header of an object in a file (libserver/l2/object.h): group, KV rank, length of the hash, hash.
KEY_AT, KEY = 40 + 2 + 16 + 8, struct.Struct("<HHB")


def the_hybrid_manager_is_on(engine):
    """vLLM switches it off for a connector that does not know groups; then all layers are one group."""
    config = engine.scheduler.vllm_config.scheduler_config
    need(config.disable_hybrid_kv_cache_manager is False, "vLLM has switched its hybrid memory manager off")
    kinds = [type(group.kv_cache_spec).__name__ for group in engine.scheduler.kv_cache_config.kv_cache_groups]
    need(
        sorted(kinds) == ["FullAttentionSpec", "SlidingWindowSpec", "SlidingWindowSpec"],
        f"the KV cache groups are {kinds}",
    )
    return f"groups: {', '.join(group.item() for group in engine.side._groups)}"


def a_window_object_that_is_gone_gives_a_shorter_hit(context, engine, server, folder):
    """Of all that is stored of a prompt one object of a window is removed, the last one in front of the longest hit. The
    longest hit is then as much shorter as the window has to move, and the answer is the same."""
    asked, n = prompts.of("partial")
    asked = asked[1:]
    hashes = _hashes_of_stores(engine)
    context.reference.compare(asked, n, engine.run(asked, n))
    engine.drain()
    whole = len(asked[0]) // CHUNK * CHUNK
    status = server.wait_until(lambda s: s["l2.writes.done"] >= 3 * whole // CHUNK and not s["l2.writes.waiting"], 60)
    need(not status["l2.writes.failed"], f"{status['l2.writes.failed']} objects were not written to L2")
    need(_load(context, engine, asked, n) == whole, "not all that was stored was loaded")

    windows = [number for number, group in enumerate(engine.side._groups) if group.policy == "window"]
    shorter = whole - CHUNK
    need(len(windows) == 2 and GEMMA_WINDOW > CHUNK, f"the model has {len(windows)} groups with a window")
    server.stop()
    removed = _remove(folder, windows[0], hashes[whole])
    server.start()
    # The server reads its files, and the engine finds the server, in the background.
    end = time.monotonic() + 60
    while not (found := _load(context, engine, asked, n)) and time.monotonic() < end:
        pass
    need(found == shorter, f"without that object {found} tokens were loaded, not {shorter}")
    need(_load(context, engine, asked, n) == shorter, "a second load is of another length")
    return f"{removed} removed: {whole} tokens loaded before, {found} after"


def _load(context, engine, asked, n):
    """Tokens that are loaded for @asked, of which nothing is stored again."""
    need(engine.forget(), "the engine's own cache could not be emptied")
    before = engine.side.counts["load_tokens"]
    context.reference.compare(asked, n, engine.run(asked, n, transfer={"skip_write": True}))
    return engine.side.counts["load_tokens"] - before


def _hashes_of_stores(engine):
    """Filled with what is stored from now on: the hash of each chunk by the token at its end."""
    side, found = engine.side, {}
    build_meta = side.build_meta

    def watched(scheduler_output):
        meta = build_meta(scheduler_output)
        for store in meta.stores:
            for at, digest in enumerate(store.hashes, 1):
                found[store.first_token + at * side._groups.hash_tokens] = digest
        return meta

    side.build_meta = watched
    return found


def _remove(folder, group, digest):
    """Removes the file of one object."""
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                header = file.read(512)
            if len(header) < 512 or header[:7] != b"KVSCOUT":
                continue
            its_group, _, hash_len = KEY.unpack_from(header, KEY_AT)
            begin = KEY_AT + KEY.size
            if its_group == group and header[begin : begin + hash_len] == digest:
                os.unlink(os.path.join(path, name))
                return f"{name} of group {group}"
    raise RuntimeError(f"{folder} has no object of group {group} with the hash {digest.hex()}")
