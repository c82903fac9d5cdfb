# SPDX-License-Identifier: Apache-2.0
"""The identity of a loaded model: each of its modules with class, scalar attributes, parameters and buffers.

This is where rope, attention and the scales of keys and values are found, whatever the model's code calls them, and the
weights, wherever they were loaded from. Of each tensor all bytes count, by sums that the device computes in one pass: 80 GB on
a GPU in a fraction of a second, and one changed value shows.
"""

import enum
import hashlib
import logging
import os
import sys
import time
import uuid

from .identity import Unidentified, commit, digest, file_digest, plain

logger = logging.getLogger("vllm.kvscout")

# Attributes of modules that may differ between engines with the same KV.
HARMLESS = {
    **dict.fromkeys(
        (
            "do_not_compile", "compiled", "first_compile", "evaluate_guards", "was_aot_compile_fn_loaded_from_disk",
            "_aot_compilation_path", "_aot_cache_dir", "_allow_aot_compile", "_compile_prefix", "_compile_tag",
            "layerwise_nvtx_tracing_enabled",
        ),
        "of torch.compile: whether, from where and when; the second start of an engine finds what the first one compiled",
    ),
    "training": "of every module of torch; vLLM does not train",
}
# Ropes of Transformers that are computed anew when a longer request comes: KV then depends on other requests.
_RESCALING = ("dynamic", "longrope")
# Formats of weights for which vLLM reads the model's files themselves.
_OF_FILES = ("auto", "hf", "safetensors", "pt", "mistral")
_NO_SCALAR = object()
_ROW = 4096  # words; see of_tensor()


def of_runner(runner, vllm_config, kv_cache_config, packed):
    """@runner: the model runner of this worker, or None. @packed: a Packed of this worker."""
    if runner is None:
        raise Unidentified("the model that vLLM has loaded was not found")
    roots = [("model", runner.get_model(), vllm_config.model_config, vllm_config.load_config)]
    speculative = getattr(vllm_config, "speculative_config", None)
    draft = runner.get_draft_model() if speculative is not None else None
    if draft is not None:
        load = getattr(speculative, "draft_load_config", None) or vllm_config.load_config
        roots.append(("draft", draft, speculative.draft_model_config, load))
    modules = [(f"{name}/{path}", module) for name, root, _, _ in roots for path, module in root.named_modules()]
    _need_all_layers(modules, vllm_config, kv_cache_config)
    return of_modules(modules, lambda: packed.read(modules, lambda: [files(model, load, root) for _, root, model, load in roots]))


def of_modules(modules, read_files, engine="vllm"):
    """@modules: [(path, module)]. @read_files(): of weights that cannot be read from memory. @engine: the package of the engine."""
    found = [of_module(path, module) for path, module in modules]
    if any(map(_has_moved_weights, (module for _, module in modules))):
        found.append(read_files())
    return [digest(found), _sources({type(module) for _, module in modules}, engine)]


class Packed:
    """Weights that cannot be read from memory. The files that they came from stand for them, until vLLM packs others: then it puts new
    functions into the modules."""

    def __init__(self):
        self._functions = self._found = None

    def read(self, modules, read_files):
        functions = [value for _, module in modules if _has_moved_weights(module) for value in vars(module).values() if callable(value)]
        if self._functions is None:
            self._found = read_files()
        elif len(functions) != len(self._functions) or any(one is not other for one, other in zip(functions, self._functions)):
            self._found = uuid.uuid4().hex
            logger.warning("kvscout: no other engine shares this engine's KV, because its new weights cannot be read from memory")
        self._functions = functions
        return self._found


def _need_all_layers(modules, vllm_config, kv_cache_config):
    """Every layer that has KV is part of a model that was looked at."""
    seen = {id(module) for _, module in modules}
    layers = vllm_config.compilation_config.static_forward_context
    for group in kv_cache_config.kv_cache_groups:
        for name in group.layer_names:
            if name in layers and id(layers[name]) not in seen:
                raise Unidentified(f"the layer {name} is in no model that vLLM shows")


def of_module(path, module):
    kinds = getattr(module, "rope_type", None)
    for rope_type in kinds.values() if isinstance(kinds, dict) else (kinds,):
        if rope_type in _RESCALING and hasattr(module, "max_seq_len_cached"):
            raise Unidentified(f"the rope of {path} is scaled anew when a longer request comes")
    impl = getattr(module, "impl", None)  # of an attention layer
    return [
        path,
        plain(type(module)),
        scalars(module),
        [plain(type(impl)), scalars(impl)] if hasattr(impl, "__dict__") else None,
        [[name, of_tensor(tensor)] for kind in (module._parameters, module._buffers)
         for name, tensor in sorted(kind.items()) if tensor is not None],
    ]


def scalars(owner):
    found = {}
    for name, value in vars(owner).items():
        value = _NO_SCALAR if name in HARMLESS else _scalar(value)
        if value is not _NO_SCALAR:
            found[name] = value
    return found


