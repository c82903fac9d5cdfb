# SPDX-License-Identifier: Apache-2.0
"""A worker's KV tensors as kvscout's planes, and the element type that belongs to them."""

# vLLM never writes KV that counts into block 0; it stands for blocks that a request no longer has (behind a sliding
# window).
NULL_BLOCK = 0


def planes(kv_caches, num_blocks):
    """Tensors whose first axis counts the scheduler's blocks, one for each layer that has memory of its own, in the
    model's order.

    A kernel may have smaller blocks than the scheduler; then the axis is split, and the rest of it belongs to the
    block. Layers that share their KV with another one are the same memory, which is copied once.
    """
    seen = set()
    result = []
    for name, tensor in kv_caches.items():
        if isinstance(tensor, list | tuple):
            raise ValueError(
                f"kvscout: the KV of layer {name} is a list of {len(tensor)} tensors; only attention layers can be "
                "cached"
            )
        if tensor.shape[0] % num_blocks:
            raise ValueError(
                f"kvscout: the KV of layer {name} has the shape {tuple(tensor.shape)}, whose first axis is no multiple "
                "of the "
                f"{num_blocks} blocks that this engine has"
            )
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        result.append(tensor if tensor.shape[0] == num_blocks else tensor.unflatten(0, (num_blocks, -1)))
    return result


# What kvscout knows by name. Any other element is bytes to it; its name is in the tag, which the server compares.
_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8")


def dtype(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    return name if name in _DTYPES else None
