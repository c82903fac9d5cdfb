# SPDX-License-Identifier: Apache-2.0
"""The namespace: SGLang's keys are of tokens alone, so everything else that KV depends on is here.

As for vLLM (kvscout.vllm.identity) what counts is not listed: all arguments, all of hf_config and each module of the loaded
model count, except what is known to be harmless. They are found where SGLang makes the storage, in the scheduler's process.
Each rank computes its part; the ranks exchange the parts, and all have the same name. What cannot be known is not shared: the
namespace is then the engine's own.
"""

import os
from types import SimpleNamespace

from ..vllm import identity, loaded
from . import arguments, weights

# Of SGLang's ModelConfig: what it decided beyond the arguments, hf_config and the loaded model.
_OF_MODEL = ("dtype", "quantization", "attention_arch", "is_generation", "attention_chunk_size")


def factors(config, name, pool, planes, version):
    """What a page of the pool of that @name depends on beyond the model. @config: SGLang's HiCacheStorageConfig. @version: SGLang's; each
    release counts, because much changes within a minor version."""
    return {
        "unit": "page",
        "sglang": version.split("+")[0],
        "model": config.model_name if getattr(pool, "storage_format_tag", None) else None,
        "format": getattr(pool, "storage_format_tag", None),
        "name": name,
        "dtype": str(getattr(pool, "dtype", None)),
        "page_tokens": pool.page_size,
        "layout": pool.layout,
        "pool": type(pool).__name__,
        "planes": [size for _, _, size in planes],
        "mla": bool(config.is_mla_model),
        # Ranks of one engine are kvscout's KV ranks, but stages and context shards are apart.
        "ranks": ranks(config, name),
        "pp": [config.pp_rank, config.pp_size],
        "cp": [config.attn_cp_rank, config.attn_cp_size],
        "dcp": [config.dcp_rank, config.dcp_size],
    }


def ranks(config, name):
    """In how many parts the pages of a pool are. Those of MLA are the same in all ranks, but states of Mamba never are."""
    return 1 if config.is_mla_model and name != "mamba" else config.tp_size


def of_rank(scheduler):
    """What counts of the model as this rank has loaded it, and of how it runs. @scheduler: SGLang's, or None if it was not found."""
    if scheduler is None:
        raise identity.Unidentified("SGLang does not show the engine's configuration")
    model, values = scheduler.model_config, scheduler.server_args.resolved_dict()
    return {
        "model": of_loaded(scheduler),
        "hf_config": identity.plain(model.hf_config.to_dict()),
        "decided": {name: identity.plain(str(getattr(model, name, None))) for name in _OF_MODEL},
        "server": arguments.of_values(values),
        "environment": arguments.of_environment(),
        "adapters": [_adapter(adapter) for adapter in values["lora_paths"] or ()],
        "device": _device(),
    }


def of_loaded(scheduler):
    """Of the models as they are in this rank's memory now. A draft model may have its KV in the model's own pages."""
    modules = [(f"{at}/{path}", module) for at, runner in enumerate(runners(scheduler)) for path, module in runner.model.named_modules()]
    return loaded.of_modules(modules, lambda: _files(scheduler), "sglang")


def of_weights(scheduler):
    """Of the parameters alone: buffers and scalars may change while the engine runs, as a rope that grows."""
    found = [(name, tensor) for runner in runners(scheduler) for name, tensor in runner.model.named_parameters()]
    moved = next((name for name, tensor in found if not tensor.numel()), None)
    if moved is not None:
        raise identity.Unidentified(f"{moved} is where it cannot be read")
    return [[name, loaded.of_tensor(tensor)] for name, tensor in found]


def runners(scheduler):
    return [runner for worker in (scheduler.tp_worker, scheduler.draft_worker) if worker for _, runner in worker.weight_update_runners()]


def _files(scheduler):
    """In place of weights that cannot be read from memory."""
    if not weights.of_scheduler(scheduler, runners).untouched():
        raise identity.Unidentified("its weights may have been changed since they were loaded, and cannot be read from memory")
    model = scheduler.model_config  # SGLang's
    path, revision = model.model_path, getattr(model, "revision", None)
    return loaded.files(SimpleNamespace(model=path, revision=revision, hf_config=model.hf_config), scheduler.server_args)


def _adapter(adapter):
    """SGLang's keys have the name and path of an adapter that is there from the start, and not what is in its files."""
    name, path = (adapter["lora_name"], adapter["lora_path"]) if isinstance(adapter, dict) else (adapter.lora_name, adapter.lora_path)
    if not os.path.isdir(path):
        raise identity.Unidentified(f"the adapter {path} is no local folder")
    return [name, path, loaded.of_folder(path, loaded.start_of_this_process())]


def _device():
    """What kernels are chosen by."""
    import torch

    if torch.cuda.is_available():
        return [torch.version.hip, *torch.cuda.get_device_capability()]
    return torch.backends.cpu.get_cpu_capability()


def of_engine(scheduler):
    """(identity, why it is the engine's own or None). All ranks of a stage call this at once, and each waits for all."""
    parts = of_all_ranks(identity.known(lambda: identity.digest(of_rank(scheduler))), scheduler)
    return [part for part, _ in parts], next((why for _, why in parts if why), None)


def named(name, engine, found):
    """The namespace of a pool. @name: the user's. @engine: of of_engine(). @found: of factors()."""
    whole = f"sglang/{identity.digest([found, engine])}"
    return f"{name}/{whole}" if name else whole


def of_all_ranks(own, scheduler):
    """What each rank of a stage says here, in the order of the ranks."""
    group = getattr(scheduler, "tp_cpu_group", None)
    if group is None:
        return [own]
    import torch.distributed

    parts = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, own, group=group)
    return parts
