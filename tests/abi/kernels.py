#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compiled kernel runs on every GPU: machine code for some, and PTX of the oldest architecture, which the driver of any other
compiles. Reads the sections of the object file, since not every toolkit brings cuobjdump.

usage: kernels.py OBJECT ARCHITECTURE
"""
import struct
import sys

MAGIC = 0xBA55ED50
KINDS = {1: "PTX", 2: "machine code"}


def section(path, wanted):
    """The bytes of a section of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for header in headers:
        at = headers[names_at][4] + header[0]
        if data[at:data.index(b"\0", at)].decode() == wanted:
            return data[header[4]:header[4] + header[5]]
    return b""


def entries(data):
    """(kind, architecture) of all that a section of fat binaries holds."""
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            at += 8
            continue
        entry = at + header
        at = entry + size
        while entry < at:
            kind, _, head, length = struct.unpack_from("<HHIQ", data, entry)
            yield KINDS.get(kind, str(kind)), struct.unpack_from("<I", data, entry + 28)[0]
            entry += head + length


def main():
    found = list(entries(section(sys.argv[1], ".nv_fatbin")))
    oldest = int("".join(c for c in sys.argv[2] if c.isdigit()))
    print("\n".join("%s for %d" % entry for entry in found))
    if ("PTX", oldest) not in found:
        sys.exit("no PTX for %d, the oldest architecture that this nvcc knows" % oldest)
    if not any(kind == "machine code" for kind, _ in found):
        sys.exit("no machine code")


if __name__ == "__main__":
    main()
