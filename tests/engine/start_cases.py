# SPDX-License-Identifier: Apache-2.0
"""What is refused when vLLM makes its configuration. No engine is started, and no model is loaded."""

import abc
import contextlib
import os
from unittest import mock

import engine
from checks import need

OTHER = {
    "kv_connector": "ExampleConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"shared_storage_path": "/nonexistent"},
}


BLOCKS = {"kv_layout": "blocks"}


def _configure(model, extra, by_module=True, beside=None, **more):
    from vllm.engine.arg_utils import EngineArgs

    transfer = engine._transfer_config(dict(extra), beside)
    if not by_module:
        transfer.kv_connector_module_path = None
    args = EngineArgs(model=model, dtype="float32", max_model_len=4096, skip_tokenizer_init=True, kv_transfer_config=transfer, **more)
    return args.create_engine_config()


def _refused(sentence, *args, **more):
    try:
        _configure(*args, **more)
    except ValueError as error:
        need(sentence in str(error), f"vLLM refused the configuration with another sentence than {sentence!r}: {error}")
        return
    need(False, f"vLLM took a configuration that was to be refused with {sentence!r}")


def _raises(sentence, call, *args):
    try:
        found = call(*args)
    except ValueError as error:
        need(sentence in str(error), f"another sentence than {sentence!r}: {error}")
        return
    need(False, f"{found} instead of an error with {sentence!r}")


def _platform(**answers):
    """vLLM's platform with other answers to those who ask from now on."""
    import vllm.platforms

    real = vllm.platforms.current_platform
    own = mock.Mock(wraps=real, **{f"{name}.return_value": answer for name, answer in answers.items()})
    own.device_name = "another"
    return mock.patch.object(vllm.platforms, "current_platform", own)


def a_wrong_key_is_refused(model):
    for extra, sentence in (
        ({"chunk_size": 1}, "kv_connector_extra_config has no key 'chunk_size'"),
        ({"copy_method": "fast"}, "copy_method='fast' is not allowed: it is one of auto, staged, batch"),
        ({"l2": "ftp://host/kv"}, 'l2 = "ftp://host/kv": scheme "ftp": must be one of fs'),
        ({"l1_bytes": "512Ti"}, "is larger than the memory of this machine"),
        ({"endpoint": "tcp://10.0.0.1:1", "curve_server_key": "k" * 40}, "encryption needs curve_secret_file and curve_server_key"),
    ):
        _refused(sentence, model, extra)
        _refused(sentence, model, extra, beside=[OTHER])
    _configure(model, {"copy_method": "staged", "l2": "fs:///a/store/that/is/not/there"})
    _configure(model, {"copy_method": "staged"}, beside=[OTHER])


def by_its_name_it_is_checked_too(model):
    from kvscout.vllm import plugin

    plugin.register()
    _refused("has no key 'chunk_size'", model, {"chunk_size": 1}, by_module=False)
    _configure(model, {}, by_module=False)


def a_platform_that_is_not_served_is_refused(model):
    import torch
    from kvscout.vllm import start

    with _platform(is_cpu=False):
        _refused("vLLM runs on another platform here (another)", model, {})
    with _platform(is_cpu=False, is_cuda=True), mock.patch.object(start, "_cuda_problem", lambda: "there is no driver; install it"):
        _refused("cannot copy to and from this machine's GPUs: there is no driver; install it", model, {})
    with _platform(is_cpu=False, is_cuda=True), mock.patch.object(start, "_cuda_problem", lambda: None):
        _configure(model, {})
    need(not torch.cuda.is_initialized(), "CUDA is initialised")


@contextlib.contextmanager
def _as_on_cuda(by_user=None):
    """vLLM's platform says that it is CUDA. @by_user: VLLM_KV_CACHE_LAYOUT."""
    from kvscout.vllm import start

    with (
        _platform(is_cpu=False, is_cuda=True),
        mock.patch.object(start, "_cuda_problem", lambda: None),
        mock.patch.dict(os.environ, {"VLLM_KV_CACHE_LAYOUT": by_user} if by_user else {}),
    ):
        yield


def _layout(config, *readable):
    """What vLLM settles on if the backends read @readable, the best first."""
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

    return resolve_kv_cache_layout(config, [list(readable)]).name


def vllm_takes_the_layout_that_is_asked_for(model):
    """As its engine core does when the layers are loaded."""
    every = ("LBNHC", "LBHNC", "BLNHC", "BLHNC", "BHLNC")
    with _as_on_cuda():
        need(_layout(_configure(model, {}), *every) == "LBNHC", "without the key vLLM takes another layout than the backend's own")
        need(_layout(_configure(model, BLOCKS), *every) == "BLHNC", "vLLM does not take the layout that is asked for")
    with _as_on_cuda("BLNHC"):
        need(_layout(_configure(model, BLOCKS), *every) == "BLNHC", "the user's own layout does not come first")
        need(_layout(_configure(model, BLOCKS, beside=[OTHER]), *every) == "BLNHC", "nor below MultiConnector")


