# SPDX-License-Identifier: Apache-2.0
"""A worker's KV tensors as kvscout's tables and planes, and the element type that belongs to them."""

# vLLM never writes KV that counts into block 0; it stands for blocks that a request no longer has (behind a sliding
# window).
NULL_BLOCK = 0


def tables(kv_caches, num_blocks, groups, tag):
    """One for each of @groups (groups.py) that has layers on this worker. @tag(layers, element type) names how
    they lie in memory.

    Groups share their memory: vLLM gives a block to one of them at a time, so a page may be in several tables.
    """
    result = []
    for number, group in enumerate(groups):
        own = {name: tensor for name, tensor in kv_caches.items() if name in group.layers}
        if not own:
            continue  # a stage of a pipeline without layers of this kind
        elements = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors(own)})
        result.append(
            {
                "group": number,
                "planes": planes(own, num_blocks),
                "block_tokens": group.block_tokens,
                "n_blocks": num_blocks,
                "dtype": elements[0] if len(elements) == 1 and elements[0] in _DTYPES else None,
                "null_block": NULL_BLOCK,
                "block_dim": 0,
                "layout_tag": tag(own, "+".join(elements)),
            }
        )
    return result


def tensors(kv_caches):
    """A recurrent layer has several: each part of its state is one."""
    for tensor in kv_caches.values():
        yield from tensor if isinstance(tensor, list | tuple) else (tensor,)


def planes(kv_caches, num_blocks):
    """Tensors whose first axis counts the scheduler's blocks, for each layer that has memory of its own, in the model's
    order.

    A kernel may have smaller blocks than the scheduler; then the axis is split, and the rest of it belongs to the
    block. Layers that share their KV with another one are the same memory, which is copied once.
    """
    seen = set()
    result = []
    for tensor in tensors(kv_caches):
        if tensor.shape[0] % num_blocks:
            raise ValueError(
                f"kvscout: the KV of one of the layers {', '.join(kv_caches)} has the shape {tuple(tensor.shape)}, whose "
                f"first axis is no multiple of the {num_blocks} blocks that this engine has"
            )
        if tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        result.append(tensor if tensor.shape[0] == num_blocks else tensor.unflatten(0, (num_blocks, -1)))
    return result


# What kvscout knows by name. Any other element is bytes to it; its name is in the tag, which the server compares.
_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8")

