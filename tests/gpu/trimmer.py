#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/gpu_vllm_pack.py takes out of an ELF file with machine code for several GPUs, and what it refuses.

usage: trimmer.py PACK.py
"""
import importlib.util
import struct
import sys

PTX, CODE = 1, 2


def entry(kind, capability, code):
    return struct.pack("<HHIQ12xI", kind, 0x101, 64, len(code), capability).ljust(64, b"\0") + code


def fatbin(*entries, magic=0xBA55ED50):
    body = b"".join(entries)
    return struct.pack("<IHHQ", magic, 1, 16, len(body)) + body


def elf(section):
    """A file with the two sections that matter: .nv_fatbin and the names."""
    names = b"\0.nv_fatbin\0.shstrtab\0"
    heads = [bytes(64)] + [
        struct.pack("<IIQQQQ", name, 1, 0, 0, at, len(data)).ljust(64, b"\0")
        for name, at, data in ((1, 64, section), (12, 64 + len(section), names))
    ]
    begin = struct.pack("<16s24xQ10xHHH", b"\x7fELF\2\1\1", 64 + len(section) + len(names), 64, len(heads), 2)
    return bytearray(begin + section + names + b"".join(heads))


def main():
    spec = importlib.util.spec_from_file_location("pack", sys.argv[1])
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    old, hopper = entry(CODE, 80, b"o" * 96), entry(CODE, 90, b"h" * 64)
    texts = [entry(PTX, capability, bytes([capability]) * 32) for capability in (75, 90, 100)]
    bins = [fatbin(old, hopper, texts[2]), fatbin(*texts, old), fatbin(old, texts[2])]
    empty = entry(PTX, 100, bytes(32))  # nothing for a Hopper GPU: the smallest entry, without its code
    for way, want in (
        ("compact", [[hopper], [texts[1]], [empty]]),
        ("zero", [[entry(CODE, 80, bytes(96)), hopper, empty], [entry(PTX, 75, bytes(32)), texts[1], empty, entry(CODE, 80, bytes(96))],
                  [entry(CODE, 80, bytes(96)), empty]]),
    ):
        data = elf(b"".join(part + bytes(8) for part in bins))
        after = data[64 + sum(len(part) + 8 for part in bins) :]
        kept, gone = pack.trim(data, way)
        wanted = b"".join(fatbin(*kinds).ljust(len(part) + 8, b"\0") for kinds, part in zip(want, bins))
        if data[64:] != wanted + after or (kept, gone) != (64 + 32, 96 + 32 + 32 + 32 + 96 + 96 + 32):
            wrong = [at for at, (found, byte) in enumerate(zip(data[64:], wanted + after)) if found != byte]
            sys.exit(f"{way}: kept {kept} bytes, took out {gone}; the section's first wrong byte: {wrong[:1]}")
    for section, word in ((fatbin(old, magic=1), "magic 0x1"), (fatbin(entry(7, 90, b"?")), "kind 7"), (fatbin(old)[:-8], "fatbin at 64")):
        try:
            pack.trim(elf(section), "compact")
        except SystemExit as refused:
            if word in str(refused):
                continue
        sys.exit(f"{word}: not refused")
    if pack.trim(elf(b""), "zero") != (0, 0):
        sys.exit("a file without code for GPUs was changed")


if __name__ == "__main__":
    main()
