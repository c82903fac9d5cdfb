# SPDX-License-Identifier: Apache-2.0
"""Keys of the tier: those next to `"type": "kvscout"` in secondary_tiers."""

from dataclasses import dataclass

from ..vllm import inert, library_keys, verify
from ..vllm.values import ConfigError, Values

__all__ = ["Config", "ConfigError", "parse"]

_WHERE = "secondary_tiers, type kvscout"
_KEYS = {
    "namespace": (
        "required: a name for these weights and everything that vLLM does not tell a tier: revision, quantization, "
        "overrides, speculative model. Engines that differ in it share nothing"
    ),
    **library_keys.MEANINGS,
    "weights_version": (
        "number of the weights at the start, 1 or greater; each reset adds 1, and engines with the same number share "
        "their KV"
    ),
    "reset": "clear (default): a reset of vLLM's connector drops what is cached in the namespace; keep: it does not",
    "kv_scales": (
        "unknown (default): KV of a type whose scales may be the engine's own is for this engine alone; fixed: its "
        "scales are in the checkpoint"
    ),
    "locality": "LOCAL (default) or REMOTE: what vLLM's tier filters take this tier for",
    **inert.MEANINGS,
    **verify.MEANINGS,
}


@dataclass(frozen=True)
class Config:
    namespace: str
    library: library_keys.Library
    weights_version: int
    clears: bool
    fixed_scales: bool
    locality: str
    trusts: frozenset[str]  # of inert.py
    verify_sample: float
    mismatches_make_inert: bool


def parse(given):
    values = Values(_WHERE, given, _KEYS)
    namespace = values.text("namespace", 128)
    if namespace is None:
        raise ConfigError(f"kvscout: {_WHERE}: the key namespace is missing. It is {_KEYS['namespace']}")
    sample, makes_inert = verify.read(values)
    return Config(
        namespace=namespace,
        library=library_keys.read(values),
        weights_version=values.number("weights_version", 0, 0, 1 << 63),
        clears=values.word("reset", ("clear", "keep")) == "clear",
        fixed_scales=values.word("kv_scales", ("unknown", "fixed")) == "fixed",
        locality=values.word("locality", ("LOCAL", "REMOTE")),
        trusts=inert.read(values),
        verify_sample=sample,
        mismatches_make_inert=makes_inert,
    )
