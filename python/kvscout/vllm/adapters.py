# SPDX-License-Identifier: Apache-2.0
"""The identity of LoRA adapters. vLLM's block hash has an adapter's name and path, and the files at that path may be others the
next day, while the pool still has the old KV. So an adapter's content is part of the keys of its requests.

It is taken from the adapter as a worker has loaded it, wherever it came from, on a thread of its own: the scheduler asks with
the step of the first request, and each worker answers with a later one. Until then nothing is asked for the adapter's
requests; what they compute is stored as soon as the answer is there.

An adapter that is loaded again is another object, of which the worker tells the identity anew. If that differs (load_inplace,
other files at the path), the engine's own prefix cache may still hold the old KV under the same hashes. Then the adapter's
requests neither load nor store until a reset has emptied both.

An adapter that vLLM has evicted is loaded again when its requests are computed. What is loaded from the cache meanwhile is of the
content that the worker told last; only to store KV, the adapter that computed it has to be there. Nothing here keeps an adapter alive.
"""

import concurrent.futures
import hashlib
import logging
import uuid
import weakref

from . import loaded
from .identity import digest

logger = logging.getLogger("vllm.kvscout")

LIMIT = 4096  # of adapters that either side remembers


def keys(identity, hashes):
    """@hashes for the adapter of that @identity, of the same length."""
    return [hashlib.sha256(identity + own).digest()[: len(own)] for own in map(bytes, hashes)]


class Adapters:
    """The scheduler's side: identities by name and path, which is how vLLM's hashes tell adapters apart."""

    def __init__(self, ranks):
        self._ranks = ranks
        self._names = {}  # number of an adapter: its name and path
        self._parts = {}  # number: digest by worker
        self._known = {}  # name and path: identity; None: it has changed
        self._ask = set()

    def is_full(self):
        """Then all is to be forgotten, and with it vLLM's blocks: they have names only, and would bring back another content."""
        return max(len(self._names), len(self._known)) >= LIMIT

    def of(self, lora):
        """@lora: vLLM's LoRARequest. None: not known, or not any more."""
        name = (lora.lora_name, lora.lora_path)
        if self._names.get(lora.lora_int_id) != name:
            self._names[lora.lora_int_id] = name
            self._parts[lora.lora_int_id] = {}
            self._ask.add(lora.lora_int_id)
        if len(self._parts[lora.lora_int_id]) < self._ranks:
            return None
        return self._known.get(name)

    def take_questions(self):
        """Numbers of the adapters that workers are to identify."""
        if not self._ask:
            return ()
        asked, self._ask = tuple(self._ask), set()
        return asked

    def told(self, number, parts):
        """@parts: digest by worker."""
        found = self._parts.get(number)
        if found is None:
            return
        found.update(parts)
        if len(found) < self._ranks:
            return
        name, identity = self._names[number], digest(sorted(found.items())).encode()
        if self._known.setdefault(name, identity) != identity and self._known[name] is not None:
            self._known[name] = None
            logger.warning(
                "kvscout: the adapter %s at %s was loaded again with other weights. Its requests neither load nor store KV until a "
                "reset of the prefix cache with reset_external=true", *name
            )

    def forget(self):
        """No KV of before is left."""
        self._names.clear()
        self._parts.clear()
        self._known.clear()


class LoadedAdapters:
    """A worker's side."""

    def __init__(self, models, rank):
        """@models(): loaded adapters by number, as vLLM's manager has them. @rank: this worker's."""
        self._models = models
        self._rank = rank
        self._wanted = {}  # numbers that are to be told
        self._seen = {}  # number: (weak reference to the adapter, what will be its digest)
        self._told = {}  # number: its digest; None: it has changed
        self._thread = None

    def ask(self, numbers):
        for number in numbers:
            self._wanted[number] = None
            self._told.pop(number, None)
        for known in (self._wanted, self._seen, self._told):
            while len(known) > LIMIT:
                del known[next(iter(known))]

    def answers(self):
        """Digests that are there since the last call, by number. A step calls this at its end, when its adapters are loaded."""
        found = {}
        if self._wanted:
            models = self._models()
            for number in [number for number in self._wanted if number in models]:
                answer = self._digest(number, models[number])
                if answer is not None:
                    del self._wanted[number]
                    found[number] = {self._rank: answer}
                    if self._told.setdefault(number, answer) != answer:
                        self._told[number] = None  # steps that the scheduler has made already are of the old one
        return found

    def may_load(self, number):
        """Whether its last digest is the one that was told; it need not be in memory."""
        self.is_loaded(number)  # else it is looked at again
        return self._told.get(number) is not None

    def is_loaded(self, number):
        """Whether the adapter is still the one whose identity was told. One that was loaded anew is looked at again."""
        seen, model = self._seen.get(number), self._models().get(number)
        if seen is not None and model is not None and model is seen[0]():
            return number not in self._wanted and self._told.get(number) is not None
        self._wanted[number] = None
        return False

    def _digest(self, number, model):
        seen = self._seen.get(number)
        if seen is None or seen[0]() is not model:
            if self._thread is None:
                self._thread = concurrent.futures.ThreadPoolExecutor(1, "kvscout-adapters")
            own = weakref.ref(model)
            self._seen[number] = seen = (own, self._thread.submit(of_adapter, own))
        return seen[1].result() if seen[1].done() else None

    def close(self):
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def of_adapter(own):
    """@own: a weak reference to vLLM's LoRAModel. None: it is gone."""
    model = own()
    if model is None:
        return None
    try:
        layers = [*model.loras.items(), *getattr(model, "modules_to_save", {}).items()]
        return digest([[name, loaded.scalars(layer), _tensors(layer)] for name, layer in sorted(layers, key=lambda item: item[0])])
    except Exception as error:  # vLLM has made it otherwise than 0.31 to 0.33 do
        logger.warning("kvscout: no other engine shares KV of an adapter, because identifying it failed: %s", error)
        return uuid.uuid4().hex


def _tensors(layer):
    found = []
    for name, value in sorted(vars(layer).items()):
        for at, tensor in enumerate(value if isinstance(value, list | tuple) else (value,)):
            if hasattr(tensor, "data_ptr"):
                found.append([name, at, loaded.of_tensor(tensor)])
    return found
