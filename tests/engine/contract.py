#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What connector and tier rely on in vLLM, as a table of signatures (contract.json), and three questions about it.

    contract.py                   do connector and tier fit the table? Needs no vLLM: both are read, not imported. TAP.
    contract.py --against FOLDER  does the table fit the vLLM that lies unpacked in FOLDER (the folder above vllm/)?
    contract.py --newest          does it fit the newest three minor versions on PyPI? Downloads 330 MB for each.
    contract.py --write [FOLDER...] prints a new table: for these unpacked versions, or for the newest three.

A method that vLLM adds is as interesting as one that it changes: the connector may have to answer it. Of classes that
only hold values the table has the fields. It also has each place that writes the field WRITTEN: where vLLM switches its own prefix
cache off, KV is no function of the prefix, and a person has to look why.
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
PACKAGE = os.path.join(HERE, "..", "..", "python", "kvscout")
_V1 = "vllm/distributed/kv_transfer/kv_connector/v1"
_FACTORY = "vllm/distributed/kv_transfer/kv_connector/factory.py"
_OFFLOAD = "vllm/v1/kv_offload"
_KINDS = ("abstractmethod", "classmethod", "property", "staticmethod")
FIELDS = ()  # no methods: the class's fields
WRITTEN = "enable_prefix_caching"
# (file, class or None, methods or None for all public ones)
RELIED_ON = (
    (f"{_V1}/base.py", "KVConnectorBase_V1", None),
    (f"{_V1}/base.py", "KVConnectorTransferResults", FIELDS),
    (f"{_V1}/base.py", "KVConnectorWorkerMetadata", None),
    (f"{_V1}/base.py", "SupportsHMA", None),
    (f"{_V1}/metrics.py", "KVConnectorStats", None),
    (f"{_V1}/metrics.py", "KVConnectorPromMetrics", ("__init__", "observe")),
    ("vllm/config/model.py", "ModelConfig", FIELDS),
    ("vllm/config/model.py", "ModelConfig", ("try_get_generation_config",)),
    ("vllm/v1/worker/gpu_model_runner.py", "GPUModelRunner", ("get_model", "get_draft_model")),
    ("vllm/v1/worker/gpu/model_runner.py", "GPUModelRunner", ("get_model", "get_draft_model")),
    ("vllm/v1/worker/gpu_worker.py", "Worker", ("start_weight_update", "start_draft_weight_update", "finish_weight_update")),
    ("vllm/v1/executor/uniproc_executor.py", "UniProcExecutor", ("collective_rpc",)),
    ("vllm/v1/executor/multiproc_executor.py", "MultiprocExecutor", ("collective_rpc",)),
    (f"{_V1}/base.py", "KVConnectorHandshakeMetadata", FIELDS),
    (_FACTORY, "KVConnectorFactory", ("register_connector", "create_connector", "get_connector_class", "supports_hma_config")),
    (f"{_V1}/multi_connector.py", "MultiConnector", ("get_required_kvcache_layout",)),
    ("vllm/v1/kv_cache_layout.py", "KVCacheLayout", FIELDS),
    ("vllm/v1/attention/backends/utils.py", None, ("resolve_kv_cache_layout",)),
    ("vllm/v1/attention/backend.py", "AttentionBackend", ("get_name", "get_supported_kernel_block_sizes")),
    ("vllm/v1/attention/backend.py", "MultipleOf", FIELDS),
    ("vllm/model_executor/layers/attention_layer_base.py", "AttentionLayerBase", ("get_attn_backend", "get_kv_cache_spec")),
    ("vllm/v1/kv_cache_interface.py", "AttentionSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "FullAttentionSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "MLAAttentionSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "UniformTypeKVCacheSpecs", FIELDS),
    ("vllm/config/pooler.py", "PoolerConfig", FIELDS),
    ("vllm/pooling_params.py", "PoolingParams", FIELDS),
    ("vllm/multimodal/inputs.py", "MultiModalFeatureSpec", FIELDS),
    ("vllm/renderers/base.py", "BaseRenderer", ("_process_mm_uuids", "_process_multimodal")),
    ("vllm/config/vllm.py", None, ("set_current_vllm_config",)),
    ("vllm/tracing/__init__.py", None, ("instrument_manual", "is_tracing_available")),
    ("vllm/tracing/otel.py", None, ("extract_trace_context",)),
    ("vllm/config/kv_events.py", "KVEventsConfig", FIELDS),
    ("vllm/distributed/kv_events.py", "BlockStored", FIELDS),
    ("vllm/distributed/kv_events.py", "BlockRemoved", FIELDS),
    ("vllm/v1/core/kv_cache_utils.py", None, ("maybe_convert_block_hash", "generate_block_hash_extra_keys", "to_event_extra_keys")),
    ("vllm/v1/kv_cache_interface.py", None, ("get_kv_cache_spec_kind", "get_kv_cache_spec_sliding_window")),
    ("vllm/v1/core/block_pool.py", "BlockPool", ("reset_prefix_cache",)),
    ("vllm/multimodal/inputs.py", "MultiModalFeatureSpec", FIELDS),
    (f"{_OFFLOAD}/base.py", "OffloadingEvent", FIELDS),
    ("vllm/platforms/interface.py", "Platform", ("is_cpu", "is_cuda", "is_unspecified")),
    ("vllm/v1/core/block_pool.py", "BlockPool", ("touch", "free_blocks", "get_num_free_blocks", "evict_blocks")),
    ("vllm/v1/core/kv_cache_manager.py", "KVCacheManager", ("get_block_ids",)),
    ("vllm/v1/core/kv_cache_manager.py", "KVCacheBlocks", ("get_block_ids",)),
    ("vllm/v1/core/sched/output.py", "KVConnectorBlockState", FIELDS),
    ("vllm/v1/kv_cache_interface.py", None, ("group_kernel_blocks",)),
    ("vllm/v1/kv_cache_interface.py", "SlidingWindowSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "ChunkedLocalAttentionSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "MambaSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "KVCacheGroupSpec", FIELDS),
    ("vllm/v1/kv_cache_interface.py", "KVCacheConfig", FIELDS),
    (f"{_OFFLOAD}/tiering/base.py", "SecondaryTierManager", None),
    (f"{_OFFLOAD}/tiering/base.py", "TransferJob", FIELDS),
    (f"{_OFFLOAD}/tiering/base.py", "JobResult", FIELDS),
    (f"{_OFFLOAD}/tiering/factory.py", "SecondaryTierFactory", ("register_tier", "create_secondary_tier")),
    (f"{_OFFLOAD}/base.py", None, ("make_offload_key",)),
    (f"{_OFFLOAD}/base.py", "LookupResult", FIELDS),
    (f"{_OFFLOAD}/base.py", "Medium", FIELDS),
    (f"{_OFFLOAD}/base.py", "Locality", FIELDS),
    (f"{_OFFLOAD}/base.py", "ReqContext", FIELDS),
    (f"{_OFFLOAD}/base.py", "RequestOffloadingContext", FIELDS),
    (f"{_OFFLOAD}/base.py", "ScheduleEndContext", FIELDS),
    (f"{_OFFLOAD}/base.py", "OffloadingMetricMetadata", FIELDS),
    (f"{_OFFLOAD}/config.py", "OffloadingConfig", FIELDS),
    (f"{_OFFLOAD}/config.py", "OffloadingGroupConfig", FIELDS),
    (f"{_OFFLOAD}/config.py", "OffloadingModelConfig", FIELDS),
    (f"{_OFFLOAD}/config.py", "OffloadingCacheConfig", FIELDS),
    (f"{_OFFLOAD}/config.py", "OffloadingParallelConfig", FIELDS),
    (f"{_V1}/offloading/metrics.py", "OffloadingConnectorStats", ("increase_counter", "set_gauge", "observe_histogram")),
)
# Our classes and what they stand for, with a blank between several; whether each public method must override one of
# theirs.
OURS = (
    ("vllm/connector.py", "KVScoutConnector", "KVConnectorBase_V1 SupportsHMA", True),
    ("vllm/metadata.py", "WorkerMetadata", "KVConnectorWorkerMetadata", False),
    ("vllm/stats.py", "Stats", "KVConnectorStats", False),
    ("vllm/stats.py", "PromMetrics", "KVConnectorPromMetrics", False),
    ("vllm_tier/tier.py", "KVScoutTier", "SecondaryTierManager", True),
)


def _body(path, cls):
    if not os.path.exists(path):
        return []  # of another version: whatever was there is absent
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    if cls is None:
        return tree.body
    return next((node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls), [])


def _functions(path, cls):
    return {node.name: node for node in _body(path, cls) if isinstance(node, ast.FunctionDef)}


def _fields(path, cls):
    """Of a dataclass, a named tuple or an enumeration, in their order; those with a default end in `=`."""
    words = []
    for node in _body(path, cls):
        if isinstance(node, ast.AnnAssign) and not ast.unparse(node.annotation).startswith(("ClassVar", "InitVar")):
            words.append(node.target.id + ("=" if node.value is not None else ""))
        elif isinstance(node, ast.Assign):
            words += [target.id for target in node.targets]
    return ", ".join(words)


def signature(function):
    """`classmethod self, request, n=0, **kwargs`: what a caller and an override must agree on."""
    kinds = [d.id for d in function.decorator_list if isinstance(d, ast.Name) and d.id in _KINDS]
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args)]
    first_default = len(names) - len(args.defaults)
    words = names[:first_default]
    words += [f"{name}={ast.unparse(value)}" for name, value in zip(names[first_default:], args.defaults)]
    if args.vararg:
        words.append(f"*{args.vararg.arg}")
    for arg, default in zip(args.kwonlyargs, args.kw_defaults):
        words.append(arg.arg if default is None else f"{arg.arg}={ast.unparse(default)}")
    if args.kwarg:
        words.append(f"**{args.kwarg.arg}")
    return " ".join([*sorted(kinds), ", ".join(words)]).strip()


