# SPDX-License-Identifier: Apache-2.0
"""vLLM's KV cache groups in kvscout's words. Runs in every process of the engine, and gives the same answer in all of
them; imports nothing of vLLM.

A group is a set of layers with one block table. What a group needs of a prompt, so that the engine can go on after
the first L tokens, is its policy; the rules are those by which vLLM finds its own prefixes (the managers in
vllm/v1/core/single_type_kv_cache_manager.py):

    full attention, MLA      all            everything up to L
    sliding window           window:SPAN    the SPAN - 1 tokens before L. vLLM keeps extra_retained_tokens more of a
                                            window for drafts of several tokens; they count as part of it
    chunked local attention  local:SPAN     the tokens of the current run of SPAN up to L
    recurrent (Mamba)        state          the state after exactly L tokens
    a draft model's layers   margin         besides what their policy says: one block after L. vLLM matches one block
                                            more than it takes, because a draft layer's last KV depends on the next
                                            token

A group that vLLM keeps out of its prefix cache (prefix_cacheable), or out of transfers (enable_kv_transfer), is
scratch memory that the engine makes anew. It is left out here, too, so kvscout's numbers of the groups are not vLLM's.

UNITS  vLLM frees the blocks of a window as soon as the window has left them, also in the middle of a prompt. A store
reads an object in the step that computes its last token; what is then in the window is what lies less than SPAN tokens
before the first token of that step. So an object of a window may be a whole chunk if the window is longer than that;
of a shorter one each block is an object of its own. The same holds for the runs of local attention: an object must not
begin before a run that it ends in.

STATES  A recurrent layer's block holds the state at its end, but only at lengths at which a step has ended: vLLM ends
the steps of a prompt at ends of blocks, and says in each step which block holds the state of which length
(mamba_cache_mode "align"). Only these are stored. So that each of these lengths can be a hit, all groups of such a model
are stored by blocks.
"""

import math
from dataclasses import dataclass

# What describes a layer, by the name of its very class. A class that inherits from one of these may mean other KV: RSWASpec is a
# FullAttentionSpec, and its KV is no function of the prefix.
_POLICIES = {
    "FullAttentionSpec": "all",
    "MLAAttentionSpec": "all",
    "SlidingWindowSpec": "window",
    "SlidingWindowMLASpec": "window",
    "ChunkedLocalAttentionSpec": "local",
    "MambaSpec": "state",
}


@dataclass(frozen=True)
class Group:
    engine_number: int  # among vLLM's groups
    policy: str
    span_tokens: int  # 0: the policy has none
    margin_tokens: int
    block_tokens: int
    unit_tokens: int
    layers: tuple[str, ...]

    def item(self):
        """As the key `group` writes it."""
        words = [f"{self.policy}:{self.span_tokens}" if self.span_tokens else self.policy, f"unit={self.unit_tokens}"]
        if self.margin_tokens:
            words.append(f"margin={self.margin_tokens}")
        return ",".join(words)


