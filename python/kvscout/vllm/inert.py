# SPDX-License-Identifier: Apache-2.0
"""Where this engine would not reuse KV, we do not. An engine with a reason is inert: it neither loads nor stores, starts no server and
says why in one line. Connector and tier ask the same questions, in every process of the engine, because vLLM switches its own prefix
cache off in the one that finds out: when it makes the configuration, in the engine core, or in a worker that loads a layer.

What no key allows is in refusals.py (layers), and here: requests whose KV, or whose use of it, is no function of their blocks' hashes.

A block's hash has of each image, audio and video the identifier only, and vLLM makes it from the content - unless its user gives one
(multi_modal_uuids), or both of its caches are off and it counts them. Such a name is another input's in another process, or tomorrow, and
nothing marks it but its form.
"""

import functools
import logging
import re

from .internals import version

logger = logging.getLogger("vllm.kvscout")

# Minor versions of vLLM whose interfaces tests/engine/contract.json has.
KNOWN = ("0.31", "0.32", "0.33")
MEANINGS = {
    "without_prefix_cache": "inert (default): where vLLM's own prefix cache is off, this engine neither loads nor stores; trust: it does",
    "unknown_vllm": "inert (default): with a version of vLLM that kvscout does not know, this engine neither loads nor stores; trust: it does",
}


def trusted(given):
    """Those keys of the dict @given that say `trust`."""
    return frozenset(key for key in MEANINGS if (given or {}).get(key) == "trust")


def read(values):
    """The same, and others are refused. @values: of values.py."""
    for key in MEANINGS:
        values.word(key, ("inert", "trust"))
    return trusted(values.given)


def of_version(trusts):
    """Why this vLLM makes the engine inert, or None."""
    if version() in KNOWN or "unknown_vllm" in trusts:
        return None
    return (
        f"this kvscout does not know vLLM {version()}; it knows {', '.join(KNOWN)}. Install a kvscout that does, or try it with "
        '"unknown_vllm": "trust"'
    )


def of_engine(vllm_config, trusts):
    """Why this process makes the engine inert, or None. @trusts: keys of MEANINGS."""
    if getattr(vllm_config.cache_config, "enable_prefix_caching", None) or "without_prefix_cache" in trusts:
        return of_version(trusts)
    return (
        "vLLM's own prefix cache is off. vLLM switches it off where KV does not follow from the tokens alone, and "
        "--no-enable-prefix-caching looks the same. If you switched it off yourself and want kvscout all the same, set "
        '"without_prefix_cache": "trust"'
    )


def line(who, reason):
    return f"{who}: this engine is inert, it neither loads nor stores KV, because {reason}"


# ---- requests -------------------------------------------------------------------------------------------------------


def _all_tokens_are_pooled(vllm_config):
    """As vLLM's ModelConfig.is_prefix_caching_supported has it."""
    pooler = getattr(vllm_config.model_config, "pooler_config", None)
    return getattr(pooler, "seq_pooling_type", None) != "LAST" or getattr(pooler, "tok_pooling_type", None) == "STEP"


def _images_are_counted(vllm_config):
    """Whether vLLM's renderer names images by a counter, in each process from 1. A name in that form is kept out anyway (are_hashed()), but
    with a request's mm_processor_kwargs the names are digests of such names, and look like those of content."""
    images = getattr(vllm_config.model_config, "multimodal_config", None)
    return getattr(images, "mm_processor_cache_gb", None) == 0 and not vllm_config.cache_config.enable_prefix_caching


# Of MultiModalHasher: blake3 and sha256, or sha512.
_HASH = re.compile(r"[0-9a-f]{64}|[0-9a-f]{128}")
_NAMED = "it names an input itself (multi_modal_uuids), or vLLM has counted its inputs; only vLLM's hash of the content is the same input for ever"
_POOLED = "its pooler needs the hidden states of all tokens, which loaded KV does not bring"
_COUNTED = "vLLM names images and other media by a counter here. Give --mm-processor-cache-gb another value than 0"


def of_requests(vllm_config):
    """A function that says whether a request neither loads nor stores."""
    pooled, counted = _all_tokens_are_pooled(vllm_config), _images_are_counted(vllm_config)

    def keeps_out(request):
        pooling = getattr(request, "pooling_params", None)
        if pooling is not None and (pooled or pooling.task not in ("embed", "classify")):
            say_once(_POOLED)
            return True
        if counted and getattr(request, "mm_features", None):
            say_once(_COUNTED)
            return True
        return False

    return keeps_out


@functools.cache
def say_once(reason):
    logger.warning("kvscout: a request neither loads nor stores KV, and so do all like it, because %s. This line comes once", reason)


def are_hashed(request):
    """Whether each identifier of @request, vLLM's, has the form of vLLM's hash; else its KV is not for the cache."""
    lora = request.lora_request
    adapter = f"{lora.lora_name}:" if lora is not None else ""  # where it also changes what an image becomes
    found = all(_HASH.fullmatch(feature.identifier.removeprefix(adapter)) for feature in request.mm_features or ())
    if not found:
        say_once(_NAMED)
    return found


def of_any_request(vllm_config):
    """The same for a tier, which cannot leave out single ones: why none of this engine's may load or store, or None."""
    if getattr(vllm_config.model_config, "runner_type", "generate") == "pooling" and _all_tokens_are_pooled(vllm_config):
        return _POOLED
    return _COUNTED if _images_are_counted(vllm_config) else None
