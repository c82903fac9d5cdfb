# SPDX-License-Identifier: Apache-2.0
"""What a worker needs to know of its device: when it is done with what it was given, and which backend laid the bytes
out."""

import torch


def event_maker(tensor):
    """A function that returns an event recorded after all work of the current stream so far; for KV in host memory
    it returns None. It does not keep @tensor."""
    device = tensor.device
    if device.type != "cuda":
        return lambda: None

    def record():
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        return event

    return record


def tag_of(vllm_config, kv_cache_config, layer_names):
    """Names of these layers' attention backends and of the layout. Two backends may order the bytes of equally large
    blocks differently, so the server compares this with what other workers of the namespace said."""
    names = set()
    layers = vllm_config.compilation_config.static_forward_context
    for name in layer_names:
        layer = layers.get(name)
        get_backend = getattr(layer, "get_attn_backend", None)
        if get_backend is not None:
            backend = get_backend().get_name()
            isa = getattr(layer, "isa", None)
            names.add(f"{backend}-{isa}" if isinstance(isa, str) else backend)
    return "+".join(sorted(names)) + "/" + str(getattr(kv_cache_config, "kv_cache_layout", None) or "default")
