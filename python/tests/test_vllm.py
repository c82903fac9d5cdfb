# SPDX-License-Identifier: Apache-2.0
"""The parts of kvscout.vllm that need no vLLM: configuration, ranks, refusals, the namespace's ingredients, a request's parameters."""

import importlib
import logging
import os
import subprocess
import sys
import tempfile
import types
import unittest
from types import SimpleNamespace
from unittest import mock

import kvscout
from kvscout import _kvscout
from kvscout.vllm import config, groups, hints, inert, internals, library_keys, logs, namespace, pins, plugin, ranks, refusals, request, wishes
from vllm_rig import modules_of_vllm, platform
from vllm_rig import request as vllm_request


class Importing(unittest.TestCase):
    def test_importing_the_package_imports_no_vllm_and_starts_no_thread(self):
        code = "import kvscout.vllm, sys, threading; assert 'vllm' not in sys.modules; assert threading.active_count() == 1"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_an_unknown_name_is_an_attribute_error(self):
        import kvscout.vllm

        with self.assertRaisesRegex(AttributeError, "no attribute 'Connector'"):
            kvscout.vllm.Connector

    def test_the_plugin_never_raises(self):
        code = "import sys; sys.modules['vllm'] = None\nfrom kvscout.vllm import plugin\nplugin.register()"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertIn("kv_connector_module_path", result.stderr)
        self.assertIn('"module_path": "kvscout.vllm_tier"', result.stderr)
        self.assertEqual(plugin.NAME, "KVScoutConnector")


class Logs(unittest.TestCase):
    def test_lines_of_the_library_reach_the_handlers_of_vllm(self):
        self.addCleanup(setattr, logging.getLogger("kvscout"), "parent", logging.getLogger())
        logs.join_vllm()
        logs.join_vllm()
        with self.assertLogs("vllm", logging.INFO) as log:
            logging.getLogger("kvscout").info("connected")
        self.assertEqual(log.output, ["INFO:kvscout:connected"])

    def test_a_logger_with_handlers_of_its_own_is_left_alone(self):
        library, handler = logging.getLogger("kvscout"), logging.NullHandler()
        library.addHandler(handler)
        self.addCleanup(library.removeHandler, handler)
        logs.join_vllm()
        self.assertIs(library.parent, logging.getLogger())