def _written(node):
    """What @node writes into the field, as text, or None."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else []
    if node.__dict__.get("value") is not None and any(getattr(target, "attr", None) == WRITTEN for target in targets):
        return ast.unparse(node.value)
    if isinstance(node, ast.Call):
        if ast.unparse(node.func).endswith("setattr") and any(getattr(arg, "value", None) == WRITTEN for arg in node.args):
            return ast.unparse(node.args[-1])
        return next((ast.unparse(word.value) for word in node.keywords if word.arg == WRITTEN), None)
    return None


def _writes(path):
    """{function, with its class in front: what it writes}."""
    found = {}

    def walk(node, where):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            where = [*where, node.name]
        value = _written(node)
        if value is not None:
            found.setdefault(".".join(where), []).append(value)
        for child in ast.iter_child_nodes(node):
            walk(child, where)

    with open(path, encoding="utf-8") as file:
        text = file.read()
    if WRITTEN in text:
        walk(ast.parse(text), [])
    return {where: ", ".join(values) for where, values in found.items()}


def writes(folder):
    """{place: what it writes} of the whole of an unpacked vLLM, but for its benchmarks."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "vllm", "**", "*.py"), recursive=True)):
        name = os.path.relpath(path, folder)
        if not name.startswith("vllm/benchmarks/"):
            found.update({f"{WRITTEN} in {name} {where}": value for where, value in _writes(path).items()})
    return found


