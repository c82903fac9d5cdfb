# SPDX-License-Identifier: Apache-2.0
"""A worker's KV tensors as kvscout's tables and planes, and the element type that belongs to them.

SIDE BY SIDE  vLLM has one allocation for all layers. In a block-outermost layout (VLLM_KV_CACHE_LAYOUT=BLNHC, BLHNC, BHLNC) a
block of it holds that block of all layers, so the views of a group's layers lie side by side. They are one plane then: a copy
moves a block in one piece, where it moved a piece for each layer, or with BHLNC for each head of each layer.

A slot holds a table's planes one after the other, so it holds other bytes in another order if views are merged. The server
keeps such engines apart: it compares number and sizes of the planes, and the tag, which names the place of each view in
the block.
"""

import hashlib
import itertools

# vLLM never writes KV that counts into block 0; it stands for blocks that a request no longer has (before a sliding
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
        views = planes(own, num_blocks)
        whole = side_by_side(views)
        result.append(
            {
                "group": number,
                "planes": views if whole is None else [whole],
                "block_tokens": group.block_tokens,
                "n_blocks": num_blocks,
                "dtype": elements[0] if len(elements) == 1 and elements[0] in _DTYPES else None,
                "null_block": NULL_BLOCK,
                "block_dim": 0,
                "layout_tag": tag(own, "+".join(elements)) + (f"/{whole.order}" if whole is not None else ""),
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


class Block:
    """Views that lie side by side in each block, as the tensor of bytes that a worker reads. It keeps their memory."""

    def __init__(self, views, address, stride, size):
        self._views = views
        self._address = address
        self._strides = (stride, 1)
        self.shape = (views[0].shape[0], size)
        places = [(view.data_ptr() - address, view.element_size(), _axes(view)) for view in views]
        self.order = "block-" + hashlib.sha256(repr(places).encode()).hexdigest()[:16]

    def data_ptr(self):
        return self._address

    def stride(self):
        return self._strides

    def element_size(self):
        return 1


def side_by_side(views):
    """@views as one, if in each block they lie side by side without gaps; else None. Of two allocations they cannot be: the
    second one would begin inside the first, which reaches into the next block."""
    runs = sorted(run for view in views for run in _runs(view))
    strides = {view.stride()[0] * view.element_size() for view in views}
    size = sum(length for _, length in runs)
    if len(runs) == 1 or len(strides) > 1 or views[0].shape[0] == 1 or size > min(strides):
        return None
    if any(address + length != following for (address, length), (following, _) in itertools.pairwise(runs)):
        return None
    return Block(views, runs[0][0], strides.pop(), size)


def _axes(view):
    """(stride in elements, length) of those that count inside a block, the innermost first."""
    return sorted((step, length) for step, length in zip(view.stride()[1:], view.shape[1:]) if length > 1)


def _runs(view):
    """(address, bytes) of the pieces of @view's first block that are dense in memory."""
    size, starts = 1, [0]
    for step, length in _axes(view):
        if step == size:
            size *= length
        else:
            starts = [start + at * step for start in starts for at in range(length)]
    item = view.element_size()
    return [(view.data_ptr() + start * item, size * item) for start in starts]


# What kvscout knows by name. Any other element is bytes to it; its name is in the tag, which the server compares.
_DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8")