class Configuration(unittest.TestCase):
    def test_the_defaults(self):
        found = config.parse({}, 16)
        self.assertEqual((found.chunk_tokens, found.block_tokens, found.load_async, found.store, found.load_failure), (128, 16, True, "all", "recompute"))
        self.assertEqual((found.library, found.weights_version), (library_keys.Library(None, server=(("idle_exit_s", "600"),)), 0))
        self.assertEqual((found.step_wait_us, found.kv_layout, found.verify_sample, found.mismatches_make_inert), (500, "engine", 0.001, True))
        self.assertEqual(config.parse({"step_wait_us": 0}, 16).step_wait_us, 0)

    def test_chunks_are_whole_blocks_and_the_user_is_told(self):
        for asked, block, found in ((256, 16, 256), (256, 96, 288), (100, 64, 128), (1, 128, 128)):
            extra = {"chunk_tokens": asked}
            parsed = config.parse(extra, block)
            self.assertEqual(parsed.chunk_tokens, found)
            sentences = list(config.notes(extra, parsed))
            self.assertEqual(len(sentences), asked != found)
            self.assertTrue(all(str(found) in s and str(block) in s for s in sentences))

    def test_an_unknown_key_names_all_keys(self):
        with self.assertRaisesRegex(config.ConfigError, "no key 'chunk_size'.*chunk_tokens"):
            config.parse({"chunk_size": 1}, 16)

    def test_wrong_values_say_what_is_allowed(self):
        for extra, sentence in (
            ({"load": "lazy"}, "load='lazy' is not allowed: it is one of async, sync"),
            ({"l2": ["redis://me:secret@h", "redis://:secret@h 2"]}, r"l2=.'redis://me:\*\*\*@h', 'redis://:\*\*\*@h 2'. is not allowed"),
            ({"store": "some"}, "one of all, prompt, off"),
            ({"kv_layout": "BLHNC"}, "one of engine, blocks"),
            ({"load_failure": "retry"}, "one of recompute, fail"),
            ({"chunk_tokens": 0}, "from 1 to 1048576"),
            ({"chunk_tokens": True}, "from 1 to 1048576"),
            ({"chunk_tokens": 1.5}, "from 1 to 1048576"),
            ({"step_wait_us": 1000001}, "from 0 to 1000000"),
            ({"step_wait_us": "soon"}, "from 0 to 1000000"),
            ({"l1_bytes": "lots"}, "suffix such as Mi or Gi"),
            ({"l1_bytes": "5i"}, "suffix such as Mi or Gi"),
            ({"endpoint": ""}, "a text of 1 to 4096 bytes"),
            ({"namespace": "x" * 129}, "1 to 128 bytes"),
            ({"l2": 3}, "a URL"),
            ({"l2": "fs:///with blank"}, "without blanks"),
            ({"weights_version": -1}, "from 0 to"),
            ({"endpoint": "ipc:///x", "l2": "fs:///y"}, "a server already"),
            ({"copy_method": "fast"}, "copy_method='fast' is not allowed: it is one of auto, staged, batch"),
            ({"stage_bytes": "1Ki"}, "from 524288 to 17179869184"),
            ({"numa_node": "left"}, "auto, none or a number from 0 to 1023"),
            ({"numa_node": 1024}, "from 0 to 1023"),
            ({"numa_node": True}, "from 0 to 1023"),
            ({"cpus": "0, 1"}, "a list of CPUs below 1024, such as 0-3,8"),
            ({"cpus": "3-0"}, "such as 0-3,8"),
            ({"cpus": "0-1024"}, "such as 0-3,8"),
            ({"cpus": [0, 1]}, "such as 0-3,8"),
            ({"without_prefix_cache": True}, "one of inert, trust"),
            ({"unknown_vllm": "yes"}, "one of inert, trust"),
            *(({"verify_sample": share}, "a number from 0 to 1") for share in (-0.1, 2, "1", True, float("nan"))),
            ({"verify_action": "stop"}, "one of inert, log"),
            *(({"endpoint": endpoint}, "endpoint='.*' is not allowed: it is ipc:///path .*tcp://host:port") for endpoint in (
                "http://host:1", "tcp:/host", "/run/kvscout.sock", "localhost:5000", "ipc://relative", "auto://relative", "automatic",
                "ipc:///a ipc:///b", "ipc:///" + "x" * 107, "inproc://x")),
            ({"endpoint": "tcp://host:99999"}, "the port must be 1..65535"),
        ):
            with self.subTest(extra=extra), self.assertRaisesRegex(config.ConfigError, sentence):
                config.parse(extra, 16)

    def test_keys_for_copies_reach_the_worker_as_its_own_keys(self):
        self.assertEqual(config.parse({}, 16).copy_keys, {})
        given = {"copy_method": "batch", "stage_bytes": "64Mi", "numa_node": 0, "cpus": "0-3,8"}
        found = config.parse(given, 16).copy_keys
        self.assertEqual(found, {**given, "stage_bytes": 64 << 20, "numa_node": "0"})
        for words in ({"numa_node": "none", "cpus": "inherit"}, {"cpus": 0}, {"stage_bytes": "16Gi", "numa_node": 1023}):
            kvscout.Worker(**config.parse({"cpus": "auto", **words}, 16).copy_keys, endpoint="ipc:///nowhere").close()

    def test_the_library_allows_the_same_values(self):
        """A value that only the library refuses would end the start when the model is loaded."""
        for key, value in (("stage_bytes", (16 << 30) + 1), ("numa_node", "1024"), ("cpus", "0-1024"), ("cpus", "3-0")):
            with self.subTest(key=key), self.assertRaises(kvscout.ConfigError):
                kvscout.Worker(**{key: value}, endpoint="ipc:///nowhere")

    def test_engines_in_parallel_that_cannot_be_reset_are_warned_of(self):
        self.assertEqual(list(config.notes({}, config.parse({}, 16))), [])
        self.assertIn("data_parallel_size=4 without a weights_version", *config.notes({}, config.parse({}, 16), 4))
        self.assertEqual(list(config.notes({}, config.parse({"weights_version": 1}, 16), 4)), [])

    def test_sizes_have_suffixes(self):
        for text, size in (("64Mi", 64 << 20), ("1M", 10**6), ("5MiB", 5 << 20), (4096, 4096), ("7", 7)):
            self.assertIn(("l1_bytes", str(size)), config.parse({"l1_bytes": text}, 16).library.server)

    def test_the_role_says_who_reads_and_who_writes(self):
        self.assertEqual([config.parse({}, 16, *role).may_read for role in ((True, True), (True, False), (False, True))], [True, True, False])
        self.assertEqual([config.parse({}, 16, *role).may_write for role in ((True, True), (True, False), (False, True))], [True, False, True])
        self.assertFalse(config.parse({"store": False}, 16).may_write)

    def test_several_nodes_need_an_endpoint(self):
        with self.assertRaisesRegex(library_keys.NoServer, "several nodes.*endpoint"):
            config.parse({}, 16).library.settings(SimpleNamespace(nnodes=2))
        found = config.parse({"endpoint": "tcp://a:1"}, 16).library.settings(SimpleNamespace(nnodes=2))
        self.assertEqual(found, {"endpoint": "tcp://a:1"})

    def test_keys_of_a_server_that_is_started_travel_with_auto(self):
        one = SimpleNamespace(nnodes=1)
        self.assertEqual(config.parse({}, 16).library.settings(one), {"endpoint": "auto", "server_keys": "idle_exit_s=600"})
        extra = {
            "endpoint": "auto:///x", "l1_bytes": "1Mi", "l2": ["fs:///a", "fs:///b"], "idle_exit_s": 30, "metrics": "127.0.0.1:0",
            "server_keys": {"config": "/etc/kv", "prealloc": True},
        }
        self.assertEqual(
            config.parse(extra, 16).library.settings(one),
            {
                "endpoint": "auto:///x",
                "server_keys": "idle_exit_s=600 config=/etc/kv l1_bytes=1048576 l2=fs:///a l2=fs:///b idle_exit_s=30 "
                "metrics=127.0.0.1:0 prealloc=1",
            },
        )

    def test_keys_of_the_library_reach_client_and_worker(self):
        with tempfile.NamedTemporaryFile() as secret:
            curve = {"curve_secret_file": secret.name, "curve_server_key": "k" * 40}
            extra = {
                "endpoint": "tcp://a:1", "heartbeat_ms": 500, "connect_timeout_ms": 300, "lookup_timeout_ms": "900", "transfer_timeout_ms": 5000,
            }
            found = config.parse({**extra, **curve}, 16).library
        self.assertEqual(
            found.settings(SimpleNamespace(nnodes=1)),
            {"endpoint": "tcp://a:1", "heartbeat_ms": 500, "connect_timeout_ms": 300, **curve},
        )
        self.assertEqual((found.client, found.worker), ({"lookup_timeout_ms": "900"}, {"transfer_timeout_ms": 5000}))

    def test_the_keys_of_the_library_are_those_that_it_has(self):
        """A name that the library does not know would be refused whatever its value."""
        values = {"curve_secret_file": "/f", "curve_server_key": "k" * 40}
        for kind, keys in (("Client", library_keys._CLIENT), ("Worker", library_keys._WORKER), ("Client", library_keys._BOTH), ("Worker", library_keys._BOTH)):
            _kvscout.check_keys(kind, **{key: values.get(key, 1000) for key in keys})

    def test_what_the_library_or_the_server_would_refuse_ends_the_start_in_their_words(self):
        for extra, sentence in (
            ({"l2": "ftp://host/kv"}, 'l2 = "ftp://host/kv": scheme "ftp": must be one of fs'),
            ({"l2": "fs:///kv?max_byte=1"}, 'l2 = "fs:///kv.max_byte=1": .*max_byte'),
            ({"l1_bytes": "512Ti"}, r"l1_bytes = \d+ .* is larger than the memory of this machine"),
            ({"server_keys": {"eviction": "mru"}}, "mru"),
            ({"server_keys": {"evict": "lru"}}, "evict"),
            ({"server_keys": {"l2": "fs:///a"}}, "which is a key of its own"),
            ({"server_keys": {"listen": "ipc:///s"}}, "chooses where it listens"),
            ({"server_keys": "eviction=lru"}, "an object of keys and values"),
            ({"server_keys": {"cpus": "0 1"}}, "a text without blanks"),
            ({"idle_exit_s": "soon"}, "idle_exit_s"),
            ({"idle_exit_s": 1.5}, "a text without blanks"),
            ({"lookup_timeout_ms": 4000000}, "lookup_timeout_ms"),
            ({"heartbeat_ms": [5]}, "heartbeat_ms"),
            ({"transfer_timeout_ms": "long"}, "transfer_timeout_ms"),
            ({"endpoint": "tcp://a:1", "curve_server_key": "k" * 40}, "both of them"),
            ({"endpoint": "tcp://a:1", "curve_secret_file": "/no/such", "curve_server_key": "k" * 40}, "'/no/such' cannot be read"),
            ({"curve_secret_file": "/no/such", "curve_server_key": "k" * 40}, "the endpoint of a server that has keys"),
            ({"endpoint": "ipc:///s", "idle_exit_s": 5, "metrics": "127.0.0.1:0"}, "idle_exit_s and metrics configure a server"),
        ):
            with self.subTest(extra=extra), self.assertRaisesRegex(config.ConfigError, "^kvscout: kv_connector_extra_config: .*" + sentence):
                config.parse(extra, 16)

    def test_a_store_that_is_down_does_not_end_the_start(self):
        if "redis" not in os.environ.get("KVSCOUT_TEST_WITHOUT", ""):
            config.parse({"l2": ["redis://127.0.0.1:1"]}, 16)
        config.parse({"l2": "fs:///no/such/folder"}, 16)

    def test_an_endpoint_on_a_network_without_keys_is_warned_of(self):
        for endpoint, is_open in (("tcp://10.0.0.1:5000", True), ("tcp://127.0.0.1:5000", False), ("ipc:///s", False), ("tcp://[::1]:5", False)):
            found = list(config.notes({}, config.parse({"endpoint": endpoint}, 16)))
            self.assertEqual(found, [library_keys.OPEN] if is_open else [], endpoint)


