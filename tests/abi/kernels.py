#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a driver gets of the copy engine's kernel, and of the measuring tool's: PTX that drivers from 525 on take, without local memory, whose
bulk moves 16 bytes in one access; and an image that ends with that text, whatever machine code comes before.

usage: kernels.py ENGINE.ptx TOOL.ptx IMAGE.inc
"""
import re
import sys

NEWEST_PTX = (8, 0)  # of driver 525
VECTORS = 8          # that one lane holds: SCOUT__TILE_VECTORS


def check_text(path):
    text = open(path, encoding="ascii").read()
    version = tuple(map(int, re.search(r"^\.version (\d+)\.(\d+)$", text, re.M).groups()))
    if version > NEWEST_PTX or ".target sm_75" not in text:
        sys.exit(f"{path}: PTX {version}, which not every driver from 525 on takes, or not for sm_75")
    if ".local" in text:
        sys.exit(f"{path}: uses local memory")
    return text


def main():
    engine, tool, image = sys.argv[1:]
    text = check_text(engine)
    check_text(tool)
    loads, stores = (len(re.findall(rf"\b{kind}\.global\.v2\.b64\b", text)) for kind in ("ld", "st"))
    print(f"16-byte accesses: {loads} loads, {stores} stores; 0 bytes of .local")
    if (loads, stores) != (VECTORS, VECTORS):
        sys.exit(f"{engine}: a lane should load and store {VECTORS} vectors of 16 bytes")
    source = open(image, encoding="ascii").read()
    entries = re.findall(r"\{(\d+), (\d+), \(const unsigned char\[\]\)\{([^}]*)\}", source)
    for major, minor, code in entries:
        data = bytes(int(word, 16) for word in code.replace("0x", "").replace("\n", "").split(",")[:-1])
        print(f"sm_{major}{minor}: {len(data)} bytes" if major != "0" else f"PTX: {len(data)} bytes")
        if major != "0" and not data.startswith(b"\x7fELF"):
            sys.exit(f"sm_{major}{minor} is no ELF file")
    if entries[-1][:2] != ("0", "0") or data.decode() != text:
        sys.exit(f"{image} does not end with the PTX of the tree")


if __name__ == "__main__":
    main()
