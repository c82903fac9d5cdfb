# SPDX-License-Identifier: Apache-2.0
"""Continuous batching of transformers with a Llama of random weights. Between two steps, the KV blocks of all requests can be stored by a
worker, spoiled, and loaded again; the logits of all steps tell whether that changed a bit.

Which tensors hold the blocks is transformers' own business, and differs: up to 5.17 keys and values of each layer have a tensor, later all
layers of a block lie in one piece."""

import os
import time

PAGE_TOKENS = 16
SPOILED = 0x5A
LIMIT_S = 30
SWAPPED_STEPS = (3, 7, 8, 20)  # in these, some requests are in their prompts, and others have generated
LATE_STEP = 6  # more requests come


def make_model(device):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        max_position_embeddings=1024, attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).to(device, torch.bfloat16).eval()


def prompts():
    """Of one token to many pages; and those that come late."""
    import random

    chance = random.Random(5)
    made = [[chance.randrange(3, 512) for _ in range(n)] for n in (1, 16, 37, 200, 95, 64, 150, 31)]
    return made[:5], made[5:]


def rows_and_tables(cache):
    """Tensors of bytes, a row for each block; and the blocks of each request. None: this version keeps them in another way."""
    import torch

    if hasattr(cache, "cache_allocators"):
        (allocator,) = cache.cache_allocators.values()
        return [allocator._copy_view], allocator.block_table
    if hasattr(cache, "key_cache") and hasattr(cache, "group_cache_managers"):
        tensors = [*cache.key_cache, *cache.value_cache]
        (manager,) = cache.group_cache_managers
        return [tensor.view(-1, PAGE_TOKENS * tensor[0].numel()).view(torch.uint8) for tensor in tensors], manager.block_table
    return None


class Swap:
    """Stores the blocks of all requests, spoils them, and, if @is_whole, loads them again."""

    def __init__(self, client, worker, record, is_whole=True):
        self.client, self.worker, self.record, self.is_whole = client, worker, record, is_whole
        self.steps = self.blocks = 0
        self.is_registered = False

    def __call__(self, rows, tables):
        if not self.is_registered:
            planes = [(row.data_ptr(), row.stride(0), row.shape[1]) for row in rows]
            self.worker.register(planes, PAGE_TOKENS, n_blocks=len(rows[0]), timeout_ms=LIMIT_S * 1000)
            self.is_registered = True
        jobs = {name: (ids, [os.urandom(32) for _ in ids]) for name, ids in tables.items() if ids}
        self._wait([self.worker.store(0, hashes, ids, event=self.record()) for ids, hashes in jobs.values()])
        for ids, _ in jobs.values():
            for row in rows:
                row[ids] = SPOILED
        self.steps += 1
        self.blocks += sum(len(ids) for ids, _ in jobs.values())
        if self.is_whole:
            self._wait([self._load(f"{self.steps} {name}", *job) for name, job in jobs.items()])

    def _load(self, name, ids, hashes):
        tokens = len(ids) * PAGE_TOKENS
        hit = self.client.wait_lookup(name, hashes, tokens + 1)
        assert hit.tokens == tokens, f"of {tokens} tokens {hit.tokens} were found ({hit.reason})"
        self.client.admit(name)
        return self.worker.retrieve(hit.ticket, 0, tokens, ids, after=self.record())

    def _wait(self, jobs):
        left, until = set(jobs), time.monotonic() + LIMIT_S
        while left:
            for done in self.worker.poll():
                assert done.ok, done
                left.discard(done.job)
            assert time.monotonic() < until, f"jobs {left} did not end"


def generate(model, swap=None):
    """The logits of every step, in their order, and what was generated. @swap: called between steps."""
    import torch
    from transformers import ContinuousBatchingConfig, GenerationConfig

    early, late = prompts()
    logits, failed = [], []
    wanted = {
        "page_size": PAGE_TOKENS, "block_size": PAGE_TOKENS, "num_blocks": 128, "max_batch_tokens": 128, "allow_block_sharing": False,
        "use_async_batching": False, "use_cuda_graph": False, "auto_switch_to_flash": False,
    }
    if hasattr(ContinuousBatchingConfig, "page_size"):
        del wanted["block_size"]  # its older name
    config = ContinuousBatchingConfig(**{key: value for key, value in wanted.items() if hasattr(ContinuousBatchingConfig, key)})
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(max_new_tokens=24, do_sample=False, eos_token_id=-1, pad_token_id=0), continuous_batching_config=config
    )
    step, count = manager._generation_step, 0

    def between():
        nonlocal count
        try:
            if swap and count in SWAPPED_STEPS:
                swap(*rows_and_tables(manager.batch_processor.cache))
        except Exception as error:  # the manager's thread would only log it
            failed.append(error)
            raise
        if count == LATE_STEP:
            add(manager, late, len(early))
        count += 1
        step()

    manager._generation_step = between
    hook = model.lm_head.register_forward_hook(lambda module, given, made: logits.append(made.detach().cpu().clone()))
    try:
        add(manager, early, 0)  # before the start, so that the first step has them all
        manager.start()
        found = results(manager, len(early) + len(late), failed)
    finally:
        manager.stop(block=True, timeout=LIMIT_S)
        hook.remove()
    return logits, found


def add(manager, prompts, first):
    for number, prompt in enumerate(prompts, first):
        manager.add_request(prompt, request_id=f"request {number}")


def results(manager, n, failed):
    found, until = {}, time.monotonic() + LIMIT_S
    while len(found) < n:
        result = manager.get_result(timeout=0.2)
        if result is not None and result.is_finished():
            found[result.request_id] = list(result.generated_tokens)
        if failed:
            raise failed[0]
        assert time.monotonic() < until and (manager.is_running() or result), f"{len(found)} of {n} requests ended"
    return found


def same(one, other):
    """Whether two runs had the same logits, bit for bit, and the same tokens."""
    import torch

    bits = [[step.view(torch.int16) for step in run[0]] for run in (one, other)]
    return len(bits[0]) == len(bits[1]) and all(map(torch.equal, *bits)) and one[1] == other[1]