class Ranks(unittest.TestCase):
    @staticmethod
    def all_of(tp, pp, replicas):
        parallel, cache = SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=pp), SimpleNamespace(kv_tp_replicas=replicas)
        return [ranks.of_worker(parallel, cache, t, p) for p in range(pp) for t in range(tp)]

    def test_each_worker_is_one_reader_of_one_shard(self):
        for tp, pp, replicas in ((1, 1, 1), (2, 1, 1), (8, 1, 8), (8, 2, 4), (4, 3, 1), (8, 1, 2)):
            found = self.all_of(tp, pp, replicas)
            self.assertEqual(len({(r.kv_rank, r.reader) for r in found}), tp * pp)
            self.assertEqual({r.kv_ranks for r in found}, {pp * tp // replicas})
            self.assertEqual({r.readers for r in found}, {replicas})
            self.assertEqual({r.kv_rank for r in found}, set(range(found[0].kv_ranks)))

    def test_consecutive_ranks_read_one_shard(self):
        self.assertEqual([(r.kv_rank, r.reader) for r in self.all_of(4, 1, 2)], [(0, 0), (0, 1), (1, 0), (1, 1)])


class FullAttentionSpec:
    block_size = 16


class MambaSpec:
    block_size = 16


class RSWASpec(FullAttentionSpec):
    pass


class Refusals(unittest.TestCase):
    @staticmethod
    def engine(groups=1, spec=FullAttentionSpec, **parallel):
        return (
            SimpleNamespace(parallel_config=SimpleNamespace(**parallel), model_config=SimpleNamespace(is_encoder_decoder=False)),
            SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec(), layer_names=["a", "b"])] * groups),
        )

    def test_attention_in_one_group_or_several_is_served(self):
        refusals.check(*self.engine())
        refusals.check(*self.engine(groups=3))

    def test_each_refusal_is_a_sentence_that_says_what_to_do(self):
        encoder, sleeper, drafts = self.engine(), self.engine(), self.engine(spec=MambaSpec, pipeline_parallel_size=2)
        encoder[0].model_config.is_encoder_decoder = True
        sleeper[0].model_config.enable_sleep_mode = True
        drafts[1].kv_cache_groups[0].kv_cache_spec.mamba_cache_mode = "align"
        refusals.check(*drafts)
        drafts[0].speculative_config = SimpleNamespace()
        for engine, sentence in (
            (self.engine(groups=0), "needs a model with a KV cache"),
            (self.engine(decode_context_parallel_size=2), "--decode-context-parallel-size 1"),
            (self.engine(prefill_context_parallel_size=2), "--prefill-context-parallel-size 1"),
            (self.engine(spec=RSWASpec), r"2 layers of this model have KV of another kind \(RSWASpec\).*without kvscout"),
            (encoder, "encoder-decoder"),
            (sleeper, "without --enable-sleep-mode"),
            (drafts, "--pipeline-parallel-size 1 or without --speculative-config"),
        ):
            with self.subTest(sentence=sentence), self.assertRaisesRegex(refusals.Refused, sentence):
                refusals.check(*engine)