def blocks_that_vllm_would_not_lay_out_are_refused(model):
    from kvscout.vllm.connector import KVScoutConnector
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

    _refused("another platform here", model, BLOCKS)
    with _as_on_cuda("HND"):
        _refused("contradicts VLLM_KV_CACHE_LAYOUT=HND", model, BLOCKS)
    with _as_on_cuda():
        _refused("does not serve kv_layout=blocks below MultiConnector", model, BLOCKS, beside=[OTHER])
        # Here vLLM asks for no class before it wants to know the layout, and without the refusal it would start.
        late = _configure(model, {}, beside=[OTHER], disable_hybrid_kv_cache_manager=True, enforce_eager=True)
        late.kv_transfer_config.kv_connector_extra_config["connectors"][0]["kv_connector_extra_config"] = BLOCKS
        _raises("does not serve kv_layout=blocks below MultiConnector", _layout, late, "LBNHC", "BLHNC")
        config = _configure(model, BLOCKS)
        found = _kv_cache_config(_layout(config, "LBNHC"))  # vLLM logs a warning and goes on
        _raises("vLLM chose the layout LBNHC", KVScoutConnector, config, KVConnectorRole.SCHEDULER, found)


def _kv_cache_config(layout):
    import torch
    from vllm.v1 import kv_cache_interface as kv

    spec = kv.FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=8, dtype=torch.float32)
    return kv.KVCacheConfig(
        num_blocks=2, kv_cache_tensors=[], kv_cache_groups=[kv.KVCacheGroupSpec(["a", "b"], spec)], kv_cache_layout=layout
    )


def another_layout_is_another_namespace(model):
    """All else is the same."""
    from kvscout.vllm import identity

    layouts = ("LBNHC", "BLHNC", "BLNHC")
    config = _configure(model, {})
    names = {identity.digest(identity.of_config(config, _kv_cache_config(layout))) for layout in (*layouts, *layouts)}
    need(len(names) == 3, f"three layouts have {len(names)} names")


def _specs():
    """vLLM's own, each with what is wrong with it, or None."""
    import torch
    from vllm.v1 import kv_cache_interface as kv

    shape = {"block_size": 16, "num_kv_heads": 2, "head_size": 8, "dtype": torch.float32}
    full, mla = kv.FullAttentionSpec(**shape), kv.MLAAttentionSpec(**shape)
    blind = kv.MLAAttentionSpec(**shape, non_causal_multi_token_decode=True)
    window = kv.SlidingWindowSpec(**shape, sliding_window=64)
    plugin = type("FullAttentionSpecOfAPlugin", (kv.FullAttentionSpec,), {})(**shape)
    for spec in (full, mla, window, kv.ChunkedLocalAttentionSpec(**shape, attention_chunk_size=64), kv.SlidingWindowMLASpec(**shape, sliding_window=64)):
        yield spec, None
    yield kv.UniformTypeKVCacheSpecs(16, {"a": full, "b": full}), None
    yield kv.UniformTypeKVCacheSpecs(16, {"a": full, "b": mla}), None
    yield kv.FullAttentionSpec(**shape, non_causal=True), "does not serve layers with non_causal,"
    yield blind, "does not serve layers with non_causal_multi_token_decode"
    yield kv.UniformTypeKVCacheSpecs(16, {"a": mla, "b": blind}), "does not serve layers with non_causal_multi_token_decode"
    yield kv.RSWASpec(**shape, rswa_window=64), "KV of another kind (RSWASpec)"
    yield kv.SinkFullAttentionSpec(**shape, sink_len=16), "KV of another kind (SinkFullAttentionSpec)"
    yield kv.HiddenStateCacheSpec(**shape), "KV of another kind (HiddenStateCacheSpec)"
    yield plugin, "KV of another kind (FullAttentionSpecOfAPlugin)"
    yield kv.UniformTypeKVCacheSpecs(16, {"a": full, "b": plugin}), "KV of another kind (FullAttentionSpec and FullAttentionSpecOfAPlugin)"


def layers_whose_kv_is_no_function_of_the_prefix_are_refused(model):
    """No key allows them, and a class that inherits from one that is served is not served."""
    from kvscout.vllm.connector import KVScoutConnector
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
    from vllm.v1 import kv_cache_interface as kv

    config = _configure(model, {"without_prefix_cache": "trust"})
    for spec, sentence in _specs():
        found = kv.KVCacheConfig(2, [], [kv.KVCacheGroupSpec(["a", "b"], spec)])
        if sentence is None:
            KVScoutConnector(config, KVConnectorRole.SCHEDULER, found).shutdown()
        else:
            _raises(sentence, KVScoutConnector, config, KVConnectorRole.SCHEDULER, found)