class Groups(tuple):
    """The groups that are cached; a group's place is kvscout's number for it.

    hash_tokens        tokens from one hash that kvscout gets to the next
    stride             so many of a request's block hashes are one of these
    step_tokens        each hit is a multiple
    span_tokens        objects of all groups begin at its multiples
    states             numbers of the groups with the policy state
    is_one_run         a hit is the leading run of chunks, of which any part is of use by itself. Else a length can be
                       restored as a whole or not at all
    names_blocks       a load that fails in part may name the blocks: vLLM counts all its groups, also those that are not cached, and raises
                       if a block is named where it has several
    """

    def __new__(cls, groups, chunk_tokens, hash_block_tokens, engine_groups=1):
        """@engine_groups: how many vLLM has."""
        self = super().__new__(cls, groups)
        units = [group.unit_tokens for group in self]
        self.chunk_tokens = chunk_tokens
        self.hash_tokens = math.gcd(*units)
        self.stride = self.hash_tokens // hash_block_tokens
        self.span_tokens = math.lcm(*units)
        self.step_tokens = math.lcm(self.hash_tokens, *(g.unit_tokens for g in self if g.policy in ("all", "state")))
        self.states = tuple(number for number, g in enumerate(self) if g.policy == "state")
        self.is_one_run = len(self) == 1 and self[0].policy == "all" and not self[0].margin_tokens
        self.names_blocks = self.is_one_run and engine_groups == 1
        self._tables = tuple((number, g.engine_number, g.block_tokens) for number, g in enumerate(self))
        return self

    def keys(self):
        """Configuration keys of client and worker."""
        if self.is_one_run:
            return {}
        return {"group": " ".join(group.item() for group in self), "hash_tokens": self.hash_tokens}

    def blocks(self, block_ids, begin, end):
        """By kvscout's number: of vLLM's @block_ids by group those of the tokens @begin..@end. @begin is at the
        beginning of a block in all groups."""
        if self.is_one_run:
            number, own, block = self._tables[0]
            return {number: block_ids[own][begin // block : -(-end // block)]}
        return {number: block_ids[own][begin // block : -(-end // block)] for number, own, block in self._tables}

    def keep_states(self, blocks, begin, offers, null):
        """Replace in @blocks, which begin at token @begin, those of states by @null, but for the @offers: what vLLM says
        of this step, (its number of the group, block, length of the state in it)."""
        for number in self.states:
            group = self[number]
            kept = [null] * len(blocks[number])
            for engine_number, block, length in offers:
                place = length // group.block_tokens - 1 - begin // group.block_tokens
                if engine_number == group.engine_number and not length % group.block_tokens and 0 <= place < len(kept):
                    kept[place] = block
            blocks[number] = kept


def layer_specs(spec):
    """Of layers that differ in sizes only, vLLM has one spec each, in one group."""
    return tuple((getattr(spec, "kv_cache_specs", None) or {"": spec}).values())


def layer_spec(spec):
    """Any of them tells their kind; kind_of() sees to that."""
    return layer_specs(spec)[0]


def kind_of(spec):
    """all, window, local or state: the layers that @spec describes, if they are of one kind; None: kvscout does not know them."""
    kinds = {_POLICIES.get(type(own).__name__) for own in layer_specs(spec)}
    return kinds.pop() if len(kinds) == 1 else None


def policy_of(spec):
    """(policy, span in tokens) of the layers that @spec describes; None: kvscout has none for them."""
    kind, spec = kind_of(spec), layer_spec(spec)
    if kind == "window":
        return kind, spec.sliding_window + getattr(spec, "extra_retained_tokens", 0)
    if kind == "local":
        return kind, spec.attention_chunk_size
    if kind == "all" or kind == "state" and getattr(spec, "mamba_cache_mode", None) == "align":
        return kind, 0
    return None


def is_cached(group):
    """Whether vLLM itself would find @group's blocks by their hashes, and lets connectors move them."""
    return getattr(group, "enable_kv_transfer", True) and getattr(group.kv_cache_spec, "prefix_cacheable", True)


def _unit(policy, span, block, chunk, has_states):
    """Tokens of a stored object; see UNITS and STATES."""
    if has_states or policy == "window" and span <= chunk or policy == "local" and span % chunk:
        return block
    return chunk


def _drops_a_block(speculative):
    """Whether vLLM itself leaves out the last block of a hit, whose drafts depend on the token after it. Not all draft
    models' do (from 0.33 on, DFlash and DSpark)."""
    return getattr(speculative, "use_eagle_block_drop", speculative.use_eagle)()


def _has_drafts(vllm_config, groups):
    """For each group whether it has layers of a draft model. Where vLLM does not say which, all of them may."""
    speculative = getattr(vllm_config, "speculative_config", None)
    if speculative is None or not _drops_a_block(speculative):
        return [False] * len(groups)
    told = [bool(getattr(group, "is_eagle_group", False)) for group in groups]
    return told if any(told) else [True] * len(groups)


def scheduler_block(kv_cache_config):
    """Tokens of which each hit must be a multiple: whole blocks of all groups."""
    return math.lcm(*(group.kv_cache_spec.block_size for group in kv_cache_config.kv_cache_groups))


def hash_block(vllm_config, kv_cache_config):
    """Tokens of one of a request's block hashes. From vLLM 0.32 on the engine's core says so; before, the rule is this
    (resolve_kv_cache_block_sizes() in vllm/v1/core/kv_cache_utils.py)."""
    groups = kv_cache_config.kv_cache_groups
    told = asked = None
    if len(groups) > 1:
        told = getattr(kv_cache_config, "hash_block_size", None)
        asked = getattr(vllm_config.cache_config, "prefix_match_unit", None)
    return told or asked or math.gcd(*(group.kv_cache_spec.block_size for group in groups if is_cached(group)))


def of_engine(vllm_config, kv_cache_config, chunk_tokens):
    """@chunk_tokens: a multiple of scheduler_block(). All groups have a policy (refusals.py)."""
    theirs = kv_cache_config.kv_cache_groups
    drafts = _has_drafts(vllm_config, theirs)
    has_states = any(policy_of(group.kv_cache_spec)[0] == "state" for group in theirs if is_cached(group))
    found = []
    for number, group in enumerate(theirs):
        if not is_cached(group):
            continue
        policy, span = policy_of(group.kv_cache_spec)
        block = group.kv_cache_spec.block_size
        found.append(
            Group(
                engine_number=number,
                policy=policy,
                span_tokens=span,
                # vLLM has no drafts for recurrent layers.
                margin_tokens=block if drafts[number] and policy != "state" else 0,
                block_tokens=block,
                unit_tokens=_unit(policy, span, block, chunk_tokens, has_states),
                layers=tuple(group.layer_names),
            )
        )
    return Groups(found, chunk_tokens, hash_block(vllm_config, kv_cache_config), len(theirs))


def one(block_tokens, chunk_tokens):
    """The groups of a model with full attention alone."""
    group = Group(0, "all", 0, 0, block_tokens, chunk_tokens, ())
    return Groups([group], chunk_tokens, block_tokens)