class AttentionSpec:
    def __init__(self, block_size, tokens_per_state=1):
        self.block_size, self.tokens_per_state = block_size, tokens_per_state


class Layouts(unittest.TestCase):
    """kv_layout=blocks, where vLLM could not do what it stands for."""

    def reason(self, outer=None, by_user=None, name="cuda", **extra):
        return refusals.reason_of_layout(config.parse(extra, 16), platform(name), by_user, outer)

    def test_it_is_refused_where_vllm_would_not_lay_blocks_out_so(self):
        self.assertIsNone(self.reason(kv_layout="blocks"))
        for more, sentence in (
            ({"name": "cpu"}, r"on NVIDIA GPUs, and vLLM runs on another platform here \(cpu\). Leave kv_layout out"),
            ({"outer": "MultiConnector"}, "below MultiConnector: .*Leave kv_layout out.*VLLM_KV_CACHE_LAYOUT=BLHNC"),
            ({"by_user": "NHD"}, "contradicts VLLM_KV_CACHE_LAYOUT=NHD: it stands for one of BLHNC, BLNHC, BHLNC. Leave"),
        ):
            self.assertRegex(self.reason(kv_layout="blocks", **more), sentence)
            self.assertIsNone(self.reason(kv_layout="engine", **more))
            self.assertIsNone(self.reason(**more))

    def test_a_layout_by_the_user_that_has_the_block_outermost_will_do(self):
        for layout in refusals.BLOCK_LAYOUTS:
            self.assertIsNone(self.reason(kv_layout="blocks", by_user=layout, outer="MultiConnector"))

    def test_another_layout_than_the_one_asked_for_is_refused(self):
        asked, left = config.parse({"kv_layout": "blocks"}, 16), config.parse({}, 16)
        for layout in (*refusals.BLOCK_LAYOUTS, None):
            self.assertIsNone(refusals.reason_of_found_layout(asked, layout))
        for layout in ("LBNHC", "LBHNC", "LHBNC"):
            self.assertIsNone(refusals.reason_of_found_layout(left, layout))
            self.assertRegex(refusals.reason_of_found_layout(asked, layout), f"chose the layout {layout}, .*Leave kv_layout out")

    @staticmethod
    def engine(*layers, **extra):
        """Each layer: (its spec, what its backend's kernels take)."""
        found = {"experts": SimpleNamespace()}
        for spec, sizes in layers:
            backend = SimpleNamespace(get_supported_kernel_block_sizes=lambda spec, sizes=sizes: sizes, get_name=lambda: "OWN")
            layer = {"get_attn_backend": lambda backend=backend: backend, "get_kv_cache_spec": lambda vllm_config, spec=spec: spec}
            found[f"layer {len(found)}"] = SimpleNamespace(**layer)
        transfer = SimpleNamespace(kv_connector_extra_config=extra, is_kv_consumer=True, is_kv_producer=True)
        return SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=found), kv_transfer_config=transfer)

    def test_kernels_that_split_a_block_are_refused(self):
        sixteens = SimpleNamespace(base=16)
        whole = ((AttentionSpec(128), [64, 128]), (AttentionSpec(48), [sixteens]), (AttentionSpec(48), []),
                 (MambaSpec(), [64]), (None, [64]), (AttentionSpec(256, tokens_per_state=4), [64]))
        self.assertIsNone(refusals.reason_of_kernels(self.engine(*whole)))
        for spec, sizes, allowed in ((AttentionSpec(128), [32, 64], "32 or 64"), (AttentionSpec(24), [sixteens], "a multiple of 16")):
            sentence = refusals.reason_of_kernels(self.engine(*whole, (spec, sizes)))
            self.assertRegex(sentence, f"whole blocks of {spec.block_size} tokens, .* OWN split them.*--block-size {allowed}, or leave")

    def test_vllm_is_asked_for_a_layout_only_if_the_user_wants_one(self):
        modules, current = modules_of_vllm(), []
        modules["vllm.config"] = types.ModuleType("vllm.config")
        modules["vllm.config"].set_current_vllm_config = lambda found: mock.MagicMock(__enter__=lambda _: current.append(found))
        split = (AttentionSpec(128), [64])
        with mock.patch.dict(sys.modules, modules):
            ask = importlib.import_module("kvscout.vllm.connector").KVScoutConnector.get_required_kvcache_layout
            for extra in ({}, {"kv_layout": "engine"}):
                self.assertIsNone(ask(self.engine(split, **extra)))
            self.assertEqual(current, [])
            wanted = self.engine((AttentionSpec(64), [64]), kv_layout="blocks")
            self.assertEqual(ask(wanted), "BLHNC")
            self.assertIs(current.pop(), wanted)
            with self.assertRaisesRegex(refusals.Refused, "--block-size 64"):
                ask(self.engine(split, kv_layout="blocks"))


