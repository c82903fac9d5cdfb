# SPDX-License-Identifier: Apache-2.0
"""The connector's class for a vLLM that kvscout does not know. It is made of that vLLM's own base classes, whose methods answer as without
a cache, and takes whatever that vLLM calls it with: it must start, and do nothing."""

import logging

from . import inert, logs, refusals

logger = logging.getLogger("vllm.kvscout")


def complete(bases, answers):
    """@answers by name, each a value that is returned whatever the call, for the methods of @bases that must be overridden, and None for
    all others of them."""
    names = set().union(*(getattr(base, "__abstractmethods__", ()) for base in bases))
    found = {name: _answer(answers.get(name)) for name in names}
    return {name: property(own) if _is_property(bases, name) else staticmethod(own) for name, own in found.items()}


def _answer(value):
    return lambda *args, **more: value() if isinstance(value, type) else value


def _is_property(bases, name):
    return any(isinstance(getattr(base, name, None), property) for base in bases)


def connector(reason):
    """@reason: why it is inert."""
    try:
        from vllm.distributed.kv_transfer.kv_connector.v1 import base

        bases = [base.KVConnectorBase_V1]
        metadata, scheduler = base.KVConnectorMetadata, base.KVConnectorRole.SCHEDULER
    except (ImportError, AttributeError) as error:
        raise refusals.Refused(f"KVScoutConnector cannot be made, because {reason}. This vLLM has no place for it: {error}") from None
    if hasattr(base, "SupportsHMA"):  # vLLM would leave its hybrid memory manager off
        bases.append(base.SupportsHMA)

    def start(self, *args, **more):
        base.KVConnectorBase_V1.__init__(self, *args, **more)
        if scheduler in (*args, *more.values()):
            logs.join_vllm()
            logger.warning(inert.line("kvscout", reason))

    answers = {
        "get_num_new_matched_tokens": (0, False),
        "build_connector_meta": metadata,
        "request_finished_all_groups": (False, None),
    }
    own = {"__init__": start, "requires_kv_delivery": False, **complete(bases, answers)}
    return type("KVScoutConnector", tuple(bases), own)
