#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the connector relies on in vLLM, as a table of signatures (contract.json), and three questions about it.

    contract.py                   does the connector fit the table? Needs no vLLM: both are read, not imported. TAP.
    contract.py --against FOLDER  does the table fit the vLLM that lies unpacked in FOLDER (the folder above vllm/)?
    contract.py --newest          does it fit the newest three minor versions on PyPI? Downloads their wheels, 330 MB each.
    contract.py --write FOLDER... prints a new table for these unpacked versions.

A method that vLLM adds is as interesting as one that it changes: the connector may have to answer it.
"""

import ast
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "contract.json")
CONNECTOR = os.path.join(HERE, "..", "..", "python", "kvscout", "vllm")
_V1 = "vllm/distributed/kv_transfer/kv_connector/v1"
# (file, class or None, methods or None for all public ones)
RELIED_ON = (
    (f"{_V1}/base.py", "KVConnectorBase_V1", None),
    (f"{_V1}/base.py", "KVConnectorWorkerMetadata", None),
    (f"{_V1}/metrics.py", "KVConnectorStats", None),
    (f"{_V1}/metrics.py", "KVConnectorPromMetrics", ("__init__", "observe")),
    ("vllm/distributed/kv_transfer/kv_connector/factory.py", "KVConnectorFactory", ("register_connector", "create_connector")),
    ("vllm/v1/core/block_pool.py", "BlockPool", ("touch", "free_blocks", "get_num_free_blocks")),
    ("vllm/v1/core/kv_cache_manager.py", "KVCacheManager", ("get_block_ids",)),
    ("vllm/v1/core/kv_cache_manager.py", "KVCacheBlocks", ("get_block_ids",)),
    ("vllm/v1/kv_cache_interface.py", None, ("group_kernel_blocks",)),
)
# Classes of the connector and what they stand for.
OURS = (
    ("connector.py", "KVScoutConnector", "KVConnectorBase_V1"),
    ("metadata.py", "WorkerMetadata", "KVConnectorWorkerMetadata"),
    ("stats.py", "Stats", "KVConnectorStats"),
    ("stats.py", "PromMetrics", "KVConnectorPromMetrics"),
)


def _functions(path, cls):
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    body = tree.body
    if cls is not None:
        body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls), [])
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def signature(function):
    """`classmethod self, request, n=0, **kwargs`: what a caller and an override must agree on."""
    kinds = [d.id for d in function.decorator_list if isinstance(d, ast.Name) and d.id in ("classmethod", "staticmethod", "property", "abstractmethod")]
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    first_default = len(names) - len(args.defaults)
    words = [name if at < first_default else f"{name}={ast.unparse(args.defaults[at - first_default])}" for at, name in enumerate(names)]
    if args.vararg:
        words.append(f"*{args.vararg.arg}")
    words += [arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}" for arg, default in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        words.append(f"**{args.kwarg.arg}")
    return " ".join([*sorted(kinds), ", ".join(words)]).strip()


def read(folder):
    """{class.method: signature} of an unpacked vLLM."""
    found = {}
    for path, cls, names in RELIED_ON:
        for name, function in _functions(os.path.join(folder, path), cls).items():
            if name in names if names is not None else (name == "__init__" or not name.startswith("_")):
                found[f"{cls}.{name}" if cls else name] = signature(function)
    return found


def version_of(folder):
    with open(os.path.join(folder, "vllm", "_version.py"), encoding="utf-8") as file:
        return ".".join(re.search(r"version = ['\"](\d+)\.(\d+)", file.read()).groups())


def table():
    with open(TABLE, encoding="utf-8") as file:
        return json.load(file)


def differences(folder):
    version, found = version_of(folder), read(folder)
    known = table()
    if version not in known["versions"]:
        return [f"vLLM {version} is not in the table, which has {', '.join(known['versions'])}"]
    wanted = {name: next(s for s, versions in by.items() if version in versions) for name, by in known["signatures"].items()
              if any(version in versions for versions in by.values())}
    lines = [f"{version}: {name}({wanted.get(name, 'absent')}) is now ({found.get(name, 'absent')})"
             for name in sorted(set(wanted) | set(found)) if wanted.get(name) != found.get(name)]
    return lines


def write(folders):
    versions = {version_of(folder): read(folder) for folder in folders}
    names = sorted({name for found in versions.values() for name in found})
    signatures = {}
    for name in names:
        by = {}
        for version in sorted(versions):
            if name in versions[version]:
                by.setdefault(versions[version][name], []).append(version)
        signatures[name] = by
    print(json.dumps({"versions": sorted(versions), "signatures": signatures}, indent=1))


def _parameters(text):
    words = text.split(" ", 1) if text.split(" ")[0] in ("abstractmethod", "classmethod", "property", "staticmethod") else ["", text]
    while words[1].split(" ")[0] in ("abstractmethod", "classmethod", "property", "staticmethod"):
        words[1] = words[1].split(" ", 1)[1]
    return [word.split("=")[0].lstrip("*") for word in words[1].split(", ")], text.replace(words[1], "").replace("abstractmethod", "").split()


def unfit():
    """Why the connector does not fit the table: overrides with other parameters, abstract methods that are missing."""
    known = table()["signatures"]
    for file, cls, base in OURS:
        own = _functions(os.path.join(CONNECTOR, file), cls)
        theirs = {name.split(".", 1)[1]: by for name, by in known.items() if name.startswith(base + ".")}
        for name, by in theirs.items():
            for text, versions in by.items():
                if "abstractmethod" in text.split(",")[0] and name not in own:
                    yield f"{cls}.{name}() is missing; vLLM {', '.join(versions)} demands it"
                if name in own and _parameters(signature(own[name])) != _parameters(text):
                    yield f"{cls}.{name}({signature(own[name])}): vLLM {', '.join(versions)} calls it with ({text})"
        for name in own:
            if not name.startswith("_") and name not in theirs and base == "KVConnectorBase_V1":
                yield f"{cls}.{name}() overrides nothing that vLLM {', '.join(table()['versions'])} calls"


def newest():
    text = subprocess.run([sys.executable, "-m", "pip", "index", "versions", "vllm"], capture_output=True, text=True, check=True).stdout
    versions = re.search(r"Available versions: (.*)", text)[1].split(", ")
    chosen = {}
    for version in versions:  # the newest first
        chosen.setdefault(".".join(version.split(".")[:2]), version)
    lines = []
    for version in list(chosen.values())[:3]:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "-d", folder,
                            f"vllm=={version}"], check=True)
            (wheel,) = glob.glob(f"{folder}/*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for path in {path for path, _, _ in RELIED_ON} | {"vllm/_version.py"}:
                    archive.extract(path, folder)
            os.remove(wheel)
            lines += differences(folder)
    return lines


def main(args):
    if args[:1] == ["--write"]:
        write(args[1:])
        return 0
    questions = [("the_connector_fits_the_table", lambda: list(unfit()))]
    if args[:1] == ["--against"]:
        questions = [("the_table_fits_this_vllm", lambda: differences(args[1]))]
    if args[:1] == ["--newest"]:
        questions.append(("the_table_fits_the_newest_three_minor_versions", newest))
    print(f"1..{len(questions)}")
    failed = 0
    for number, (name, question) in enumerate(questions, 1):
        lines = question()
        failed += bool(lines)
        print(f"{'not ok' if lines else 'ok'} {number} - {name}", *lines, sep="\n# ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