def _scalar(value):
    """Numbers, words, element types, and lists of them. Anything else is a part of the model's program."""
    if value is None or isinstance(value, bool | int | float | str) or type(value).__name__ == "dtype":
        return plain(value)
    if isinstance(value, enum.Enum):
        return plain(value)
    if isinstance(value, dict):
        items = {str(key): _scalar(item) for key, item in value.items()}
        return _NO_SCALAR if _NO_SCALAR in items.values() else items
    if isinstance(value, list | tuple):
        own = [_scalar(item) for item in value]
        return _NO_SCALAR if any(item is _NO_SCALAR for item in own) else own
    return _NO_SCALAR


def of_tensor(tensor):
    """Type, shape, order in memory and a digest of all bytes: as words of 8 bytes in rows of _ROW, summed by row and by column."""
    import torch

    tensor = tensor.detach()
    if tensor.is_meta:
        raise Unidentified("a parameter of its model has no memory")
    # What was transposed after loading is one piece of memory all the same, and is not copied.
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    raw = tensor.permute(order).contiguous().reshape(-1).view(torch.uint8)
    if raw.storage_offset() % 8:
        raw = raw.clone()
    n = raw.numel() // (8 * _ROW)
    whole = n * 8 * _ROW
    rows = raw[:whole].view(torch.int64).view(n, _ROW)
    sha = hashlib.sha256()
    for part in (rows.sum(0), rows.sum(1), raw[whole:]):
        sha.update(part.cpu().numpy().tobytes())
    return [plain(tensor.dtype), list(tensor.shape), order, sha.hexdigest()]


def _has_moved_weights(module):
    """vLLM's CPU build packs weights into memory that nothing can read, and leaves empty parameters."""
    return any(
        name.endswith(("weight", "weight_packed")) and tensor is not None and tensor.numel() == 0
        for name, tensor in module._parameters.items()
    )


def files(model, load, root=None):
    """The files that weights were loaded from, in place of weights that cannot be read. @model, @load: vLLM's ModelConfig and
    LoadConfig. @root: the loaded model."""
    if load.load_format == "dummy":
        raise Unidentified("its weights are random ones")
    if load.load_format not in _OF_FILES or getattr(model, "model_weights", None):
        raise Unidentified(f"its weights come from elsewhere than the model's files (load_format={load.load_format})")
    if getattr(root, "secondary_weights", None):
        raise Unidentified("some of its weights are not in the files of the model")
    if not os.path.isdir(model.model):
        return [model.model, commit(model, load.download_dir)]
    return [load.load_format, of_folder(model.model, start_of_this_process())]


def of_folder(folder, before):
    """Digests of the weights in @folder. @before: a time; see need_unchanged()."""
    weights = (".safetensors", ".bin", ".pt", ".pth", ".gguf", "adapter_config.json")  # the last one has an adapter's scale
    names = [name for name in sorted(os.listdir(folder)) if name.endswith(weights)]
    if not names:
        raise Unidentified(f"{folder} has no weights, and those in memory cannot be read")
    found = [[name, file_digest(os.path.join(folder, name))] for name in names]
    need_unchanged(folder, names, before)
    return found


def need_unchanged(folder, names, before):
    """Raises if one of these files may have been another one at the time @before, or after: the loader had a path and not the file, and
    nothing keeps what it opened. It may have been written since, and the folder or what leads to it moved, or a link there. What was
    moved has a new time of change, which nothing sets back, and so has the folder around it. A folder alone also has one when something
    else came into it."""
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        status = os.stat(path)
        moved = [at for above, at in _way(path) if min(os.lstat(at).st_ctime, os.stat(above).st_ctime) >= before]
        if max(status.st_mtime, status.st_ctime) >= before or moved:
            raise Unidentified(f"{(*moved, path)[0]} was written, moved or linked after this process began, and may not be what was loaded")


def _way(path):
    """What is looked up on the way to @path: (the folder, what is in it), through each link."""
    at, left = os.sep, os.path.join(os.getcwd(), path).split(os.sep)
    while left:
        above, name = at, left.pop(0)
        at = os.path.normpath(os.path.join(above, name))  # no link is left in @above
        if name not in ("", ".", ".."):
            yield above, at
        if os.path.islink(at):
            to = os.readlink(at)
            left, at = [*to.split(os.sep), *left], os.sep if os.path.isabs(to) else above


def start_of_this_process():
    """As files have their times, to 10 ms. psutil counts from the boot in whole seconds: up to one too early."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def _sources(classes, engine="vllm"):
    """Digests of the files of those classes that neither the engine nor torch brings: Transformers, plugins, a model's own code."""
    paths = set()
    for kind in classes:
        if kind.__module__.split(".")[0] not in (engine, "torch"):
            paths.add(getattr(sys.modules.get(kind.__module__), "__file__", None))
    if None in paths:
        raise Unidentified("a part of its model comes from no file")
    return [[os.path.basename(path), file_digest(path)] for path in sorted(paths)]
