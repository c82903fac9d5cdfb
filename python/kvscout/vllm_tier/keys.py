# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadKey is a block hash of 16 or 32 bytes and the number of a group (u32). Its SHA-256 is the hash that the
server knows: of one size whatever vLLM hashes with, and another one for each group."""

from hashlib import sha256

HASH_BYTES = 32


def hashes_of(keys):
    """The hashes one after the other, as the library takes them."""
    return b"".join([sha256(key).digest() for key in keys])