def read(folder):
    """{class.method: signature} of an unpacked vLLM."""
    found = writes(folder)
    for path, cls, names in RELIED_ON:
        if names is FIELDS:
            fields = _fields(os.path.join(folder, path), cls)
            found.update({f"{cls} fields": fields} if fields else {})
            continue
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
    wanted = {name: s for name, by in known["signatures"].items() for s, versions in by.items() if version in versions}
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
    lines = (f"  {json.dumps(name)}: {json.dumps(by)}" for name, by in signatures.items())
    print(f'{{\n "versions": {json.dumps(sorted(versions))},\n "signatures": {{', ",\n".join(lines), " }\n}", sep="\n")


def _parameters(text):
    """A signature as (names of the parameters, kinds without abstractmethod)."""
    words = text.split(" ")
    n = next((at for at, word in enumerate(words) if word not in _KINDS), len(words))
    names = [word.split("=")[0] for word in " ".join(words[n:]).split(", ")]
    return names, [kind for kind in words[:n] if kind != "abstractmethod"]


def _fits(own, theirs):
    """An override takes the same parameters; with keyword arguments behind them it may take more."""
    (own_names, own_kinds), (their_names, their_kinds) = _parameters(own), _parameters(theirs)
    if own_names[-1].startswith("**") and not their_names[-1].startswith("**"):
        own_names = own_names[:-1]
    return (own_names, own_kinds) == (their_names, their_kinds)


