# SPDX-License-Identifier: Apache-2.0
"""New weights in a running engine. The namespace names the weights (identity.py), so it changes with them.

vLLM tells a connector nothing of that, and has many ways for it. So it is turned round: each call to vLLM's workers may have written
weights, except those that HARMLESS names. The step after it asks all workers for the digest of what they have in memory then, which is
after the last write, whatever was reset before or after. Until all have answered, and from start to finish of an update, the engine
neither loads nor stores. If a digest has changed, the scheduler joins the namespace of the new ones, and sends the workers there. No rank
waits for another, so one that failed in an update hangs no other one.

A worker also looks by itself when its model's load_weights() was called in its own process. What it finds changed is out at once: each step
says by the number of moves for which namespace its loads and stores are.
"""

import functools
import time

from . import identity, namespace as name_space

# Calls to vLLM's workers that write no weights of the model. (Adapters are told apart by their own content.)
HARMLESS = frozenset(
    "execute_model sample_tokens execute_dummy_batch take_draft_token_ids synchronize_device check_health profile shutdown "
    "initialize_from_config compile_or_warm_up_model update_max_model_len get_kv_connector_handshake_metadata get_supported_tasks "
    "get_encoder_timing_stats get_model_inspection compute_weight_checksums supports_draft_weight_updates save_sharded_state "
    "add_lora remove_lora pin_lora list_loras reset_mm_cache reset_encoder_cache init_weight_transfer_engine "
    "shutdown_weight_transfer_engine".split()
)
_OPENS, _CLOSES = ("start_weight_update", "start_draft_weight_update"), "finish_weight_update"
ANSWER_S = 10.0  # a worker that has not answered then holds no request up any longer


def watch_calls(executor, called):
    """@executor: of internals.py. called(name) before each of its calls to the workers that may write weights."""
    call = executor.collective_rpc

    @functools.wraps(call)
    def watched(method, *args, **more):
        name = method if isinstance(method, str) else getattr(method, "__name__", "a function")
        if method is not name or name not in HARMLESS:
            called(name)
        return call(method, *args, **more)

    executor.collective_rpc = watched


class Asked:
    """The scheduler's side: what the workers say of their weights."""

    def __init__(self, ranks):
        self._ranks = ranks
        self._told = {}  # rank: (number of the question, digest)
        self._joined = {}  # rank: digest, of the namespace that the engine is in; {}: the next answers make it move
        self._number = 0  # of the last question
        self._unsent = False
        self._asked_s = float("-inf")
        self._is_open = False  # an update has begun and not ended

    def called(self, name):
        """Whether an update begins."""
        began = name in _OPENS
        if began or name == _CLOSES:
            self._is_open = began
            self.join({})  # steps within the update may have computed with anything
        self._ask()
        return began

    def _ask(self):
        self._number += 1
        self._unsent = not self._is_open
        self._asked_s = time.monotonic()

    def take_question(self):
        """Its number, once; 0: none."""
        unsent, self._unsent = self._unsent, False
        return self._number if unsent else 0

    def answers_soon(self):
        return not self._is_open and time.monotonic() < self._asked_s + ANSWER_S

    def told(self, parts):
        """@parts: {rank: (number of the question, digest)}; 0: not asked. Digests by rank when all have answered the last question."""
        for rank, (number, part) in parts.items():
            if not number and rank not in self._told:
                self._joined[rank] = part
            elif not number and part == self._told[rank][1]:
                continue  # by the handshake, and with the first step
            elif not number:
                self._ask()
            if part != self._joined.get(rank):
                self.join({})
            self._told[rank] = (number, part)
        if self._is_open or len(self._told) < self._ranks or any(number != self._number for number, _ in self._told.values()):
            return None
        return {rank: part for rank, (_, part) in self._told.items()}

    def is_in(self, parts):
        return parts == self._joined

    def join(self, parts):
        self._joined = parts


def namespace(parts, name):
    """Of digests by rank, as identity.of_engine() makes it. @name: the user's."""
    return name_space.named(identity.digest([parts[rank] for rank in sorted(parts)]), name)


class Loaded:
    """A worker's side: the digest of its part of the model."""

    def __init__(self, identify, rank, make_worker=None, models=()):
        """@identify(): the digest now. @rank: in the engine. @make_worker(namespace, weights_version): kvscout's, for new ones. @models:
        modules with load_weights()."""
        self._identify = identify
        self.rank = rank
        self.make_worker = make_worker
        self.part = identify()
        self.is_touched = False
        for model in models:
            model.load_weights = self._touching(model.load_weights)

    def _touching(self, load):
        @functools.wraps(load)
        def touching(*args, **more):
            self.is_touched = True
            return load(*args, **more)

        return touching

    def has_changed(self):
        """Whether the digest is another one than at the last look."""
        before, self.part = self.part, self._identify()
        self.is_touched = False
        return self.part != before
