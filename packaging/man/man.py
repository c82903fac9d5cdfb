#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man.py PAGE PROGRAM OUT: the man page PAGE (kvscout.1, kvscoutd.8, kvscoutd.conf.5) from what PROGRAM --help says, which the option tables make."""

import pathlib
import re
import subprocess
import sys

ABOUT = {
    "kvscout.1": "ask, watch, clear and measure a cache server",
    "kvscoutd.8": "cache server for the KV of LLM inference engines",
    "kvscoutd.conf.5": "configuration of kvscoutd",
}
SEE_ALSO = {"kvscout.1": "kvscoutd (8)", "kvscoutd.8": "kvscout (1), kvscoutd.conf (5)", "kvscoutd.conf.5": "kvscoutd (8)"}


def said_by(program, *words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def quoted(text):
    """Text of a line: groff reads a backslash, a hyphen, and a dot or an apostrophe at the beginning as its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def body(text, tag_of=lambda tag: tag):
    """Paragraphs, and items: a tag two blanks from the edge, what it means behind it or further in on the next lines."""
    lines, within = [], False
    for line in text.splitlines():
        item = re.fullmatch(r"  (\S+(?: \S+)*)(?:  +(\S.*))?", line)
        if item:
            lines += [".TP", ".B " + quoted(tag_of(item[1]))] + ([quoted(item[2])] if item[2] else [])
            within = True
        elif line.startswith("   "):
            lines.append(quoted(line.strip()))
        elif line:
            lines += [".PP"] if within else []
            lines.append(quoted(line))
            within = False
        else:
            lines.append(".PP")
            within = False
    return lines


def sections(page, program):
    """(heading, lines)"""
    text = said_by(program, "--help")
    usage, _, rest = text.removeprefix("usage: ").partition("\n")
    if page == "kvscoutd.conf.5":
        keys = rest[rest.index("\n  --listen") + 1:]
        yield "DESCRIPTION", body("kvscoutd --config FILE reads lines `key = value`; # begins a comment, and a key that takes a list may come "
                                  "again. The keys are the options of kvscoutd(8). A size is a number with k, m, g or t (1000) or Ki, Mi, Gi "
                                  "or Ti (1024).")
        yield "KEYS", body(keys, lambda tag: tag.removeprefix("--").replace("-", "_"))
        return
    yield "SYNOPSIS", [quoted(usage)]
    yield "DESCRIPTION", body(rest.strip("\n"))
    if page == "kvscout.1":
        for command in re.findall(r"^  (\w+)  +\S", rest, re.M):
            if command not in ("server", "latency", "replay", "copy"):  # programs of their own
                yield command.upper(), body(said_by(program, command, "--help").removeprefix("usage: "))


def main():
    page, program, out = sys.argv[1:]
    name, _, section = page.rpartition(".")
    version = said_by(program, "--version").split()[1]
    lines = [f'.TH {name} {section} "" "kvscout {version}"', ".SH NAME", f"{quoted(name)} \\- {ABOUT[page]}"]
    for heading, text in sections(page, program):
        lines += [f".SH {heading}", *text]
    lines += [".SH SEE ALSO", SEE_ALSO[page]]
    pathlib.Path(out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
