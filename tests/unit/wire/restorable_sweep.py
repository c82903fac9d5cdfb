#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lengths can be restored: generated cases, answered by restorable.c, by brute force, and by vLLM's own managers.

The brute force names, for each length, each token that a group needs (the rules of GROUPS in protocol.h), and the objects that these
tokens lie in. It shares nothing with restorable.c but the rules. Where this Python can import vLLM, each length at the end of a
group's block is also asked of the manager of that group's kind (vllm/v1/core/single_type_kv_cache_manager.py), and the longest one of
the coordinator of hybrid models (kv_cache_coordinator.py); elsewhere that part is skipped. TAP.

usage: restorable_sweep.py PROGRAM [CASES [SEED]]     PROGRAM: restorable_cases of the build
"""

import math
import random
import subprocess
import sys
from types import SimpleNamespace

ALL, WINDOW, LOCAL, STATE = range(4)
KINDS = ["all", "window", "local", "state"]


class Group:
    def __init__(self, policy, unit, span, margin):
        self.policy, self.unit, self.span, self.margin = policy, unit, span, margin
        self.ranks = []  # of each rank: a list of booleans
        self.present = []  # on all ranks


class Case:
    """Groups of one model, and which of their objects there are."""

    def __init__(self, rng):
        self.hash_tokens = rng.choice([1, 2, 3, 4])
        self.at_most = rng.randrange(0, 25)
        self.skip = rng.choice([0, 0, rng.randrange(0, self.at_most + 1)])
        self.groups = [self.group(rng) for _ in range(rng.choice([1, 1, 2, 2, 3, 4, 6]))]
        n_ranks = rng.choice([1, 1, 2, 4])
        for group in self.groups:
            n = self.at_most * self.hash_tokens // group.unit + rng.choice([0, 0, 1, 2])
            lost = rng.choice([0, 0.03, 0.1, 0.3, 0.7])
            group.ranks = [[rng.random() >= lost / n_ranks for _ in range(n)] for _ in range(n_ranks)]
            group.present = [all(of_rank[i] for of_rank in group.ranks) for i in range(n)]

    def group(self, rng):
        policy = rng.randrange(4)
        unit = self.hash_tokens * rng.choice([1, 1, 1, 2, 3, 4])
        span = rng.randrange(1, 50) if policy in (WINDOW, LOCAL) else 0
        margin = rng.choice([0, 0, 0, unit, rng.randrange(1, 10)])
        return Group(policy, unit, span, margin)

    def line(self):
        words = [self.hash_tokens, self.skip, self.at_most, len(self.groups), len(self.groups[0].ranks)]
        for g in self.groups:
            words += [g.policy, g.unit, g.span, g.margin, len(g.present)]
            for of_rank in g.ranks:
                words += map(int, of_rank)
        return " ".join(map(str, words))


# ---- brute force -------------------------------------------------------------------------------------------------------


def tokens_needed(group, length):
    """Each token that the group needs, if @length tokens are to be there."""
    if group.policy == ALL:
        before = range(length)
    elif group.policy == WINDOW:  # the next token sees itself and span - 1 before it
        before = [t for t in range(length) if t >= length - (group.span - 1)]
    elif group.policy == LOCAL:  # the next token sees those of its own run
        before = [t for t in range(length) if t // group.span == length // group.span]
    else:
        before = [length - 1]
    return list(before) + list(range(length, length + group.margin))


def objects_needed(case, group, length):
    """Numbers of the objects; None: no object ends where one has to."""
    if group.policy in (ALL, STATE) and length % group.unit != 0:
        return None
    objects = {t // group.unit for t in tokens_needed(group, length)}
    return {o for o in objects if (o + 1) * group.unit > case.skip * case.hash_tokens}


def is_there(group, objects):
    return objects is not None and all(o < len(group.present) and group.present[o] for o in objects)


def lengths_of(case):
    tokens = {length: length * case.hash_tokens for length in range(case.at_most, 0, -1)}
    return [length for length, t in tokens.items() if all(is_there(g, objects_needed(case, g, t)) for g in case.groups)]


def expected(case):
    lengths = lengths_of(case)
    needs = []
    for group in case.groups:
        objects = objects_needed(case, group, lengths[0] * case.hash_tokens) if lengths else set()
        assert not objects or objects == set(range(min(objects), max(objects) + 1))
        needs += [min(objects), max(objects) + 1] if objects else [0, 0]
    return lengths, needs


def ask(program, cases):
    text = "\n".join(case.line() for case in cases) + "\n"
    out = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(out) == len(cases)
    answers = []
    for line in out:
        lengths, needs = line.split(":")
        answers.append(([int(word) for word in lengths.split()], [int(word) for word in needs.split()]))
    return answers


# ---- vLLM's managers ---------------------------------------------------------------------------------------------------


class Pool:
    """What a manager asks of a block pool, about one or several groups. A hash is the number of its end in the prompt."""

    null_block = object()

    def __init__(self, case):
        self.case = case
        self.hash_block_size = case.hash_tokens

    def get_cached_block(self, number, group_ids):
        found = []
        for i in group_ids:
            group = self.case.groups[i]
            end = (number + 1) * self.case.hash_tokens
            at = end // group.unit - 1
            if end % group.unit or at >= len(group.present) or not group.present[at]:
                return None
            found.append((i, at))
        return found


class Managers:
    """Finders of vLLM for our groups; raises ImportError without vLLM."""

    def __init__(self):
        import torch
        from vllm.v1 import kv_cache_interface as specs
        from vllm.v1.core import kv_cache_coordinator as coordinator
        from vllm.v1.core import single_type_kv_cache_manager as managers

        self.specs, self.torch, self.coordinator = specs, torch, coordinator
        self.classes = [managers.FullAttentionManager, managers.SlidingWindowManager, managers.ChunkedLocalAttentionManager,
                        managers.MambaManager]

    def knows(self, case, group):
        """False: what vLLM has no case of. Margins other than a block, or of local and state groups; a part that the GPU has; a window
        of one token, which needs no object, and vLLM asks for one all the same."""
        if case.skip > 0 or (group.policy == WINDOW and group.span == 1):
            return False
        return group.margin == 0 or (group.margin == group.unit and group.policy in (ALL, WINDOW))

    def spec(self, group):
        heads = {"block_size": group.unit, "num_kv_heads": 1, "head_size": 1, "dtype": self.torch.float32}
        if group.policy == ALL:
            return self.specs.FullAttentionSpec(**heads)
        if group.policy == WINDOW:
            return self.specs.SlidingWindowSpec(sliding_window=group.span, **heads)
        if group.policy == LOCAL:
            return self.specs.ChunkedLocalAttentionSpec(attention_chunk_size=group.span, **heads)
        return self.specs.MambaSpec(block_size=group.unit, shapes=((1,),), dtypes=(self.torch.float32,), mamba_cache_mode="all")

    def longest(self, case, number, max_length):
        """The hit in tokens that the group's manager finds."""
        group = case.groups[number]
        _, length = self.classes[group.policy].find_longest_cache_hit(
            block_hashes=list(range(max_length // case.hash_tokens)), max_length=max_length, kv_cache_group_ids=[number],
            block_pool=Pool(case), kv_cache_spec=self.spec(group), drop_eagle_block=group.margin > 0, alignment_tokens=group.unit)
        return length

    def allows(self, case, number, length):
        return self.longest(case, number, length + case.groups[number].margin) == length

    def of_all(self, case):
        """What the coordinator of hybrid models finds; lengths are multiples of all units."""
        groups, self_specs = case.groups, [self.spec(g) for g in case.groups]
        hybrid = object.__new__(self.coordinator.HybridKVCacheCoordinator)
        pool = Pool(case)
        hybrid.hash_block_size = case.hash_tokens
        hybrid.scheduler_block_size = math.lcm(*[g.unit for g in groups])
        hybrid.enable_partial_hash_hits = False
        hybrid.kv_cache_config = SimpleNamespace(kv_cache_groups=groups)
        hybrid.single_type_managers = [SimpleNamespace(block_size=g.unit, block_pool=pool, dcp_world_size=1, pcp_world_size=1,
                                                       retains_longer_hit=False) for g in groups]
        hybrid.attention_groups = [self.coordinator.SpecGroup(s, [i], self.classes[g.policy], g.margin > 0)
                                   for i, (g, s) in enumerate(zip(groups, self_specs))]
        hybrid.attention_groups.sort(key=lambda g: not isinstance(g.spec, self.specs.FullAttentionSpec))
        known = min([case.at_most * case.hash_tokens] + [len(g.present) * g.unit for g in groups])
        known -= known % hybrid.scheduler_block_size
        return hybrid.find_longest_cache_hit(list(range(case.at_most)), known)[1], known


def check_managers(vllm, case):
    """(lengths asked, faults)"""
    asked, faults = 0, []
    for number, group in enumerate(case.groups):
        if not vllm.knows(case, group):
            continue
        for length in range(group.unit, case.at_most * case.hash_tokens + 1, group.unit):
            ours = is_there(group, objects_needed(case, group, length))
            asked += 1
            if vllm.allows(case, number, length) != ours:
                faults.append(f"{KINDS[group.policy]} unit {group.unit} span {group.span} margin {group.margin}, "
                              f"{length} tokens: ours {ours}; present {list(map(int, group.present))}")
    return asked, faults


def check_coordinator(vllm, case, lengths):
    """(1 if it was asked, faults). Left out are draft heads, for which it searches and may stop early, and local attention whose
    blocks are not those of the alignment or lie across a run's start: there it returns the start of a block inside the run before,
    20 tokens for runs of 21 in blocks of 2, without looking at that run."""
    units = math.lcm(*[g.unit for g in case.groups])
    runs_fit = all(g.policy != LOCAL or (g.unit == units and g.span % units == 0) for g in case.groups)
    if not runs_fit or not all(vllm.knows(case, g) and g.margin == 0 for g in case.groups):
        return 0, []
    theirs, known = vllm.of_all(case)
    ours = next((n * case.hash_tokens for n in lengths if n * case.hash_tokens % units == 0 and n * case.hash_tokens <= known), 0)
    return 1, [] if ours == theirs else [f"all groups: ours {ours}, vLLM's {theirs}: {case.line()}"]


# ---- the test ------------------------------------------------------------------------------------------------------------


def report(number, name, faults):
    for fault in faults[:20]:
        print(f"# {fault}")
    print(f"{'not ok' if faults else 'ok'} {number} - {name}")
    return bool(faults)


def main():
    program = sys.argv[1]
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 12000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    cases = [Case(rng) for _ in range(n)]
    answers = ask(program, cases)
    print("1..3")
    faults, hits = [], 0
    for case, (lengths, needs) in zip(cases, answers):
        want = expected(case)
        hits += bool(lengths)
        if (lengths, needs) != want:
            faults.append(f"{lengths} {needs}, brute force {want}: {case.line()}")
    failed = report(1, f"{n} cases by brute force, {hits} with a length, {len(faults)} different", faults)
    try:
        vllm = Managers()
    except ImportError as e:
        print(f"ok 2 - vLLM's managers # SKIP {e}\nok 3 - vLLM's coordinator # SKIP {e}")
        return failed
    asked, faults, coordinated, cofaults = 0, [], 0, []
    for case, (lengths, _) in zip(cases, answers):
        more, bad = check_managers(vllm, case)
        asked, faults = asked + more, faults + bad
        more, bad = check_coordinator(vllm, case, lengths)
        coordinated, cofaults = coordinated + more, cofaults + bad
    failed |= report(2, f"{asked} lengths by vLLM's managers, {len(faults)} different", faults)
    failed |= report(3, f"{coordinated} cases by vLLM's coordinator, {len(cofaults)} different", cofaults)
    return failed


if __name__ == "__main__":
    sys.exit(main())
