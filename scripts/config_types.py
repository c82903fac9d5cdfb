#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print kvscout/config.py, the types of the keys for type checkers and editors, from the tables of docs/configuration.md.

usage: config_types.py PAGE
"""

import re
import sys

HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""The keys of Client, Worker and Server (which ensure_server() takes, too) with the types of their values, for type checkers and editors.

docs/configuration.md says what each key means and which values it takes. A number may be text with a suffix ('64Mi'), None is
the default. A function that hands keys on takes ``**keys: Unpack[ClientConfig]``, as the constructors do.
"""

import os
from typing import Literal, SupportsIndex, TypedDict

Number = SupportsIndex | str | None
Flag = bool | int | str | None
Path = str | os.PathLike[str] | None
Texts = str | list[str] | tuple[str, ...] | None
'''
LISTS = ("endpoint", "l2", "group", "server_keys", "cpus")  # as in python/src/base/config.c


def type_of(key, values):
    if key in LISTS:
        return "Texts"
    if key.endswith(("_file", "_program")):
        return "Path"
    if values.startswith("0, 1, "):
        return "Flag"
    if ".." not in values:
        return "Literal[%s] | None" % ", ".join(f'"{word}"' for word in values.split(", "))
    return "str | None" if values.endswith("bytes") and key != "numa_node" else "Number"  # a node is a number or a word


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        text = page.read()
    print(HEAD, end="")
    for kind in ("Client", "Worker", "Server"):
        rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|", text.partition(f"\n## {kind}\n")[2].partition("<!-- end -->")[0], re.M)
        print(f'\n\nclass {kind}Config(TypedDict, total=False):\n    """Keys of {kind}."""\n')
        for key, values in rows:
            print(f"    {key}: {type_of(key, values)}")


main()