def a_wrong_endpoint_is_refused(model):
    for endpoint in ("http://host:1", "tcp://host", "/run/kvscout.sock", "ipc://relative", "auto://relative"):
        _refused("endpoint", model, {"endpoint": endpoint})
        _refused("endpoint", model, {"endpoint": endpoint}, beside=[OTHER])


def _unknown(base):
    """A vLLM of tomorrow: one more argument for each constructor, one more method that must be there, and other parameters."""
    import vllm

    theirs = base.KVConnectorBase_V1

    class Tomorrow(theirs):
        @abc.abstractmethod
        def of_tomorrow(self, more): ...

        @property
        @abc.abstractmethod
        def also_of_tomorrow(self): ...

        def __init__(self, vllm_config, role, kv_cache_config, more):
            theirs.__init__(self, vllm_config, role, kv_cache_config)

    return mock.patch.multiple(vllm, __version__="0.99.1"), mock.patch.object(base, "KVConnectorBase_V1", Tomorrow)


def a_vllm_that_is_not_known_gets_an_inert_connector(model):
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.v1 import base

    version, tomorrow = _unknown(base)
    with version, mock.patch("logging.Logger.warning") as warned:
        config = _configure(model, {"chunk_size": "a key that this kvscout does not know either"})
        made = KVConnectorFactory.create_connector(config, base.KVConnectorRole.SCHEDULER, _kv_cache_config("LBNHC"))
        KVConnectorFactory.create_connector(config, base.KVConnectorRole.WORKER, _kv_cache_config("LBNHC"))
        lines = [call.args[0] for call in warned.call_args_list if "inert" in str(call.args[0])]
        need(len(lines) == 1 and "does not know vLLM 0.99" in lines[0], f"the log has {lines}")
        need(isinstance(made, base.SupportsHMA) and not made.requires_kv_delivery, "vLLM takes it for another kind of connector")
        need(made.get_num_new_matched_tokens(None, 0) == (0, False), "it finds something")
        need(made.request_finished_all_groups(None, ()) == (False, None), "it holds blocks back")
        need(isinstance(made.build_connector_meta(None), base.KVConnectorMetadata), "vLLM gets no metadata")
        with tomorrow:
            late = KVConnectorFactory.get_connector_class(config.kv_transfer_config)(config, base.KVConnectorRole.SCHEDULER, None, more=1)
            need((late.of_tomorrow(1), late.also_of_tomorrow, late.update_state_after_alloc(1, 2, 3, 4)) == (None,) * 3, "what is new has an answer")
        _refused("has no key 'chunk_size'", model, {"unknown_vllm": "trust", "chunk_size": 1})
        need(_class_of(_configure(model, {"unknown_vllm": "trust"})).__module__ == "kvscout.vllm.connector", "the key is not heard")


def _class_of(config):
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    return KVConnectorFactory.get_connector_class(config.kv_transfer_config)


def a_vllm_that_is_not_known_gets_an_inert_tier(model):
    import vllm
    from vllm.v1.kv_offload.tiering.base import LookupResult, TransferJob
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    own = {"type": "KVScoutTier", "module_path": "kvscout.vllm_tier", "namespace": "m", "of_tomorrow": 1}
    with mock.patch.object(vllm, "__version__", "0.99.1"), mock.patch("logging.Logger.warning") as warned:
        made = SecondaryTierFactory.create_secondary_tier(own, memoryview(bytearray(64)).cast("B", (8, 8)), None)
        need("does not know vLLM 0.99" in str(warned.call_args_list), f"the log has {warned.call_args_list}")
        trusted = SecondaryTierFactory.get_tier_class({**own, "unknown_vllm": "trust"})
    need(trusted.__module__ == "kvscout.vllm_tier.tier", "the key is not heard")
    made.submit_store(TransferJob(7, [b"k"], None, False, None))
    need(made.has_pending_work() and made.lookup(b"k", None) is LookupResult.MISS, "it keeps something")
    need([(end.job_id, end.success) for end in made.get_finished_jobs()] == [(7, False)] and not made.has_pending_work(), "a job does not end")
    made.drain_jobs()


CASES = (
    layers_whose_kv_is_no_function_of_the_prefix_are_refused,
    a_wrong_endpoint_is_refused,
    a_vllm_that_is_not_known_gets_an_inert_connector,
    a_vllm_that_is_not_known_gets_an_inert_tier,
    a_wrong_key_is_refused,
    by_its_name_it_is_checked_too,
    a_platform_that_is_not_served_is_refused,
    vllm_takes_the_layout_that_is_asked_for,
    blocks_that_vllm_would_not_lay_out_are_refused,
    another_layout_is_another_namespace,
)