class Platforms(unittest.TestCase):
    def test_a_platform_that_is_not_served_is_named_with_what_to_take(self):
        for name in ("rocm", "xpu"):
            sentence = refusals.reason_of_platform(platform(name), self.fail)  # ROCm's tensors say cuda; CUDA is not asked for
            self.assertRegex(sentence, rf"another platform here \({name}\).*the tier of kvscout")

    def test_a_cpu_and_a_node_without_an_engine_need_no_driver(self):
        for name in ("cpu", "unspecified"):
            self.assertIsNone(refusals.reason_of_platform(platform(name), self.fail))

    def test_on_cuda_the_build_and_the_driver_count(self):
        self.assertIsNone(refusals.reason_of_platform(platform("cuda"), lambda: None))
        sentence = refusals.reason_of_platform(platform("cuda"), lambda: "the driver is old; install a newer one")
        self.assertRegex(sentence, "GPUs: the driver is old; install a newer one. Or use .*the tier")

    def test_the_library_says_what_is_wrong_with_build_or_driver(self):
        problem = _kvscout.cuda_problem()
        self.assertRegex(problem or "install", "install")
        with open("/proc/self/maps") as maps:  # a device's driver would be open here if CUDA were initialised
            self.assertNotIn("/dev/nvidia", maps.read())


class Start(unittest.TestCase):
    """vLLM asks for the class when it makes its configuration."""

    def setUp(self):
        self.modules = modules_of_vllm()
        self.modules["vllm.platforms"].current_platform = platform("cpu")

    def ask(self, extra=None, name="KVScoutConnector", outer=None, **config):
        """As vLLM's factory, from where it makes its configuration."""

        def get_connector_class(kv_transfer_config):
            with mock.patch.dict(sys.modules, self.modules):
                return getattr(importlib.import_module(plugin.MODULE), plugin.NAME)

        class VllmConfig:
            def __init__(self):
                self.parallel_config = SimpleNamespace(**config)
                self.model_config = SimpleNamespace()
                self.kv_transfer_config = SimpleNamespace(kv_connector=outer or name)
                transfer = {"kv_connector": name, "kv_connector_extra_config": extra, "is_kv_consumer": True, "is_kv_producer": True}
                self.found = get_connector_class(SimpleNamespace(**transfer))

        return VllmConfig().found

    def test_a_configuration_that_is_served_gets_the_class(self):
        self.assertEqual(self.ask({"chunk_tokens": 64}).__name__, "KVScoutConnector")

    def test_what_the_configuration_says_is_refused_before_anything_is_loaded(self):
        for extra, parallel, error, sentence in (
            ({"chunk_size": 1}, {}, config.ConfigError, "no key 'chunk_size'"),
            ({"copy_method": "fast"}, {}, config.ConfigError, "it is one of auto, staged, batch"),
            ({}, {"decode_context_parallel_size": 2}, refusals.Refused, "--decode-context-parallel-size 1"),
            (None, {"nnodes": 2}, library_keys.NoServer, "several nodes"),
        ):
            with self.subTest(sentence=sentence), self.assertRaisesRegex(error, sentence):
                self.ask(extra, **parallel)

    def test_a_layout_that_vllm_cannot_take_is_refused_before_anything_is_loaded(self):
        blocks = {"kv_layout": "blocks"}
        with self.assertRaisesRegex(refusals.Refused, "another platform here"):
            self.ask(blocks)
        self.modules["vllm.platforms"].current_platform = platform("cuda")
        start = importlib.import_module("kvscout.vllm.start")
        with mock.patch.object(start, "_cuda_problem", lambda: None), mock.patch.dict(os.environ):
            os.environ.pop("VLLM_KV_CACHE_LAYOUT", None)
            self.assertEqual(self.ask(blocks).__name__, "KVScoutConnector")
            self.assertEqual(self.ask({}, outer="MultiConnector").__name__, "KVScoutConnector")
            with self.assertRaisesRegex(refusals.Refused, "below MultiConnector"):
                self.ask(blocks, outer="MultiConnector")
            os.environ["VLLM_KV_CACHE_LAYOUT"] = "LBNHC"
            with self.assertRaisesRegex(refusals.Refused, "contradicts VLLM_KV_CACHE_LAYOUT=LBNHC"):
                self.ask(blocks)

    def test_keys_of_another_connector_are_not_read(self):
        self.assertEqual(self.ask({"connectors": []}, name="MultiConnector").__name__, "KVScoutConnector")

    def test_a_platform_is_refused_before_anything_is_loaded(self):
        self.modules["vllm.platforms"].current_platform = platform("rocm")
        with self.assertRaisesRegex(refusals.Refused, "rocm"):
            self.ask()

    def test_vllm_gets_the_class_from_where_the_checks_are(self):
        self.modules["vllm.distributed.kv_transfer.kv_connector.factory"] = factory = types.ModuleType("factory")
        known = {}
        factory.KVConnectorFactory = SimpleNamespace(_registry=known, register_connector=lambda name, module, cls: known.update({name: (module, cls)}))
        with mock.patch.dict(sys.modules, self.modules):
            plugin._register_connector()
        self.assertEqual(known, {"KVScoutConnector": ("kvscout.vllm", "KVScoutConnector")})


