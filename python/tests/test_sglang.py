# SPDX-License-Identifier: Apache-2.0
"""The storage of SGLang's hierarchical cache without SGLang, whose base class is an empty one here: a host pool as SGLang has one in
each layout, with a kvscoutd of its own and each byte compared. The real engine runs in `./dev engine sglang`."""

import abc
import collections
import ctypes
import hashlib
import importlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from types import SimpleNamespace
from unittest import mock

from kvscout.sglang import arguments, config, namespace, planes, policies
from kvscout.vllm import identity
from rig import ServerProcess, open_more_than_a_thousand, wait_for

PAGE, LAYERS, ROW, PAGES = 4, 3, 64, 40  # tokens in a page, layers, bytes of one token in one layer, pages
EXTRA = {"backend_name": "kvscout", "module_path": "kvscout.sglang", "class_name": "KVScoutStorage", "interface_v1": 1}


class Indices(list):
    """What the storage uses of a tensor of indices."""

    def __getitem__(self, at):
        found = super().__getitem__(at)
        return Indices(found) if isinstance(at, slice) else found

    def tolist(self):
        return list(self)


class Pool:
    """As SGLang's MHATokenToKVPoolHost, and with mla=True its MLA pool: one array, keys before values."""

    storage_format_tag = None
    dtype = "float32"

    def __init__(self, layout, mla=False):
        self.layout, self.page_size, self.size, self.halves = layout, PAGE, PAGES * PAGE, 1 if mla else 2
        self.kv_buffer = bytearray(self.halves * LAYERS * self.size * ROW)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.kv_buffer))

    def pieces(self, page):
        """(offset, size) of a page."""
        half = LAYERS * self.size * ROW
        if self.layout == "layer_first":
            return [(part * half + layer * self.size * ROW + page * PAGE * ROW, PAGE * ROW)
                    for layer in range(LAYERS) for part in range(self.halves)]
        return [(part * half + page * PAGE * LAYERS * ROW, PAGE * LAYERS * ROW) for part in range(self.halves)]

    def get_page_buffer_meta(self, indices):
        found = [piece for first in indices.tolist()[::PAGE] for piece in self.pieces(first // PAGE)]
        return [self.address + offset for offset, _ in found], [size for _, size in found]

    def page(self, page):
        return b"".join(bytes(self.kv_buffer[at : at + size]) for at, size in self.pieces(page))

    def fill(self, page, content):
        for at, size in self.pieces(page):
            self.kv_buffer[at : at + size], content = content[:size], content[size:]

    def bytes_of(self, key):
        return hashlib.shake_128(key.encode()).digest(self.halves * LAYERS * PAGE * ROW)


def keys_of(prompt, n):
    return [hashlib.sha256(f"{prompt}/{page}".encode()).hexdigest() for page in range(n)]


def indices_of(pages):
    return Indices(page * PAGE + token for page in pages for token in range(PAGE))


def modules_of_sglang():
    base = type("HiCacheStorage", (abc.ABC,), {"register_mem_pool_host": lambda self, pool: setattr(self, "mem_pool_host", pool)})
    names = ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.mem_cache.hicache_storage", "torch")
    found = {name: types.ModuleType(name) for name in names}
    found["sglang"].__version__, found["torch"].tensor, found[names[3]].HiCacheStorage = "0.5.23", Indices, base
    found[names[3]].PoolTransferResult = collections.namedtuple("PoolTransferResult", "kv_hit_pages extra_pool_hit_pages restorable_prefix_pages")
    return found


class Updater:
    """As SGLang's WeightUpdater, whose methods call here what happens in the meantime."""

    def update_weights_from_disk(self, meanwhile=lambda: None):
        return meanwhile()

    update_weights_from_tensor = load_weights_from_distributed = update_weights_from_ipc = update_weights_from_disk
    begin_weight_update = end_weight_update = init_weights_update_group = receive_weights_from_distributed = update_weights_from_disk


class Runner:
    """As SGLang's ModelRunner."""

    def __init__(self):
        self.weight_updater, self.model = Updater(), SimpleNamespace(named_parameters=lambda: [])
        self.memory_saver_adapter = type("MemorySaver", (), {"pause": lambda self, tag: None, "resume": lambda self, tag: None})()

    def check_weights(self, action, role="target"):
        return action


class Rank:
    """One rank of an engine: as SGLang's scheduler and cache controller, too."""

    model_config = server_args = draft_worker = storage_host_pool = None
    is_initializing, forward_ct = True, 0

    def __init__(self, test, endpoint, layout="page_first_direct", mla=False, rank=0, size=1, extra=(), pools=(), runner=None, **more):
        fields = {"tp_rank": rank, "tp_size": size, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "dcp_rank": 0,
                  "dcp_size": 1, "is_mla_model": mla, "model_name": "m", "should_split_heads": False, "tp_lcm_size": None,
                  "is_storage_writer": not mla or rank == 0, "extra_config": {**EXTRA, "endpoint": endpoint, "namespace": test.id()[-60:], **dict(extra)}}
        self.pool = Pool(layout, mla)
        self.pools = {"kv": self.pool, **dict(pools)}
        self.mem_pool_host = SimpleNamespace(entries=[SimpleNamespace(name=name, host_pool=pool) for name, pool in self.pools.items()])
        loads = {}
        self.tree_cache = SimpleNamespace(ongoing_prefetch=loads, release_aborted_request=loads.pop)
        self.fields, self.test = {**fields, **more}, test
        self.runner = runner or Runner()
        self.tp_worker = SimpleNamespace(weight_update_runners=lambda: [("target", self.runner)])
        self.attach()

    def attach(self):
        """As SGLang's HybridCacheController does."""
        seen = mock.patch.object(namespace, "of_rank", lambda scheduler: "the same model")
        with mock.patch.dict(sys.modules, modules_of_sglang()), seen:
            sys.modules.pop("kvscout.sglang.storage", None)
            storage = importlib.import_module("kvscout.sglang.storage")
            self.storage = storage.KVScoutStorage(SimpleNamespace(**self.fields), {})
            self.test.addCleanup(self.storage.close)
            self.storage.register_mem_pool_host(self.pool)
            self.past_rollback()

    def past_rollback(self):
        for name, pool in self.pools.items():
            self.storage.register_mem_host_pool_v2(pool, name)

    def reset(self):
        """SGLang drops its cache."""

    def store(self, keys, pages=None):
        pages = list(range(len(keys))) if pages is None else pages
        self.forward_ct += 1
        for key, page in zip(keys, pages, strict=True):
            self.pool.fill(page, self.pool.bytes_of(key))
        return self.storage.batch_set_v1(keys, indices_of(pages))

    def load(self, keys, pages):
        return self.storage.batch_get_v1(keys, indices_of(pages))

    def holds(self, keys, pages):
        return all(self.pool.page(page) == self.pool.bytes_of(key) for key, page in zip(keys, pages, strict=True))

    def wipe(self):
        self.pool.kv_buffer[:] = bytes(len(self.pool.kv_buffer))


class Importing(unittest.TestCase):
    def test_importing_the_package_imports_no_sglang_and_starts_no_thread(self):
        code = "import kvscout.sglang, sys, threading; assert 'sglang' not in sys.modules and 'torch' not in sys.modules"
        subprocess.run([sys.executable, "-c", code + "; assert threading.active_count() == 1"], check=True)

    def test_an_unknown_name_is_an_attribute_error(self):
        import kvscout.sglang

        with self.assertRaisesRegex(AttributeError, "no attribute 'Storage'"):
            kvscout.sglang.Storage


class Configuration(unittest.TestCase):
    def test_wrong_values_are_refused_with_what_is_allowed(self):
        for given, text in (
            ({}, '"interface_v1": 1 is missing'), ({**EXTRA, "chunk_tokens": 5}, "no key 'chunk_tokens'. There are: backend_name"),
            ({**EXTRA, "namespace": ""}, "text of 1 to 128 bytes"), ({**EXTRA, "start_timeout_ms": 0}, "from 1 to 600000"),
            ({**EXTRA, "endpoint": "ipc:///s", "l1_bytes": "1Gi"}, "there is a server already"),
        ):
            with self.subTest(given=given), self.assertRaisesRegex(config.ConfigError, text):
                config.parse(given)


class Planes(unittest.TestCase):
    def test_pages_that_do_not_lie_evenly_are_refused(self):
        pool = Pool("page_first")
        pool.pieces = lambda page: [(page * page * 100, 100)]
        with self.assertRaisesRegex(planes.Unsupported, "do not lie evenly. Use --hicache-mem-layout page_first_direct"):
            planes.of_pool("kv", pool, Indices)

    def test_a_pool_without_kv_and_a_pool_of_one_page_are_refused(self):
        with self.assertRaisesRegex(planes.Unsupported, "has no KV of its own"):
            planes.of_pool("kv", SimpleNamespace(kv_buffer=None), Indices)
        pool = Pool("page_first")
        pool.size = PAGE
        with self.assertRaisesRegex(planes.Unsupported, "at least 2 are needed"):
            planes.of_pool("kv", pool, Indices)


class Namespace(unittest.TestCase):
    def name(self, pool=None, seen="model", name="kv", **more):
        own = {"tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0, "attn_cp_size": 1, "dcp_rank": 0, "dcp_size": 1,
               "is_mla_model": False, "model_name": "m", **more}
        pool = pool or Pool("page_first")
        found = namespace.factors(SimpleNamespace(**own), name, pool, planes.of_pool(name, pool, Indices)[0], "0.5.23")
        with mock.patch.object(namespace, "of_rank", lambda scheduler: seen):
            return namespace.named("", namespace.of_engine(None)[0], found)

    def test_each_difference_is_another_one(self):
        wide = Pool("page_first")
        wide.dtype = "bfloat16"
        names = [self.name(), self.name(seen="other"), self.name(Pool("layer_first")), self.name(Pool("page_first_direct")), self.name(wide),
                 self.name(name="swa"), self.name(tp_size=2), self.name(pp_rank=1), self.name(pp_size=2), self.name(Pool("page_first", mla=True))]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(self.name(), self.name())

    def test_an_engine_that_cannot_be_known_shares_with_nobody(self):
        (one, reason), (other, _) = (namespace.of_engine(None) for _ in range(2))
        self.assertNotEqual(one, other)
        self.assertIn("does not show the engine's configuration", reason)

    def test_each_release_of_sglang_is_another_one(self):
        own = SimpleNamespace(tp_size=1, pp_rank=0, pp_size=1, attn_cp_rank=0, attn_cp_size=1, dcp_rank=0, dcp_size=1, is_mla_model=False)
        one, other, local = (namespace.factors(own, "kv", Pool("page_first"), [], version) for version in ("0.5.23", "0.5.24", "0.5.23+cpu"))
        self.assertNotEqual(one, other)
        self.assertEqual(one, local)

    def test_the_ranks_have_one_name_of_all_of_them(self):
        def gathered(parts):
            with mock.patch.object(namespace, "of_all_ranks", lambda own, scheduler: parts):
                engine, reason = namespace.of_engine(None)
                return namespace.named("", engine, {}), reason

        self.assertEqual(gathered([("a", None), ("b", None)])[0], gathered([("a", None), ("b", None)])[0])
        self.assertNotEqual(gathered([("a", None), ("b", None)])[0], gathered([("a", None), ("c", None)])[0])
        self.assertEqual(gathered([("a", None), ("b", "of a reason")])[1], "of a reason")


class Variables(unittest.TestCase):
    def test_those_of_kernels_count_and_those_of_places_do_not(self):
        counted = {"SGLANG_USE_AITER": "1", "SGLANG_ROPE_CACHE_FP32": "1", "SGLANG_CPU_QUANTIZATION": "1", "SGLANG_NEVER_HEARD_OF": "1"}
        counted |= {"SGLANG_OPT_DSV41_BF16_INDEX_LOGITS": "1", "SGLANG_OPT_USE_MINIMAX_FP8_Q_EPILOGUE": "1", "NVIDIA_TF32_OVERRIDE": "0"}
        harmless = {"SGLANG_RUN_ID": "7", "SGLANG_CACHE_DIR": "/c", "SGLANG_LOG_MS": "1", "SGLANG_PORT": "1", "HOME": "/root"}
        self.assertEqual(arguments.of_environment({**counted, **harmless}), counted)


def server_args():
    """SGLang's own class of its arguments; skips the case where SGLang is not installed."""
    try:
        from sglang.srt.server_args import ServerArgs
    except ImportError as error:
        raise unittest.SkipTest(f"SGLang is not installed here ({error}): ./dev engine sglang runs this file with it") from None
    return ServerArgs


class Arguments(unittest.TestCase):
    def test_each_argument_of_sglang_is_harmless_by_the_table_or_parts_namespaces(self):
        values = server_args()(model_path="m").resolved_dict()
        before = identity.digest(arguments.of_values(values))
        for name in values:
            with self.subTest(name=name):
                after = identity.digest(arguments.of_values({**values, name: "another value"}))
                self.assertEqual(after == before, name in arguments.HARMLESS)

    def test_the_table_names_nothing_that_sglang_does_not_have(self):
        values = server_args()(model_path="m").resolved_dict()
        self.assertEqual(sorted(set(arguments.HARMLESS) - set(values)), [])

    def test_what_changes_kv_is_not_in_the_table(self):
        """Read one by one, so that a name which slips into the table is seen."""
        for name in (
            "attention_backend", "prefill_attention_backend", "decode_attention_backend", "kv_cache_dtype", "dtype", "quantization",
            "quantization_param_path", "modelopt_quant", "rl_quant_profile", "page_size", "tp_size", "pp_size", "ep_size", "device",
            "json_model_override_args", "model_impl", "model_config_parser", "mm_process_config", "enable_precise_embedding_interpolation",
            "trust_mm_content_hashes", "disable_fast_image_processor", "dllm_algorithm", "enable_lora", "lora_backend", "mamba_ssm_dtype",
            "fp8_gemm_runner_backend", "moe_runner_backend", "enable_deterministic_inference", "enable_torch_compile", "kv_canary",
            "speculative_algorithm", "speculative_draft_model_path", "enable_mis", "weight_version", "forward_hooks", "an_argument_of_tomorrow",
        ):
            self.assertNotIn(name, arguments.HARMLESS)
            self.assertEqual(arguments.of_values({name: "1"}), {name: "1"})

    def test_a_name_is_in_the_table_once(self):
        names = " ".join(arguments._HARMLESS.values()).split()
        self.assertEqual(len(names), len(set(names)))

    def test_adapters_count_by_their_files(self):
        try:
            from sglang.srt.lora.lora_registry import LoRARef
        except ImportError:
            LoRARef = SimpleNamespace
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(namespace.loaded, "start_of_this_process", lambda: time.time() + 60):
            def of(content):
                with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
                    file.write(content)
                return namespace._adapter(LoRARef(lora_name="a", lora_path=folder))

            self.assertEqual(of(b"1"), of(b"1"))
            self.assertNotEqual(of(b"1"), before := of(b"2"))
            self.assertEqual(of(b"2"), namespace._adapter({"lora_name": "a", "lora_path": folder}))
            with open(os.path.join(folder, "adapter_config.json"), "w") as file:
                file.write('{"lora_alpha": 32}')
            self.assertNotEqual(of(b"2"), before)
        with self.assertRaisesRegex(identity.Unidentified, "is no local folder"):
            namespace._adapter({"lora_name": "a", "lora_path": "user/adapter"})


class Loaded(unittest.TestCase):
    """The model as it is in memory, of torch's own modules."""

    def setUp(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed here: ./dev engine sglang runs this file with it")
        self.torch = torch
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8))
        values = {"lora_paths": None, "kv_cache_dtype": "auto", "port": 1}
        config = SimpleNamespace(model_path="m", dtype="float32", hf_config=SimpleNamespace(to_dict=lambda: {"rope_theta": 1}))
        self.scheduler = SimpleNamespace(
            model_config=config, server_args=SimpleNamespace(load_format="auto", download_dir=None, resolved_dict=lambda: dict(values)),
            tp_worker=self.worker_of(self.model), draft_worker=None, is_initializing=True)
        self.values = values

    def worker_of(self, model):
        return SimpleNamespace(weight_update_runners=lambda: [("role", SimpleNamespace(model=model))])

    def name(self):
        engine, reason = namespace.of_engine(self.scheduler)
        self.assertIsNone(reason)
        return namespace.named("", engine, {})

    def test_weights_scalars_configuration_and_arguments_count_as_they_are_in_memory(self):
        names = [self.name()]
        self.assertEqual(self.name(), names[0])
        self.values["port"] = 2
        self.assertEqual(self.name(), names[0])
        with self.torch.no_grad():
            self.model[0].weight[3, 3] += 1e-3
        names.append(self.name())
        self.model[1].eps = 1e-4
        names.append(self.name())
        self.values["kv_cache_dtype"] = "fp8_e5m2"
        names.append(self.name())
        self.scheduler.model_config.hf_config.to_dict = lambda: {"rope_theta": 2}
        names.append(self.name())
        for draft in (self.torch.nn.Linear(2, 2), self.torch.nn.Linear(2, 2)):
            self.scheduler.draft_worker = self.worker_of(draft)
            names.append(self.name())
        self.assertEqual(len(set(names)), len(names))

    def test_weights_are_the_same_until_a_parameter_changes(self):
        before = namespace.of_weights(self.scheduler)
        self.model[1].eps = 1e-4
        self.model.register_buffer("grown", self.torch.zeros(3))
        self.assertEqual(namespace.of_weights(self.scheduler), before)
        self.model[0].weight.data[3, 3] += 1e-3  # as SGLang writes new weights
        self.assertNotEqual(namespace.of_weights(self.scheduler), before)
        self.model[0].weight = self.torch.nn.Parameter(self.torch.empty(0))
        with self.assertRaisesRegex(identity.Unidentified, "0.weight is where it cannot be read"):
            namespace.of_weights(self.scheduler)

    def test_weights_that_cannot_be_read_count_by_their_files_or_not_at_all(self):
        self.model[0].weight = self.torch.nn.Parameter(self.torch.empty(0))
        self.assertIn("neither a local folder nor", namespace.of_engine(self.scheduler)[1])
        names = []
        for commit in ("c0ffee", "decade"):
            self.scheduler.model_config.hf_config._commit_hash = commit
            with mock.patch("huggingface_hub.snapshot_download", return_value=f"/snapshots/{commit}"):
                names.append(self.name())
        self.assertNotEqual(*names)
        self.scheduler.server_args.load_format = "dummy"
        self.assertIn("random", namespace.of_engine(self.scheduler)[1])
        self.scheduler.kvscout_writes.begin("update_weights_from_tensor")
        self.assertIn("changed since they were loaded", namespace.of_engine(self.scheduler)[1])


class Case(unittest.TestCase):
    def setUp(self):
        self.server = ServerProcess()
        self.addCleanup(self.server.stop)


class Copies(Case):
    def test_what_one_engine_stored_another_one_loads_into_other_pages(self):
        for layout in ("page_first_direct", "page_first", "layer_first"):
            with self.subTest(layout=layout):
                one, other = Rank(self, self.server.endpoint, layout), Rank(self, self.server.endpoint, layout)
                keys = keys_of(layout, 8)
                self.assertEqual(one.store(keys), [True] * 8)
                self.assertEqual(other.storage.batch_exists(keys + keys_of("never", 2)), 8)
                places = [30, 3, 22, 9, 39, 31, 11, 0]
                self.assertEqual(other.load(keys, places), [True] * 8)
                self.assertTrue(other.holds(keys, places))
                blank = set(range(PAGES)) - set(places)
                self.assertEqual({other.pool.page(page) for page in blank}, {bytes(len(other.pool.page(0)))})
                self.assertEqual(one.store(keys), [True] * 8)  # there already
                self.assertEqual((one.storage.counts()["stored_pages"], one.storage.counts()["present_pages"]), (8, 8))

    def test_leading_pages_count_and_those_after_a_gap_do_not(self):
        rank = Rank(self, self.server.endpoint)
        keys = keys_of("a", 6)
        rank.store(keys[:3] + keys[4:])
        self.assertEqual(rank.storage.batch_exists(keys), 3)
        rank.wipe()
        self.assertEqual(rank.load(keys, list(range(6))), [True] * 3 + [False] * 3)
        self.assertTrue(rank.holds(keys[:3], range(3)))
        self.assertEqual({rank.pool.page(page) for page in range(3, 6)}, {bytes(len(rank.pool.page(0)))})
        self.assertTrue(rank.storage.exists(keys[0]))
        self.assertFalse(rank.storage.exists(keys[3]))

    def test_an_engine_with_more_than_a_thousand_descriptors(self):
        open_more_than_a_thousand(self)
        rank = Rank(self, self.server.endpoint)
        keys = keys_of("a", 4)
        self.assertEqual(rank.store(keys), [True] * 4)
        self.assertEqual(rank.load(keys, [9, 8, 7, 6]), [True] * 4)
        self.assertTrue(rank.holds(keys, [9, 8, 7, 6]))

    def test_more_keys_than_one_question_takes(self):
        rank = Rank(self, self.server.endpoint)
        with mock.patch("kvscout.sglang.pages.MAX_KEYS", 3):
            keys = keys_of("a", 8)
            rank.store(keys[:7])
            self.assertEqual(rank.storage.batch_exists(keys), 7)

    def test_clear_drops_what_is_there_and_close_ends_it(self):
        rank = Rank(self, self.server.endpoint)
        keys = keys_of("a", 4)
        rank.store(keys)
        rank.storage.clear()
        self.assertEqual(rank.storage.batch_exists(keys), 0)
        self.assertEqual(rank.store(keys), [True] * 4)
        self.assertEqual(rank.storage.batch_exists(keys), 4)
        rank.storage.close()
        rank.storage.close()
        with self.assertLogs("kvscout", "ERROR"):
            self.assertEqual((rank.storage.batch_exists(keys), rank.store(keys)), (0, [False] * 4))

    def test_after_a_clear_of_one_rank_or_engine_all_of_them_store_and_load_again(self):
        ranks = [Rank(self, self.server.endpoint, rank=rank, size=2) for rank in range(2)]
        other = Rank(self, self.server.endpoint, rank=0, size=2)
        keys = keys_of("a", 4)
        for rank in (*ranks, other):
            rank.store(keys)
        for rank in ranks:  # as SGLang does: each rank by itself, one after the other
            rank.storage.clear()
        self.assertEqual([rank.storage.batch_exists(keys) for rank in (*ranks, other)], [0] * 3)
        for rank in ranks:
            self.assertEqual(rank.store(keys), [True] * 4)
        for rank in (*ranks, other):
            self.assertEqual(rank.storage.batch_exists(keys), 4)
            rank.wipe()
            self.assertEqual(rank.load(keys, [9, 8, 7, 6]), [True] * 4)
            self.assertTrue(rank.holds(keys, [9, 8, 7, 6]))

    def test_ranks_hit_together_and_each_has_its_own_bytes(self):
        ranks = [Rank(self, self.server.endpoint, rank=rank, size=2) for rank in range(2)]
        keys = keys_of("a", 4)
        self.assertEqual(ranks[0].store(keys), [True] * 4)
        self.assertEqual([rank.storage.batch_exists(keys) for rank in ranks], [0, 0])
        for page, key in enumerate(keys):
            ranks[1].pool.fill(page, ranks[1].pool.bytes_of("1" + key))
        self.assertEqual(ranks[1].storage.batch_set_v1(keys, indices_of(range(4))), [True] * 4)
        for rank in ranks:
            rank.wipe()
            self.assertEqual(rank.storage.batch_exists(keys), 4)
            self.assertEqual(rank.load(keys, [9, 8, 7, 6]), [True] * 4)
        self.assertTrue(ranks[0].holds(keys, [9, 8, 7, 6]))
        self.assertTrue(ranks[1].holds(["1" + key for key in keys], [9, 8, 7, 6]))

    def test_mla_is_stored_by_one_rank_and_read_by_all(self):
        ranks = [Rank(self, self.server.endpoint, mla=True, rank=rank, size=2) for rank in range(2)]
        keys = keys_of("a", 4)
        self.assertEqual(ranks[1].store(keys), [True] * 4)
        self.assertEqual(ranks[1].storage.counts()["stores"], 0)
        self.assertEqual(ranks[0].store(keys), [True] * 4)
        for rank in ranks:
            rank.wipe()
            self.assertEqual(rank.load(keys, [5, 6, 7, 8]), [True] * 4)
            self.assertTrue(rank.holds(keys, [5, 6, 7, 8]))


class Threads(Case):
    def test_queries_loads_and_stores_from_three_threads(self):
        rank = Rank(self, self.server.endpoint)
        keys = keys_of("a", 8)
        rank.store(keys)
        found = {"query": [], "load": [], "store": []}

        def repeat(name, call):
            for _ in range(60):
                found[name].append(call())

        threads = [threading.Thread(target=repeat, args=args) for args in (
            ("query", lambda: rank.storage.batch_exists(keys)), ("load", lambda: rank.load(keys, list(range(20, 28)))),
            ("store", lambda: rank.storage.batch_set_v1(keys, indices_of(range(8)))))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, {"query": [8] * 60, "load": [[True] * 8] * 60, "store": [[True] * 8] * 60})
        self.assertTrue(rank.holds(keys, range(20, 28)))


def transfer(name, keys, pages=(), policy="all_pages"):
    """SGLang's PoolTransfer."""
    return SimpleNamespace(name=name, keys=keys, host_indices=indices_of(pages), hit_policy=policy)


class Policies(unittest.TestCase):
    def lengths(self, kv, *pools):
        return policies.restorable(kv, [(transfer(name, [""] * window, policy=policy), states) for name, policy, window, states in pools])

    def test_without_other_pools_each_length_will_do(self):
        self.assertEqual(self.lengths(3), ([1, 2, 3], {}))
        self.assertEqual(self.lengths(0), ([], {}))

    def test_all_pages_is_a_leading_run(self):
        self.assertEqual(self.lengths(4, ("indexer", "all_pages", 0, [True, True, False, True])), ([1, 2], {"indexer": 2}))
        self.assertEqual(self.lengths(2, ("indexer", "all_pages", 0, [False, True])), ([], {}))

    def test_trailing_pages_is_a_window_at_each_length(self):
        states = [True, False, True, True, False, True]
        self.assertEqual(self.lengths(6, ("mamba", "trailing_pages", 1, states)), ([1, 3, 4, 6], {"mamba": 6}))
        self.assertEqual(self.lengths(6, ("swa", "trailing_pages", 2, states)), ([1, 4], {"swa": 4}))
        self.assertEqual(self.lengths(6, ("swa", "trailing_pages", 3, states)), ([1], {"swa": 1}))
        self.assertEqual(self.lengths(2, ("mamba", "trailing_pages", 0, [False, True])), ([2], {"mamba": 2}))

    def test_several_pools_need_a_length_that_all_have(self):
        one, other = ("swa", "trailing_pages", 2, [True, True, False, True, True]), ("mamba", "trailing_pages", 1, [False, True, True, False, True])
        self.assertEqual(self.lengths(5, one, other), ([2, 5], {"swa": 5, "mamba": 5}))

    def test_block_groups_never_gate(self):
        self.assertFalse(policies.gates(transfer("other", [], policy="block_groups")))
        self.assertTrue(policies.gates(transfer("other", [], policy="all_pages")))


class Hybrid(Case):
    """Pools beside the KV, of other sizes and layouts."""

    def rank(self, **more):
        self.swa, self.mamba = Pool("page_first"), Pool("page_first", mla=True)
        return Rank(self, self.server.endpoint, pools={"swa": self.swa, "mamba": self.mamba}, **more)

    def fill(self, pool, keys, pages):
        for key, page in zip(keys, pages, strict=True):
            pool.fill(page, pool.bytes_of(key))

    def held(self, pool, keys, pages):
        return all(pool.page(page) == pool.bytes_of(key) for key, page in zip(keys, pages, strict=True))

    def test_each_pool_has_its_own_pages_of_a_key_and_the_lengths_fit_all(self):
        rank = self.rank()
        keys = keys_of("a", 6)
        rank.store(keys)
        self.fill(self.swa, ["swa" + key for key in keys[2:6]], [9, 8, 7, 6])
        self.fill(self.mamba, ["state" + keys[3]], [3])
        self.assertEqual(
            rank.storage.batch_set_v2([transfer("swa", keys[2:6], [9, 8, 7, 6]), transfer("mamba", keys[3:4], [3])]),
            {"swa": [True] * 4, "mamba": [True]})
        asked = [transfer("swa", keys[:2], policy="trailing_pages"), transfer("mamba", keys[:1], policy="trailing_pages")]
        self.assertEqual(rank.storage.batch_exists_v2(keys, asked[:1]), (6, {"kv": 6, "swa": 6}, [4, 5, 6]))
        self.assertEqual(rank.storage.batch_exists_v2(keys, asked), (4, {"kv": 6, "swa": 6, "mamba": 4}, [4]))
        self.assertEqual(rank.storage.batch_exists_v2(keys, [transfer("swa", None, policy="all_pages")]), (0, {"kv": 6}, []))
        self.assertEqual(rank.storage.batch_exists_v2(keys, [transfer("swa", None, policy="block_groups")]), (6, {"kv": 6}, [1, 2, 3, 4, 5, 6]))
        self.assertEqual(rank.storage.batch_exists_v2(keys_of("never", 2), asked), (0, {}, []))
        other = self.rank()
        found = other.storage.batch_get_v2([transfer("swa", keys[2:4], [30, 31]), transfer("mamba", keys[3:4], [22])])
        self.assertEqual(found, {"swa": [True] * 2, "mamba": [True]})
        self.assertTrue(self.held(self.swa, ["swa" + key for key in keys[2:4]], [30, 31]))
        self.assertTrue(self.held(self.mamba, ["state" + keys[3]], [22]))
        self.assertEqual({other.pool.page(page) for page in range(PAGES)}, {bytes(len(other.pool.page(0)))})

    def test_indices_that_do_not_fit_the_keys_move_nothing(self):
        rank = self.rank()
        keys = keys_of("a", 3)
        wrong = [transfer("swa", keys, [1, 2]), SimpleNamespace(name="mamba", keys=keys, host_indices=None, hit_policy="all_pages")]
        for call in (rank.storage.batch_set_v2, rank.storage.batch_get_v2):
            self.assertEqual(call(wrong), {"swa": [False] * 3, "mamba": [False] * 3})
        self.assertEqual(rank.storage.batch_get_v2([transfer("swa", [])]), {"swa": []})

    def test_a_pool_that_comes_after_the_start_is_served_like_the_others(self):
        rank, draft, keys = self.rank(), Pool("page_first_direct"), keys_of("a", 3)
        with mock.patch.dict(sys.modules, modules_of_sglang()):
            rank.storage.register_mem_host_pool_v2(draft, "draft")
        rank.store(keys)
        self.fill(draft, keys, [4, 5, 6])
        self.assertEqual(rank.storage.batch_set_v2([transfer("draft", keys, [4, 5, 6])]), {"draft": [True] * 3})
        self.assertEqual(rank.storage.batch_exists_v2(keys, [transfer("draft", None)]), (3, {"kv": 3, "draft": 3}, [1, 2, 3]))
        self.assertEqual(rank.storage.batch_get_v2([transfer("draft", keys, [14, 15, 16])]), {"draft": [True] * 3})
        self.assertTrue(self.held(draft, keys, [14, 15, 16]))

    def test_with_mla_rank_0_stores_all_but_states_of_mamba(self):
        ranks = []
        for rank in range(2):
            ranks.append((self.rank(mla=True, rank=rank, size=2), self.swa, self.mamba))
        keys = keys_of("a", 2)
        for number, (rank, swa, mamba) in enumerate(ranks):
            rank.store(keys)
            self.fill(swa, keys, [0, 1])
            self.fill(mamba, [f"{number}{key}" for key in keys], [0, 1])
            self.assertEqual(
                rank.storage.batch_set_v2([transfer("swa", keys, [0, 1]), transfer("mamba", keys, [0, 1])]),
                {"swa": [True] * 2, "mamba": [True] * 2})
            asked = [transfer("swa", None), transfer("mamba", keys[:1], policy="trailing_pages")]
            self.assertEqual(rank.storage.batch_exists_v2(keys, asked).kv_hit_pages, 2 * number)
            self.assertEqual(rank.storage.counts("swa")["stores"], 1 - number)
        for number, (rank, swa, mamba) in enumerate(ranks):
            self.assertEqual(
                rank.storage.batch_get_v2([transfer("swa", keys, [5, 6]), transfer("mamba", keys, [5, 6])]),
                {"swa": [True] * 2, "mamba": [True] * 2})
            self.assertTrue(self.held(swa, keys, [5, 6]))
            self.assertTrue(self.held(mamba, [f"{number}{key}" for key in keys], [5, 6]))

    def test_a_dead_server_is_nothing_found_in_all_pools(self):
        rank = self.rank(extra={"lookup_timeout_ms": 200, "transfer_timeout_ms": 300})
        keys = keys_of("a", 2)
        rank.store(keys)
        self.server.kill()
        self.assertEqual(rank.storage.batch_exists_v2(keys, [transfer("swa", None)]), (0, {}, []))
        for call in (rank.storage.batch_get_v2, rank.storage.batch_set_v2):
            self.assertEqual(call([transfer("swa", keys, [0, 1]), transfer("mamba", keys, [0, 1])]), {"swa": [False] * 2, "mamba": [False] * 2})


class HostPools(Case):
    """SGLang's own host pools, whose pages SGLang itself reads and writes."""

    def setUp(self):
        super().setUp()
        try:
            import torch
            from sglang.srt.mem_cache import device_pool_info as info
            from sglang.srt.mem_cache.pool_host import base, mamba, mha, mla
        except ImportError as error:
            self.skipTest(f"SGLang is not installed here ({error}): ./dev engine sglang runs this file with it")
        self.torch, self.info, self.mamba, self.mha, self.mla = torch, info, mamba, mha, mla
        reserve = mock.patch.object(base, "HICACHE_HOST_MEMORY_RESERVE_BYTES", 0)
        reserve.start()
        self.addCleanup(reserve.stop)

    def pool_of_mha(self, layout):
        rows = tuple(self.torch.zeros(1, 2, 8) for _ in range(LAYERS))
        where = self.torch.tensor([row.data_ptr() for row in rows], dtype=self.torch.uint64)
        info = self.info.MHABufferInfo(
            buffers=self.info.KVBuffers(k=rows, v=rows, k_data_ptrs=where, v_data_ptrs=where, layout=self.info.KVBufferLayout.NHD), page_size=PAGE, head_num=2, head_dim=8,
            v_head_dim=8, dtype=self.torch.float32, device=self.torch.device("cpu"))
        return self.mha.MHATokenToKVPoolHost(info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=10 * PAGE, start_layer=0,
                                             end_layer=LAYERS - 1)

    def pool_of_mla(self, layout):
        rows = tuple(self.torch.zeros(1, 1, 24) for _ in range(LAYERS))
        info = self.info.MLABufferInfo(
            buffers=rows, data_ptrs=None, layer_indices=tuple(range(LAYERS)), device_layer_num=LAYERS, page_size=PAGE, kv_lora_rank=16,
            qk_rope_head_dim=8, kv_cache_dim=24, dtype=self.torch.float32, device=self.torch.device("cpu"))
        return self.mla.MLATokenToKVPoolHost(info, 2.0, 0, PAGE, layout, pin_memory=False, device_capacity_tokens=10 * PAGE, start_layer=0,
                                             end_layer=LAYERS - 1, target_layer_num=LAYERS)

    def pool_of_mamba(self, layout):
        info = self.info.MambaStateBufferInfo(
            temporal=self.torch.zeros(LAYERS, 4, 5, 6), conv=(self.torch.zeros(LAYERS, 4, 7), self.torch.zeros(LAYERS, 4, 3)))
        return self.mamba.MambaPoolHost(info, 5.0, 0, device_capacity=4, pin_memory=False, layout=layout)

    def test_pages_of_each_pool_come_back_as_sglang_wrote_them(self):
        for make, layouts in ((self.pool_of_mha, ("page_first_direct", "page_first", "layer_first")),
                              (self.pool_of_mla, ("page_first_direct", "page_first", "layer_first")),
                              (self.pool_of_mamba, ("page_first_direct", "page_first"))):
            for layout in layouts:
                with self.subTest(pool=make.__name__, layout=layout):
                    self.moves(make, layout)

    def moves(self, make, layout):
        one, other = (make(layout) for _ in range(2))
        size = one.page_size
        storages = [Rank(self, self.server.endpoint, pools={"other": pool}).storage for pool in (one, other)]
        keys, places, others = keys_of(make.__name__ + layout, 4), [3, 0, 7, 8], [1, 8, 2, 5]
        like = one.get_dummy_flat_data_page()
        pages = [self.torch.randint(256, (like.numel() * like.element_size(),)).to(self.torch.uint8) for _ in keys]
        for place, page in zip(places, pages, strict=True):
            one.set_from_flat_data_page(place * size, page.view(like.dtype).view(like.shape))

        def transfers(places):
            indices = Indices(place * size + token for place in places for token in range(size))
            return [SimpleNamespace(name="other", keys=keys, host_indices=indices, hit_policy="all_pages")]

        self.assertEqual(storages[0].batch_set_v2(transfers(places)), {"other": [True] * 4})
        self.assertEqual(storages[1].batch_get_v2(transfers(others)), {"other": [True] * 4})
        for place, page in zip(others, pages, strict=True):
            found = other.get_data_page(place * size, flat=True)
            self.assertTrue(self.torch.equal(found.view(self.torch.uint8).flatten(), page))
        for storage in storages:
            storage.close()


class Statistics(Case):
    def test_each_copy_is_told_once_with_its_pages_and_bandwidth(self):
        try:
            from sglang.srt.observability import metrics_collector as module
        except ImportError:
            module = types.ModuleType("metrics_collector")
            module.StorageMetrics = lambda: SimpleNamespace(prefetch_pgs=[], backup_pgs=[], prefetch_bandwidth=[], backup_bandwidth=[])
        name = "sglang.srt.observability.metrics_collector"
        rank = Rank(self, self.server.endpoint)
        keys = keys_of("a", 6)
        rank.store(keys[:2])
        rank.store(keys)
        rank.store(keys)  # nothing to copy
        rank.load(keys[:5], range(5))
        with mock.patch.dict(sys.modules, {**modules_of_sglang(), "sglang.srt.observability": types.ModuleType("o"), name: module}):
            found, after = rank.storage.get_stats(), rank.storage.get_stats()
        self.assertEqual((found.backup_pgs, found.prefetch_pgs), ([2, 4], [5]))
        self.assertEqual((after.backup_pgs, after.prefetch_pgs, after.backup_bandwidth, after.prefetch_bandwidth), ([], [], [], []))
        self.assertEqual((len(found.backup_bandwidth), len(found.prefetch_bandwidth)), (2, 1))
        self.assertTrue(all(value > 0 for value in found.backup_bandwidth + found.prefetch_bandwidth))
        if hasattr(module, "StorageMetricsCollector"):  # SGLang's own takes it
            module.StorageMetricsCollector(labels={"test": "test"}).log_storage_metrics(found)


class NewWeights(Case):
    def setUp(self):
        super().setUp()
        self.weights = "old"
        seen = mock.patch.object(namespace, "of_weights", lambda scheduler: self.weights)
        seen.start()
        self.addCleanup(seen.stop)
        self.rank = Rank(self, self.server.endpoint)
        self.updater, self.keys = self.rank.runner.weight_updater, keys_of("a", 4)
        self.assertEqual(self.rank.store(self.keys), [True] * 4)

    def write(self, to="new", name="update_weights_from_disk"):
        self.weights = to
        getattr(self.updater, name)()

    def assert_shares(self, shares=True):
        storage = self.rank.storage
        found = storage.batch_exists(self.keys), self.rank.load(self.keys, [4, 5, 6, 7]), storage.batch_set_v1(self.keys, indices_of(range(4)))
        self.assertEqual(found, (4, [True] * 4, [True] * 4) if shares else (0, [False] * 4, [False] * 4))

    def assert_is_inert(self, text):
        """And says so once."""
        with self.assertLogs("kvscout", "WARNING") as log:
            self.assert_shares(False)
            self.assert_shares(False)
        self.assertEqual(len(log.output), 1)
        self.assertIn(text, log.output[0])

    def test_other_weights_and_then_a_flush(self):
        self.write()
        self.rank.reset()
        self.assert_is_inert("until its storage is detached and attached again")
        self.write("old")
        self.rank.reset()
        self.assert_shares()

    def test_without_a_flush_the_engine_holds_kv_of_both_whatever_its_weights_are(self):
        self.write()
        self.assert_is_inert("until that cache is flushed (POST /flush_cache)")
        self.write("old")
        self.assert_shares(False)
        with self.assertRaisesRegex(planes.Unsupported, "POST /flush_cache.. Attach the storage then"):
            self.rank.attach()
        self.rank.reset()
        self.rank.attach()
        self.assert_shares()

    def test_a_flush_before_the_update_will_do_if_nothing_was_computed_or_loaded_since(self):
        for name, meanwhile, shares in (("nothing", lambda: None, True), ("a step", lambda: setattr(self.rank, "forward_ct", 7), False),
                                        ("a load", lambda: self.rank.load(self.keys, [4, 5, 6, 7]), False)):
            with self.subTest(name=name):
                self.rank.reset()
                self.assert_shares()
                self.rank.reset()
                meanwhile()
                self.write()
                self.write("old")
                self.assert_shares(shares)

    def test_from_its_begin_to_its_end_an_update_is_one_write_and_no_flush_within_ends_it(self):
        memory = self.rank.runner.memory_saver_adapter
        for begin, end in ((self.updater.begin_weight_update, self.updater.end_weight_update),
                           (lambda: memory.pause("weights"), lambda: memory.resume("weights"))):
            begin()
            self.write(name="update_weights_from_tensor")
            self.rank.reset()
            with mock.patch.object(namespace, "of_weights", side_effect=AssertionError("memory that nothing may read")):
                self.assert_is_inert("are being changed")
            with self.assertRaisesRegex(planes.Unsupported, "are being changed"):
                self.rank.attach()
            self.write("old", "update_weights_from_tensor")
            end()
            self.rank.attach()
            self.assert_shares()

    def test_each_method_that_writes_counts_and_no_other(self):
        writes = self.rank.kvscout_writes
        for call, counts in (
            *((getattr(self.updater, name), not name.startswith(("init", "receive"))) for name in dir(self.updater) if name[0] != "_"),
            *((lambda action=action: self.rank.runner.check_weights(action=action), action == "reset_tensors")
              for action in ("snapshot", "reset_tensors", "compare", "checksum")),
            (lambda: self.rank.runner.memory_saver_adapter.pause("kv_cache"), False),
        ):
            before = writes.state
            call()
            self.assertEqual(writes.state != before, counts)

    def test_nothing_is_known_of_an_engine_that_was_attached_later_until_it_is_flushed(self):
        with mock.patch.object(Rank, "is_initializing", False):
            with self.assertRaisesRegex(planes.Unsupported, "may have changed"):
                Rank(self, self.server.endpoint)

    def test_loads_under_way_are_given_up_when_a_write_begins(self):
        self.rank.tree_cache.ongoing_prefetch["r"] = "an operation"
        seen = []
        self.updater.update_weights_from_ipc(lambda: seen.append(dict(self.rank.tree_cache.ongoing_prefetch)))
        self.assertEqual(seen, [{}])
        self.rank.reset()
        pages = self.rank.storage._pages["kv"]
        load = pages.load

        def overtaken(keys, places):
            done = load(keys, places)
            self.write()
            return done

        with mock.patch.object(pages, "load", overtaken):
            self.assertEqual(self.rank.load(self.keys, [4, 5, 6, 7]), [False] * 4)

    def test_where_writes_cannot_be_seen_nothing_is_shared(self):
        runner = Runner()
        runner.weight_updater = object()
        with self.assertLogs("kvscout", "WARNING") as log:
            self.rank = Rank(self, self.server.endpoint, runner=runner)
        self.assertIn("does not show where it changes weights (object has no begin_weight_update)", log.output[0])
        self.assert_shares(False)

    def test_weights_that_cannot_be_read_are_others_after_each_write(self):
        with mock.patch.object(namespace, "of_weights", side_effect=identity.Unidentified("packed")):
            self.rank.attach()
            self.rank.reset()
            self.assert_shares()
            self.write("old")
            self.rank.reset()
            self.assert_is_inert("until its storage is detached and attached again")

    def test_sglangs_own_updater_is_seen_however_it_writes(self):
        try:
            import torch
            from sglang.srt.model_executor.model_runner_components import weight_updater as module
        except ImportError as error:
            self.skipTest(f"SGLang is not installed here ({error}): ./dev engine sglang runs this file with it")
        model = torch.nn.Linear(4, 4)
        model.load_weights = lambda named: module._model_load_weights_direct(model, named)
        runner = Runner()
        runner.weight_updater = module.WeightUpdater(
            tp_rank=0, device="cpu", gpu_id=0, model_config=SimpleNamespace(), custom_weight_loaders={}, get_model=lambda: model,
            update_model_fields=None, recapture_cuda_graph=None, get_model_runner=lambda: runner)
        rank = Rank(self, self.server.endpoint, runner=runner)
        tensors = [("weight", torch.ones(4, 4))]
        with mock.patch.object(module, "get_model", lambda: SimpleNamespace(weight_cache_mode="off")), \
                mock.patch.object(module, "get_parallel", lambda: SimpleNamespace(tp_rank=0)):
            for call in (
                lambda: runner.weight_updater.update_weights_from_tensor(named_tensors=tensors, load_format="direct"),
                lambda: runner.weight_updater.load_weights_from_distributed(tensors),
                lambda: runner.weight_updater.update_weights_from_ipc(SimpleNamespace(zmq_handles={})),
                lambda: runner.weight_updater.begin_weight_update(),
            ):
                rank.reset()
                self.assertIsNone(rank.kvscout_writes.why_not())
                rank.forward_ct += 1
                call()
                self.assertIsNotNone(rank.kvscout_writes.why_not())
        self.assertTrue(torch.equal(model.weight, torch.ones(4, 4)))


class Failures(Case):
    LIMIT_S = 30  # of one call; its own deadlines are some hundred milliseconds

    def timed(self, call):
        begin = time.monotonic()
        found = call()
        self.assertLess(time.monotonic() - begin, self.LIMIT_S)
        return found

    def nothing_is_found(self, rank, keys):
        self.assertEqual(self.timed(lambda: rank.storage.batch_exists(keys)), 0)
        self.assertEqual(self.timed(lambda: rank.load(keys, [4, 5, 6, 7])), [False] * 4)
        self.assertEqual(self.timed(lambda: rank.storage.batch_set_v1(keys, indices_of(range(4)))), [False] * 4)

    def test_a_frozen_server_finds_nothing_and_serves_again(self):
        rank = Rank(self, self.server.endpoint, extra={"lookup_timeout_ms": 200, "transfer_timeout_ms": 300})
        keys = keys_of("a", 4)
        rank.store(keys)
        self.server.freeze()
        try:
            self.nothing_is_found(rank, keys)
        finally:
            self.server.thaw()
        wait_for(lambda: rank.storage.batch_exists(keys) == 4, "the server to answer again")
        wait_for(lambda: rank.load(keys, [4, 5, 6, 7]) == [True] * 4, "a load")
        self.assertTrue(rank.holds(keys, [4, 5, 6, 7]))

    def test_a_killed_server_finds_nothing_and_the_next_one_serves(self):
        rank = Rank(self, self.server.endpoint, extra={"lookup_timeout_ms": 200, "transfer_timeout_ms": 300})
        keys = keys_of("a", 4)
        rank.store(keys)
        self.server.kill()
        self.nothing_is_found(rank, keys)
        self.server.start()
        wait_for(lambda: rank.store(keys) == [True] * 4, "a store")
        wait_for(lambda: rank.storage.batch_exists(keys) == 4, "the client's connection")

    def test_no_server_ends_the_start_with_a_sentence(self):
        refused = self.assertRaisesRegex(planes.Unsupported, "no server at .*-none took this engine's pages in 200 ms.*Start kvscoutd")
        with refused, mock.patch.object(Rank, "past_rollback", self.fail):  # there SGLang does not take an attachment back
            Rank(self, self.server.endpoint + "-none", extra={"start_timeout_ms": 200})

    def test_sglangs_own_controller_takes_back_an_attachment_that_meets_no_server(self):
        try:
            from sglang.srt.managers import cache_controller as module
            from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
        except ImportError as error:
            self.skipTest(f"SGLang is not installed here ({error}): ./dev engine sglang runs this file with it")
        sys.modules.pop("kvscout.sglang.storage", None)
        pool = Pool("page_first")
        entries = [SimpleNamespace(name="kv", host_pool=pool)]
        extra = {**EXTRA, "endpoint": self.server.endpoint + "-none", "start_timeout_ms": 200}
        controller = HybridCacheController.__new__(HybridCacheController)
        vars(controller).update(
            storage_host_pool=pool, mem_pool_host=SimpleNamespace(entries=entries, logical_size=pool.size), host_memory_mode="cache", pp_group=None,
            pp_prefetch_command_group=None, pp_prefetch_command_thread=None, enable_storage=False, page_size=PAGE, prefetch_hits_sync_groups=[],
            prefetch_completion_sync_groups=[], storage_stop_event=threading.Event(), _create_sync_groups=list, _start_storage_threads=list,
            _generate_storage_config=lambda *names: SimpleNamespace(**Rank(self, self.server.endpoint).fields | {"extra_config": extra}))
        with mock.patch.object(module, "get_parallel", lambda: SimpleNamespace(attn_dcp_size=1)), \
                self.assertRaisesRegex(planes.Unsupported, "Start kvscoutd"):
            controller.attach_storage_backend("dynamic", storage_backend_extra_config=extra, host_pools=entries)
        self.assertEqual((controller.enable_storage, controller.storage_backend, controller.storage_backend_type), (False, None, None))

    def test_a_rank_that_is_refused_takes_the_others_along(self):
        with mock.patch.object(namespace, "of_all_ranks", lambda own, scheduler: [own, ("other", None) if own else "the other one's reason"]):
            with self.assertRaisesRegex(planes.Unsupported, "the other one's reason"):
                Rank(self, self.server.endpoint)

    def test_modes_that_are_not_served_end_the_start(self):
        for more, text in (({"dcp_size": 2}, "context parallelism"), ({"attn_cp_size": 2}, "context parallelism"), ({"tp_lcm_size": 4}, "tp_lcm_size")):
            with self.subTest(more=more), self.assertRaisesRegex(planes.Unsupported, text):
                Rank(self, self.server.endpoint, **more)
        with self.assertRaisesRegex(planes.Unsupported, "draft model's KV .draft. differs from rank to rank"):
            Rank(self, self.server.endpoint, mla=True, size=2, pools={"draft": Pool("page_first")})
        states = Pool("layer_first")
        states.get_page_buffer_meta = mock.Mock(side_effect=ValueError("it requires page_first"))
        with self.assertRaisesRegex(planes.Unsupported, "pages of its host pool mamba: it requires page_first"):
            Rank(self, self.server.endpoint, pools={"mamba": states})


if __name__ == "__main__":
    unittest.main()