def unfit():
    """Why ours do not fit the table: overrides with other parameters, abstract methods that are missing, other versions of vLLM."""
    known, versions = table()["signatures"], _tuple_of("vllm/inert.py", "KNOWN")
    if versions != table()["versions"]:
        yield f"vllm/inert.py knows vLLM {', '.join(versions)}, and the table has {', '.join(table()['versions'])}"
    for file, cls, bases, overrides_only in OURS:
        own = _functions(os.path.join(PACKAGE, file), cls)
        theirs = {}
        for base in bases.split():
            found = {name.split(".", 1)[1]: by for name, by in known.items() if name.startswith(base + ".")}
            if not found:
                yield f"the table has nothing of {base}"
            theirs.update(found)
        for name, by in theirs.items():
            for text, versions in by.items():
                if "abstractmethod" in text.split(",")[0] and name not in own:
                    yield f"{cls}.{name}() is missing; vLLM {', '.join(versions)} demands it"
                if name in own and not _fits(signature(own[name]), text):
                    yield f"{cls}.{name}({signature(own[name])}): vLLM {', '.join(versions)} calls it with ({text})"
        for name in own if overrides_only else ():
            if not name.startswith("_") and name not in theirs:
                yield f"{cls}.{name}() overrides nothing that vLLM {', '.join(table()['versions'])} calls"


def _table_of(file, name):
    """The words of a table of ours: the keys of a dict, or a text that is split."""
    with open(os.path.join(PACKAGE, file), encoding="utf-8") as source:
        tree = ast.parse(source.read())
    value = next(node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == name)
    if isinstance(value, ast.Dict):
        return {key.value for key in value.keys}
    return set(next(node.value for node in ast.walk(value) if isinstance(node, ast.Constant)).split())


def _tuple_of(file, name):
    with open(os.path.join(PACKAGE, file), encoding="utf-8") as source:
        tree = ast.parse(source.read())
    return next(list(ast.literal_eval(node.value)) for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == name)


_NEW = """
class C:
    def f(self, c):
        if c.enable_prefix_caching:
            c.enable_prefix_caching = False
    async def g(self, c):
        setattr(c, "enable_prefix_caching", 0)
def h(c):
    return c.replace(enable_prefix_caching=None)
def i(c):
    return c.enable_prefix_caching == 1
"""


def unseen():
    """Ways to write the field that writes() does not find."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "vllm"))
        with open(os.path.join(folder, "vllm", "new.py"), "w", encoding="utf-8") as file:
            file.write(_NEW)
        found = writes(folder)
    if found != {f"{WRITTEN} in vllm/new.py {where}": value for where, value in (("C.f", "False"), ("C.g", "0"), ("h", "None"))}:
        yield f"found: {found}"


def undecided():
    """Fields of vLLM's ModelConfig of which identity.py does not say whether they count, and fields that are gone."""
    known = _table_of("vllm/identity.py", "HARMLESS") | _table_of("vllm/identity.py", "COUNTED")
    there = {}
    for text, versions in table()["signatures"]["ModelConfig fields"].items():
        for word in text.split(", "):
            there.setdefault(word.removesuffix("="), []).extend(versions)
    for name in sorted(set(there) - known):
        yield f"ModelConfig.{name} of vLLM {', '.join(there[name])}: identity.py does not say whether it counts"
    for name in sorted(known - set(there)):
        yield f"ModelConfig.{name} is in identity.py, and in no vLLM of the table"


def newest_versions():
    """The newest release of each of the newest three minor versions."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", "vllm"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    chosen = {}
    for version in re.search(r"Available versions: (.*)", text)[1].split(", "):  # the newest first
        chosen.setdefault(".".join(version.split(".")[:2]), version)
    return list(chosen.values())[:3]


def unpack(version, folder):
    """What is Python, out of the wheel on PyPI."""
    with tempfile.TemporaryDirectory() as downloads:
        subprocess.run(
            [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps",
             "--no-cache-dir", "--only-binary", ":all:", "-d", downloads, f"vllm=={version}"], check=True,
        )
        (wheel,) = glob.glob(f"{downloads}/*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [path for path in archive.namelist() if path.startswith("vllm/") and path.endswith(".py")])


def newest():
    """Differences of the newest three minor versions from the table."""
    lines = []
    for version in newest_versions():
        with tempfile.TemporaryDirectory() as folder:
            unpack(version, folder)
            lines += differences(folder)
    return lines


def write_newest():
    with tempfile.TemporaryDirectory() as folder:
        folders = [os.path.join(folder, version) for version in newest_versions()]
        for where in folders:
            unpack(os.path.basename(where), where)
        write(folders)


def main(args):
    if args[:1] == ["--write"]:
        write(args[1:]) if args[1:] else write_newest()
        return 0
    questions = [
        ("connector_and_tier_fit_the_table", lambda: list(unfit())),
        ("each_field_of_a_models_configuration_counts_or_is_harmless", lambda: list(undecided())),
        ("each_way_to_switch_the_prefix_cache_off_is_found", lambda: list(unseen())),
    ]
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