class Namespace(unittest.TestCase):
    def test_a_salt_becomes_a_tenant_that_does_not_show_it(self):
        self.assertIsNone(namespace.tenant(None))
        self.assertIsNone(namespace.tenant(""))
        long = namespace.tenant("secret" * 1000)
        self.assertEqual(len(long), 32)
        self.assertNotIn("secret", long)
        self.assertNotEqual(namespace.tenant("a"), namespace.tenant("b"))

    def test_xxhash_is_warned_of_and_sha256_cbor_is_not(self):
        def sentences(algorithm):
            return list(namespace.warnings(SimpleNamespace(cache_config=SimpleNamespace(prefix_caching_hash_algo=algorithm, cache_dtype="auto"))))

        self.assertIn("not cryptographic", " ".join(sentences("xxhash_cbor")))
        self.assertIn("pickle", " ".join(sentences("sha256")))
        self.assertEqual(sentences("sha256_cbor"), [])

    def test_xxhash_without_a_seed_shares_nothing_and_says_so(self):
        engine = SimpleNamespace(cache_config=SimpleNamespace(prefix_caching_hash_algo="xxhash_cbor"))
        with mock.patch.dict(os.environ):
            os.environ.pop("PYTHONHASHSEED", None)
            self.assertIn("PYTHONHASHSEED is not set", list(namespace.warnings(engine))[-1])
            os.environ["PYTHONHASHSEED"] = "0"
            self.assertNotIn("PYTHONHASHSEED", " ".join(namespace.warnings(engine)))

    def test_types_of_kv_that_other_engines_can_read(self):
        shared = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla", "fp8_per_token_head", "int8_per_token_head", "nvfp4",
                  "nvfp4_4over6", "turboquant_k8v4", "octave_k3v3_compact", "ultraquant_4bit")
        for dtype in shared:  # all that vLLM 0.33 has, but for fp8_inc
            self.assertFalse(namespace.has_own_scales(SimpleNamespace(cache_dtype=dtype)), dtype)
        self.assertTrue(namespace.has_own_scales(SimpleNamespace(cache_dtype="fp8", calculate_kv_scales=True)))
        self.assertTrue(namespace.has_own_scales(SimpleNamespace(cache_dtype="fp8_inc")))

    def test_the_users_name_comes_first(self):
        self.assertEqual([namespace.named("d1", name) for name in ("", "mine")], ["vllm/d1", "mine/vllm/d1"])


class Params(unittest.TestCase):
    def test_ours_are_read_and_others_left_alone(self):
        found = request.Params({"expect_tokens": 512, "skip_read": True, "do_remote_prefill": True, "hint": "likely"}, "r")
        self.assertEqual((found.expect_tokens, found.skip_read, found.skip_write, found.hint), (512, True, False, "likely"))

    def test_wrong_ones_are_ignored_and_logged(self):
        with self.assertLogs("vllm.kvscout", logging.WARNING) as log:
            found = request.Params({"expect_tokens": -1, "skip_write": "yes", "hint": 3, "keep_s": -1}, "r7")
        self.assertEqual((found.expect_tokens, found.skip_write, found.hint), (0, False, None))
        self.assertEqual(len(log.output), 4)
        self.assertTrue(all("r7" in line for line in log.output))

    def wish(self, *actions):
        """(the wish, what became of its actions) of (type, version, payload)."""
        counts = {"wishes_" + outcome: 0 for outcome in wishes.OUTCOMES}
        actions = [SimpleNamespace(action_type=kind, action_version=version, payload=payload) for kind, version, payload in actions]
        found = wishes.Wishes(counts).of(SimpleNamespace(actions=actions), "r7")
        return (found.hint, found.keep_s, found.load), {name[7:]: n for name, n in counts.items() if n}

    def test_the_words_of_the_drafts_are_followed(self):
        directives = [{"start": 0, "end": 100, "priority": 90, "duration": 5}, {"start": 100, "end": None, "priority": 50, "duration": 2.5}]
        for action, wish in (
            (("kv.retain", "0.1", {"scope": "request", "directives": directives}), ("likely", 5.0, False)),
            (("kv.retain", "1.0", {"priority": 80, "ttl_seconds": 30}), ("likely", 30.0, False)),
            (("kv.evict", "1.0", {}), ("unlikely", 0.0, False)),
            (("kv.fetch", "1.0", {"source": "g3"}), (None, 0.0, True)),
        ):
            with self.subTest(action=action):
                self.assertEqual(self.wish(action), (wish, {"accepted": 1}))
        self.assertEqual(self.wish(("kv.retain", "1.0", {"ttl_seconds": 9000})), (("likely", request.MAX_KEEP_S, False), {"clipped": 1}))
        self.assertEqual(self.wish(("kv.retain", "1.0", {"priority": 80})), (("likely", 0.0, False), {"clipped": 1}))

    def test_what_is_no_wish_is_counted_and_logged_once(self):
        none = (None, 0.0, False)
        bad = ("kv.share", "1.0", {}), ("kv.retain", "2.0", {"ttl_seconds": 5}), ("kv.retain", "1.0", {"directives": 5}), ("kv.evict", "", None)
        for action in bad:
            with self.subTest(action=action), self.assertLogs("vllm.kvscout", "INFO") as log:
                self.assertEqual(self.wish(action, action), (none, {"unknown": 2}))
            self.assertEqual(len(log.output), 1)
        self.assertEqual(self.wish(("kv.evict", "1.0", {"block_hashes": [5]})), (none, {"rejected": 1}))
        self.assertEqual(self.wish(("kv.retain", "1.0", {"ttl_seconds": float("nan")})), (("likely", 0.0, False), {"clipped": 1}))
        self.assertIs(wishes.Wishes({}).of(None, "r7"), wishes.NONE)

    def test_a_word_that_is_no_hint_is_ignored_and_logged(self):
        with self.assertLogs("vllm.kvscout", logging.WARNING) as log:
            self.assertIsNone(request.Params({"hint": "keep"}, "r7").hint)
        self.assertIn("likely, unlikely", log.output[0])

    def test_none_is_legal(self):
        self.assertEqual(request.Params(None, "r").expect_tokens, 0)


