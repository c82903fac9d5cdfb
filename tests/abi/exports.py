#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the shared libraries export is what the headers declare and what the version scripts list, each of the three by name.

usage: exports.py HEADERS_FOLDER MAP LIBRARY HEADER... [-- MAP LIBRARY HEADER...]

A release adds a node to the version script and changes none: what is in a node that was released never leaves it.
"""
import os
import re
import subprocess
import sys


def declared(folder, headers):
    names = set()
    for header in headers:
        with open(os.path.join(folder, header), encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for declaration in re.findall(r"\bSCOUT_API\b([^;{]*);", text):
            names.add(re.search(r"\b(scout_\w+)\s*\(", declaration).group(1))
    return names


def listed(script):
    with open(script, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    nodes = re.findall(r"(\w[\w.]*)\s*\{(.*?)\}\s*(\w[\w.]*)?\s*;", text, flags=re.S)
    names = {}
    for node, body, _ in nodes:
        for name in re.findall(r"\b(scout_\w+)\s*;", body):
            names[name] = node
    if "*" in re.sub(r"local:\s*\*;", "", text):
        sys.exit(f"{script}: a pattern, where each name is to be listed")
    return names


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {re.sub(r"@.*", "", line.split()[2]) for line in out.splitlines() if line.split()[1] != "A"}


def check(folder, script, library, headers):
    nodes = listed(script)
    bad = 0
    for what, one, other in (("declared and not listed", declared(folder, headers), set(nodes)),
                             ("listed and not declared", set(nodes), declared(folder, headers)),
                             ("listed and not exported", set(nodes), exported(library)),
                             ("exported and not listed", exported(library), set(nodes))):
        for name in sorted(one - other):
            print(f"{os.path.basename(script)}: {what}: {name}")
            bad = 1
    return bad


def main():
    folder, rest = sys.argv[1], sys.argv[2:]
    status = 0
    while rest:
        end = rest.index("--") if "--" in rest else len(rest)
        script, library, *headers = rest[:end]
        status |= check(folder, script, library, headers)
        rest = rest[end + 1:]
    return status


if __name__ == "__main__":
    sys.exit(main())
