# SPDX-License-Identifier: Apache-2.0
"""The namespace: engines whose KV is interchangeable get the same one, all others another. Too fine a namespace costs hits,
too coarse a one gives wrong answers. identity.py says what counts; what only a worker's memory shows - strides, sizes,
element type - the server compares when workers register.
"""

import hashlib
import os
import re

# Element types of KV that another engine can read: plain ones, and those whose scales are in the checkpoint (else 1.0)
# or in the block. vLLM 0.31 to 0.33 have no others but fp8_inc, whose scales come from a calibration outside of the
# model.
_READABLE = re.compile(
    r"auto|float(16|32)|bfloat16|fp8(_e4m3|_e5m2|_ds_mla|_per_token_head)?|int[48]_per_token_head|nvfp4(_ds_mla"
    r"|_4over6)?"
    r"|turboquant_\w+|octave_\w+|ultraquant_4bit"
)


def has_own_scales(cache):
    """Whether no other engine can read this KV: its scales are (calculate_kv_scales, until vLLM 0.30) computed from
    the first tokens that the engine sees, or it is not known where an element type has them."""
    return bool(getattr(cache, "calculate_kv_scales", False)) or not _READABLE.fullmatch(str(cache.cache_dtype))


def named(identity, name=""):
    """The namespace for client and workers: "vllm/" and an engine's identity, after the name that the user gave."""
    return f"{name}/vllm/{identity}" if name else f"vllm/{identity}"


def tenant(cache_salt):
    """A request's tenant. A salt is a secret between a user and the engine, and of any length: its digest serves,
    and shows nothing."""
    if not cache_salt:
        return None
    return hashlib.sha256(cache_salt.encode()).hexdigest()[:32]


def warnings(vllm_config):
    """Sentences for the log."""
    algorithm = vllm_config.cache_config.prefix_caching_hash_algo
    if algorithm.startswith("xxhash"):
        yield (
            f"prefix_caching_hash_algo is {algorithm}, which is not cryptographic: a user who can choose tokens may "
            "find two prompts with one "
            "hash and be served another tenant's KV. Use sha256 or sha256_cbor where tenants do not trust each other"
        )
        if "PYTHONHASHSEED" not in os.environ:
            yield (
                f"prefix_caching_hash_algo is {algorithm} and PYTHONHASHSEED is not set: vLLM begins its hashes with a random number then, so "
                "no other engine shares this engine's KV, nor does it itself after a restart. Set PYTHONHASHSEED to one number in all "
                "engines, or use sha256_cbor"
            )
    if algorithm in ("sha256", "xxhash"):
        yield (
            f"prefix_caching_hash_algo is {algorithm}, which hashes Python's pickles: engines share their KV only "
            "while their Python "
            "versions pickle alike. sha256_cbor is the same everywhere"
        )