class Hints(unittest.TestCase):
    @staticmethod
    def ended(status, output, prompt=10):
        return SimpleNamespace(status=SimpleNamespace(name=status), output_token_ids=output, num_tokens=prompt + len(output))

    def test_a_tool_call_comes_back(self):
        known = hints.Hints({7, 8}, 10000)
        self.assertEqual(known.of(self.ended("FINISHED_STOPPED", [1, 2, 7, 3, 4])), "likely")
        self.assertEqual(known.of(self.ended("FINISHED_STOPPED", [1, 2, 8])), "likely")
        self.assertEqual(known.of(self.ended("FINISHED_STOPPED", [7] + [1] * (hints.LAST_TOKENS - 1))), "likely")
        self.assertIsNone(known.of(self.ended("FINISHED_STOPPED", [7] + [1] * hints.LAST_TOKENS)))

    def test_other_ends_say_nothing(self):
        known = hints.Hints({7}, 10000)
        self.assertIsNone(known.of(self.ended("FINISHED_STOPPED", [1, 2, 3])))
        for status in ("FINISHED_ABORTED", "FINISHED_LENGTH_CAPPED", "FINISHED_ERROR", "FINISHED_REPETITION", "FINISHED_IGNORED"):
            self.assertIsNone(known.of(self.ended(status, [7, 1])), status)
        self.assertIsNone(hints.Hints((), 10000).of(self.ended("FINISHED_STOPPED", [7])))
        self.assertIsNone(known.of(self.ended("FINISHED_STOPPED", [])))

    def test_nothing_can_follow_the_longest_request(self):
        known = hints.Hints({7}, 100)
        self.assertEqual(known.of(self.ended("FINISHED_LENGTH_CAPPED", [1] * 90)), "unlikely")
        self.assertEqual(known.of(self.ended("FINISHED_STOPPED", [7] * 90)), "unlikely")
        self.assertIsNone(known.of(self.ended("FINISHED_LENGTH_CAPPED", [1] * 89)))

    def test_the_tokenizer_knows_the_tokens_of_a_call(self):
        tokenizer = SimpleNamespace(get_vocab=lambda: {"<tool_call>": 151657, "tool": 1, "<|eom_id|>": 128008, "<tool": 2})
        self.assertEqual(hints.tool_tokens(tokenizer), {151657, 128008})
        self.assertEqual(hints.tool_tokens(None), frozenset())

    def test_without_a_tokenizer_the_engine_starts_all_the_same(self):
        with self.assertLogs("vllm.kvscout", logging.INFO) as log:
            found = hints.of_engine(SimpleNamespace(model_config=SimpleNamespace(max_model_len=100)))
        self.assertIn("no hints of tool calls", log.output[0])
        self.assertEqual(found.of(self.ended("FINISHED_STOPPED", [1] * 90)), "unlikely")


