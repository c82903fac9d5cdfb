#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names in the comments of C files that nothing has: functions, written with (), and files.

comment_names.py <NAMES: the names of all files of the tree, one a line. Prints FILE:LINE: NAME for each and ends with 1 if there is one.
A function exists if the tree's code has its name, _end() if a name ends so; a file exists if the tree has or includes it. FOREIGN has
what comments tell of other projects.
"""
import re
import sys

TOKEN = re.compile(r'(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|([A-Za-z_]\w*)', re.S)
FUNCTION = re.compile(r"(?<![\w.>])([A-Za-z_]\w{2,})\(\)")
FILE = re.compile(r"(?<![\w/.*<-])([A-Za-z][\w-]*\.(?:c|h|py|sh|ptx|build))\b(?!\()")
FOREIGN = set(
    "getopt_long cudaStreamWaitEvent EVP_sha256 EVP_MD_CTX_copy_ex strerrordesc_np copy_struct_from_user close_range shm_open writev"
    " redisFormatCommandArgv zmq_unbind PyArg_ParseTupleAndKeywords kv_cache_coordinator.py cuda.h scout__serve_NAME NAME.c NAME.h subdir".split()
)


def main():
    names = sys.stdin.read().split()
    files = {name.rsplit("/", 1)[-1].removesuffix(".in") for name in names}
    known, comments = set(), []
    for name in names:
        if not name.endswith((".c", ".h", ".cpp", ".ptx", ".in", ".py", ".sh", ".map")) and name != "dev":
            continue
        with open(name, encoding="utf-8") as file:
            text = file.read()
        files.update(re.findall(r"#include <(?:[^>]*/)?([^>/]+)>", text))
        if not name.endswith((".c", ".h")):
            known.update(re.findall(r"[A-Za-z_]\w*", text))
            continue
        for found in TOKEN.finditer(text):
            if found[3]:
                known.add(found[3])
            elif found[2]:
                known.update(re.findall(r"[A-Za-z_]\w*", found[2]))
            else:
                comments.append((name, text.count("\n", 0, found.start()) + 1, found[1]))
    ends = {name[at:] for name in known for at in range(len(name)) if name[at] == "_"}
    known |= ends | FOREIGN
    files |= FOREIGN
    bad = 0
    for name, line, comment in comments:
        wrong = [f"{found[1]}()" for found in FUNCTION.finditer(comment) if found[1] not in known]
        wrong += [found[1] for found in FILE.finditer(comment) if found[1] not in files]
        for what in wrong:
            at = line + comment[: comment.index(what.removesuffix("()"))].count("\n")
            print(f"{name}:{at}: {what}")
        bad += len(wrong)
    print(f"{len(comments)} comments, {bad} names that nothing has")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
