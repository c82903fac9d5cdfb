# SPDX-License-Identifier: Apache-2.0
"""What a store says of its objects, so that each engine can announce them to a router: the block hashes of vLLM, the hash before them, the
tokens, the adapter, the extra keys. At most MAX_BYTES each. One that has more is sent without its tokens, and one that still has more not
at all: the object is cached, but routers that need tokens do not learn of it.

    u8 version, u8 bytes of a hash, u8 bytes of a token (0: no tokens), u8 flags, u32 tokens of a block, u16 blocks, u16 bytes of
    the adapter's name, i64 number of the adapter; the hash before (FLAG_PARENT); the hashes; the tokens, all lowest bytes first, then all
    second ones and so on; the adapter's name; the extra keys as Python writes them, one item for each block.
"""

import ast
import struct
import sys
from array import array
from dataclasses import dataclass

MAX_BYTES = 4096
VERSION = 1
FLAG_PARENT, FLAG_ADAPTER = 1, 2
_HEAD = struct.Struct("<BBBBIHHq")
_WORD = next(code for code in "IL" if array(code).itemsize == 4)


@dataclass(slots=True)
class Description:
    hashes: list  # bytes
    parent: bytes | None
    tokens: list
    block_tokens: int
    lora_id: int | None = None
    lora_name: str | None = None
    extra_keys: list | None = None  # one for each block


def _packed(tokens):
    """(bytes of a token, the tokens)."""
    words = array(_WORD, tokens)
    if sys.byteorder == "big":
        words.byteswap()
    raw = words.tobytes()
    width = max(1, (max(tokens).bit_length() + 7) // 8)
    return width, b"".join([raw[place::4] for place in range(width)])


def _unpacked(width, packed):
    n = len(packed) // width
    raw = bytearray(4 * n)
    for place in range(width):
        raw[place::4] = packed[place * n : (place + 1) * n]
    words = array(_WORD, bytes(raw))
    if sys.byteorder == "big":
        words.byteswap()
    return words.tolist()


def encode(what):
    """@what: a Description, all of whose hashes have the same size. b"": it does not fit."""
    name = (what.lora_name or "").encode()
    extra = b"" if what.extra_keys is None else repr(what.extra_keys).encode()
    hashes = b"".join(what.hashes)
    flags = (FLAG_PARENT if what.parent is not None else 0) | (FLAG_ADAPTER if what.lora_id is not None else 0)
    if len(hashes) + len(name) + len(extra) > MAX_BYTES:  # before numbers that the head has no room for, and a million tokens
        return b""
    for width, tokens in (_packed(what.tokens) if what.tokens else (0, b""), (0, b"")):
        head = _HEAD.pack(
            VERSION, len(what.hashes[0]), width, flags, what.block_tokens, len(what.hashes), len(name), what.lora_id or 0
        )
        said = b"".join((head, what.parent or b"", hashes, tokens, name, extra))
        if len(said) <= MAX_BYTES:
            return said
    return b""


def hashes_of(said):
    """Of a description, its hashes alone; none if this version cannot read it."""
    if len(said) < _HEAD.size or said[0] != VERSION:
        return []
    _, size, _, flags, _, n, _, _ = _HEAD.unpack_from(said)
    at = _HEAD.size + (size if flags & FLAG_PARENT else 0)
    if not size or at + n * size > len(said):
        return []
    return [said[place : place + size] for place in range(at, at + n * size, size)]


def ends_of(said):
    """Of a description: its last hash and the hash before its first, as numbers have them; each may be None."""
    hashes = hashes_of(said)
    before = said[_HEAD.size : _HEAD.size + said[1]] if hashes and said[3] & FLAG_PARENT else None
    return hashes[-1][-8:] if hashes else None, before and before[-8:]


def decode(said):
    """The Description, or None: nothing that this version can read."""
    try:
        version, size, width, flags, block, n, name_bytes, lora_id = _HEAD.unpack_from(said)
        if version != VERSION or not (n and size and block):
            return None
        at = _HEAD.size + (size if flags & FLAG_PARENT else 0)
        parent = said[_HEAD.size : at] if flags & FLAG_PARENT else None
        end = at + n * size
        hashes = [said[place : place + size] for place in range(at, end, size)]
        tokens_end = end + n * block * width
        name_end = tokens_end + name_bytes
        if len(said) < name_end:
            return None
        tokens = _unpacked(width, said[end:tokens_end]) if width else []
        has_adapter = flags & FLAG_ADAPTER
        extra = ast.literal_eval(said[name_end:].decode()) if len(said) > name_end else None
        return Description(
            hashes, parent, tokens, block, lora_id if has_adapter else None, said[tokens_end:name_end].decode() if has_adapter else None, extra
        )
    except (struct.error, ValueError, SyntaxError, MemoryError, RecursionError):
        return None