class Inert(unittest.TestCase):
    """Where vLLM would not reuse KV, we do not."""

    @staticmethod
    def engine(caches=True, images=None, **pooler):
        """@images: mm_processor_cache_gb."""
        model = {"multimodal_config": SimpleNamespace(mm_processor_cache_gb=images)} if images is not None else {}
        if pooler:
            model |= {"runner_type": "pooling", "pooler_config": SimpleNamespace(**pooler)}
        return SimpleNamespace(cache_config=SimpleNamespace(enable_prefix_caching=caches), model_config=SimpleNamespace(**model))

    @staticmethod
    def asked(task=None, *images):
        pooling = SimpleNamespace(task=task) if task else None
        return SimpleNamespace(pooling_params=pooling, mm_features=[SimpleNamespace(identifier=name) for name in images])

    def test_an_engine_is_inert_unless_vllm_reuses_kv_or_the_user_trusts_it(self):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            for engine, extra, sentence in (
                (self.engine(), {}, None),
                (self.engine(False), {}, '"without_prefix_cache": "trust"'),
                (self.engine(None), {"unknown_vllm": "trust"}, "own prefix cache is off"),
                (self.engine(False), {"without_prefix_cache": "trust"}, None),
            ):
                reason = inert.of_engine(engine, config.parse(extra, 16).trusts)
                self.assertRegex(reason or "", sentence or "^$")
            sys.modules["vllm"].__version__ = "0.99.0.dev3+cpu"
            self.assertRegex(inert.of_engine(self.engine(), frozenset()), 'does not know vLLM 0.99; .*"unknown_vllm": "trust"')
            self.assertIsNone(inert.of_engine(self.engine(), config.parse({"unknown_vllm": "trust"}, 16).trusts))

    def test_requests_that_need_all_tokens_stay_out(self):
        last = {"seq_pooling_type": "LAST", "tok_pooling_type": "ALL"}
        for pooler, task, stays_out in (
            (last, "embed", False), (last, "classify", False), (last, "token_embed", True), (last, "token_classify", True),
            (last, "plugin", True), (last, "embed&token_classify", True), ({**last, "seq_pooling_type": "MEAN"}, "embed", True),
            ({**last, "seq_pooling_type": "CLS"}, "classify", True), ({**last, "tok_pooling_type": "STEP"}, "embed", True),
            ({}, "embed", True), ({}, None, False), (last, None, False),
        ):
            with self.subTest(pooler=pooler, task=task):
                self.assertEqual(inert.of_requests(self.engine(**pooler))(self.asked(task)), stays_out)
        self.assertIsNone(inert.of_any_request(self.engine(**last)))
        self.assertRegex(inert.of_any_request(self.engine(seq_pooling_type="MEAN")), "hidden states of all tokens")

    def test_images_that_are_named_by_a_digest_of_a_counter_stay_out(self):
        digest = "c0ffee" * 8
        for engine, names, stays_out in (
            (self.engine(images=4), [digest], False), (self.engine(False, images=4), [digest], False), (self.engine(images=0), [digest], False),
            (self.engine(False, images=0), [digest], True), (self.engine(False, images=0), [], False),
        ):
            with self.subTest(names=names):
                self.assertEqual(inert.of_requests(engine)(self.asked(None, *names)), stays_out)
        self.assertRegex(inert.of_any_request(self.engine(False, images=0)), "--mm-processor-cache-gb")
        self.assertIsNone(inert.of_any_request(self.engine(images=0)))

    def test_the_scheduler_says_it_once_and_answers_as_without_a_cache(self):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            made, messages = (importlib.import_module(f"kvscout.vllm.{name}") for name in ("scheduler", "metadata"))
        side = made.Scheduler(config.parse({}, 16), groups.one(16, 128), self.fail, 2, kvscout.KVScoutError, lambda salt: None, None)
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            for _ in range(2):  # of two workers beside another connector
                side.worker_output(messages.WorkerMetadata(inert="why").aggregate(messages.WorkerMetadata(namespaces=frozenset({"vllm/a"}))))
        self.assertEqual(len(log.output), 1)
        self.assertIn("this engine is inert, it neither loads nor stores KV, because why", log.output[0])
        asked = vllm_request("r", 512)
        side.on_new_request(asked)
        self.assertEqual(side.matched_tokens(asked, 0), 0)
        side.allocated(asked, ([1, 2],), 0)
        meta = side.build_meta(SimpleNamespace(num_scheduled_tokens={"r": 512}, preempted_req_ids={"r"}))
        self.assertEqual((meta.loads, meta.stores, side.has_pending_stores(), side.reset()), ([], [], False, True))
        side.finished(asked)
        side.close()

    def test_one_inert_worker_is_enough(self):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            connector = importlib.import_module("kvscout.vllm.connector")
        own, told = object.__new__(connector.KVScoutConnector), []
        own._scheduler = SimpleNamespace(stay_inert=told.append, join=lambda namespaces, parts: told.append(namespaces))
        own.set_xfer_handshake_metadata_pp_aware({(0, 0): connector.Handshake(None, ""), (0, 1): connector.Handshake(None, "why"), (0, 2): None})
        self.assertEqual(told, ["why", {None}])
        del told[:]
        own.set_xfer_handshake_metadata_pp_aware({(0, 0): connector.Handshake("vllm/a", None)})
        self.assertEqual(told, [{"vllm/a"}])

    def test_a_worker_without_a_cache_has_nothing_to_do_and_tells_why(self):
        with mock.patch.dict(sys.modules, modules_of_vllm()):
            worker, messages = (importlib.import_module(f"kvscout.vllm.{name}") for name in ("worker", "metadata"))
        for reason in ("why", ""):
            own = worker.Worker(groups.one(16, 128), None, kvscout.KVScoutError, None, inert=reason)
            meta = messages.Metadata(adapters=(3,))
            own.begin_step(meta)
            own.start_loads(meta)
            own.wait_for_save(meta)
            self.assertEqual((own.finished({"r"}), own.bad_blocks()), ((set(), set()), set()))
            self.assertEqual(own.take_meta(), messages.WorkerMetadata(inert="why") if reason else None)
            self.assertIsNone(own.take_meta())
            own.close()


class Internals(unittest.TestCase):
    """Of a vLLM that has them otherwise."""

    def test_an_object_that_raises_is_not_the_one_that_is_looked_for(self):
        class Other:
            def __getattr__(self, name):
                raise RuntimeError("not now")

        def inner(owner):
            return internals.from_callers("owner", lambda value: hasattr(value, "model_config"))

        owner = SimpleNamespace(model_config=1)
        self.assertIs(inner(Other()), owner)
        del owner
        self.assertIsNone(inner(Other()))

    def test_without_the_manager_of_adapters_none_is_known(self):
        class Runner:
            lora_manager = SimpleNamespace()

            def start(self):
                return internals.adapters()

        self.assertEqual((Runner().start()(), internals.adapters()()), ({}, {}))


class Pool:
    """The part of vLLM's BlockPool that pins use, with its meaning: reference counts."""

    def __init__(self, n):
        self.blocks = [SimpleNamespace(block_id=i, ref_cnt=0) for i in range(n)]
        self.null_block, self.num_gpu_blocks, self.evict_blocks = self.blocks[0], n, None
        self.freed = []

    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    def free_blocks(self, blocks):
        for block in blocks:
            block.ref_cnt -= 1
            self.freed.append(block.block_id)


class Pins(unittest.TestCase):
    @staticmethod
    def bound(n, ranks):
        pool, held = Pool(n), pins.Pins(ranks)
        held.bind(internals.Blocks(SimpleNamespace(block_pool=pool, get_block_ids=None)))
        return pool, held

    def test_blocks_are_held_until_every_rank_has_reported(self):
        pool, held = self.bound(8, ranks=3)
        held.take(1, [2, 3])
        held.give_back(1, 2)
        self.assertEqual([len(held), pool.freed], [1, []])
        held.give_back(1, 1)
        self.assertEqual([len(held), pool.freed], [0, [3, 2]])
        held.give_back(1, 1)  # reported again: nothing
        self.assertEqual([b.ref_cnt for b in pool.blocks], [0] * 8)

    def test_a_store_holds_back_blocks_only_when_no_request_does(self):
        pool, held = self.bound(4, ranks=1)
        pool.touch(pool.blocks[1:3])
        held.take(1, [1, 2])
        self.assertFalse(held.hold_back_blocks())
        pool.free_blocks(pool.blocks[2:3])
        self.assertTrue(held.hold_back_blocks())


if __name__ == "__main__":
    unittest.main()
