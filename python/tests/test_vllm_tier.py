# SPDX-License-Identifier: Apache-2.0
"""The tier of vLLM's own offloading, as far as it needs no vLLM: keys, namespace, lookups, copies, with a kvscoutd of
its own and each byte compared. The class that vLLM makes runs in `./dev engine tier-manager tier`."""

import dataclasses
import logging
import os
import subprocess
import sys
import tempfile
import time
import unittest
from types import SimpleNamespace
from unittest import mock

from kvscout import KVScoutError
from kvscout.vllm import logs
from kvscout.vllm.verify import Samples
from kvscout.vllm_tier import config, events, keys, lookups, namespace
import tier_rig
from rig import ServerProcess, open_more_than_a_thousand, pings, wait_for
from tier_rig import ROW_BYTES, ROWS, Engine, Manager, key_of, keys_of


@dataclasses.dataclass
class Event:
    """vLLM's OffloadingEvent."""

    keys: list
    medium: str
    removed: bool
    locality: str | None = None
    removal_expected: bool = False


class Importing(unittest.TestCase):
    def test_importing_the_package_imports_no_vllm_and_starts_no_thread(self):
        code = "import kvscout.vllm_tier, sys, threading; assert 'vllm' not in sys.modules"
        code += "; assert threading.active_count() == 1"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_an_unknown_name_is_an_attribute_error(self):
        import kvscout.vllm_tier

        with self.assertRaisesRegex(AttributeError, "no attribute 'Tier'"):
            kvscout.vllm_tier.Tier


class Configuration(unittest.TestCase):
    def test_the_defaults(self):
        found = config.parse({"namespace": "m"})
        self.assertEqual(dataclasses.astuple(found), ("m", (None, {}, {}, {}, (("idle_exit_s", "600"),)), 0, True, False, "LOCAL", frozenset(), 0.001, True))
        self.assertTrue(found.library.starts_server)

    def test_without_a_namespace_it_says_what_belongs_into_one(self):
        with self.assertRaisesRegex(config.ConfigError, "namespace is missing.*revision, quantization"):
            config.parse({})

    def test_an_unknown_key_is_refused_with_those_that_there_are(self):
        with self.assertRaisesRegex(config.ConfigError, "no key 'chunk_tokens'. There are: namespace: .*endpoint: "):
            config.parse({"namespace": "m", "chunk_tokens": 256})

    def test_each_wrong_value_is_refused_with_what_is_allowed(self):
        for key, value, allowed in (
            ("namespace", "", "text of 1 to 128 bytes"), ("namespace", "x" * 129, "128"),
            ("weights_version", -1, "whole number"), ("reset", "no", "clear, keep"),
            ("kv_scales", True, "unknown, fixed"), ("locality", "here", "LOCAL, REMOTE"),
            ("l1_bytes", "64Gib i", "suffix"), ("l2", "fs:///a b", "URL without blanks"),
            ("l2", "ftp://a/b", 'scheme "ftp"'), ("transfer_timeout_ms", "long", "transfer_timeout_ms"), ("curve_server_key", "k", "both of them"),
        ):
            with self.subTest(key=key, value=value), self.assertRaisesRegex(config.ConfigError, allowed):
                config.parse({"namespace": "m", key: value})

    def test_a_server_that_is_there_is_not_configured(self):
        with self.assertRaisesRegex(config.ConfigError, "secondary_tiers.*there is a server already"):
            config.parse({"namespace": "m", "endpoint": "ipc:///s", "l1_bytes": "1Gi"})


ENGINE = object()


def offloading_config(**more):
    """As vLLM's OffloadingConfig, in the fields that the namespace reads."""
    sizes = {"world_size": 2, "tp_size": 2, "pp_size": 1, "pcp_size": 1, "dcp_size": 1}
    parallel = SimpleNamespace(is_parallelism_agnostic=False, **sizes)
    fields = {
        "parallel": parallel, "replicated_layout": False, "canonical_layout": False, "kv_cache_layout": "NHD",
        "engine_id": "e1", "model": SimpleNamespace(name="org/model", dtype="bfloat16"),
        "cache": SimpleNamespace(tokens_per_hash=16, blocks_per_chunk=4),
        "groups": (SimpleNamespace(group_id=0, tokens_per_block=16, layer_names=("l0", "l1")),), **more,
    }
    return SimpleNamespace(**fields)


@dataclasses.dataclass
class ModelConfig:
    """As vLLM's, in some of its fields."""

    model: str = "org/model"
    max_model_len: int = 2048
    hf_config: object = dataclasses.field(default_factory=lambda: SimpleNamespace(_commit_hash="c0ffee"))
    override_generation_config: dict = dataclasses.field(default_factory=dict)
    original_max_model_len = None

    def try_get_generation_config(self):
        return {}


@dataclasses.dataclass
class LoadConfig:
    """As vLLM's, in some of its fields."""

    load_format: str = "auto"
    download_dir: str | None = None
    model_loader_extra_config: dict = dataclasses.field(default_factory=dict)


def engine(lora=None, load=None, attention=None, speculative=None, cache=None, **more):
    settings = {"cache_dtype": "auto", "prefix_caching_hash_algo": "sha256_cbor", **(cache or {})}
    return SimpleNamespace(
        model_config=ModelConfig(**more), lora_config=lora, load_config=LoadConfig(**(load or {})), attention_config=attention,
        speculative_config=speculative, cache_config=SimpleNamespace(**settings),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
    )


def groups_of(**spec):
    group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16, **spec), layer_names=["l0", "l1"])
    return SimpleNamespace(kv_cache_groups=[group])


def compute(found, row_bytes=4096, version="0.33.0", fixed=False, name="m", seen=ENGINE, groups=None):
    """@seen: an engine(), or None."""
    seen = engine() if seen is ENGINE else seen
    with (
        mock.patch.dict(sys.modules, {"vllm": SimpleNamespace(__version__=version)}),
        mock.patch.object(namespace.identity, "platform", lambda: ["cuda", "9.0"]),
        mock.patch.object(namespace.identity, "commit", lambda model, folder=None: model.hf_config._commit_hash),
    ):
        return namespace.compute(name, found, namespace.factors(found, row_bytes), fixed, seen, groups or groups_of())


def name_of(found, **more):
    return compute(found, **more)[0]


class Namespace(unittest.TestCase):
    def test_the_same_engine_has_the_same_one_and_each_difference_another(self):
        base = name_of(offloading_config())
        self.assertRegex(base, "^m/vllm-tier/[0-9a-f]{32}$")
        self.assertEqual(base, name_of(offloading_config(engine_id="e2")))
        group = SimpleNamespace(group_id=1, tokens_per_block=16, layer_names=("m0",))
        others = [
            name_of(offloading_config(), name="n"), name_of(offloading_config(), row_bytes=8192),
            name_of(offloading_config(), version="0.34.0"), name_of(offloading_config(kv_cache_layout="HND")),
            name_of(offloading_config(canonical_layout=True)),
            name_of(offloading_config(), seen=engine(model="org/other")),
            name_of(offloading_config(), seen=engine(max_model_len=8192)),
            name_of(offloading_config(), seen=engine(override_generation_config={"attn_temperature_tuning": True})),
            name_of(offloading_config(), seen=engine(hf_config=SimpleNamespace(_commit_hash="c0ffee", rope_theta=5e5))),
            name_of(offloading_config(), seen=engine(hf_config=SimpleNamespace(_commit_hash="decaf"))),
            name_of(offloading_config(model=SimpleNamespace(name="org/model", dtype="float16"))),
            name_of(offloading_config(cache=SimpleNamespace(tokens_per_hash=32, blocks_per_chunk=4))),
            name_of(offloading_config(groups=(*offloading_config().groups, group))),
            # What the connector's identity has counts here, too.
            name_of(offloading_config(), groups=groups_of(dtypes=["float16"])),
            *(name_of(offloading_config(), seen=engine(**more)) for more in (
                {"load": {"load_format": "bitsandbytes"}}, {"load": {"model_loader_extra_config": {"of": "a plugin"}}},
                {"attention": SimpleNamespace(indexer_kv_dtype="fp8")}, {"cache": {"prefix_caching_hash_algo": "xxhash"}},
                {"cache": {"kv_cache_dtype_skip_layers": ["0"]}},
                {"speculative": SimpleNamespace(method="mtp", num_speculative_tokens=2, draft_model_config=None)},
            )),
        ]
        with mock.patch.dict(os.environ, {"VLLM_NEW_THING": "1"}):
            others.append(name_of(offloading_config()))
        self.assertEqual(base, name_of(offloading_config(), seen=engine(load={"download_dir": "/else"})))
        self.assertEqual(len({base, *others}), len(others) + 1)

    def test_workers_count_only_where_the_row_depends_on_them(self):
        def of(agnostic, world):
            parallel = SimpleNamespace(
                is_parallelism_agnostic=agnostic, world_size=world, tp_size=world, pp_size=1, pcp_size=1, dcp_size=1
            )
            seen = engine()
            seen.parallel_config.tensor_parallel_size = world
            return name_of(offloading_config(parallel=parallel), seen=seen, groups=groups_of(num_kv_heads=8 // world))

        self.assertEqual(of(True, 2), of(True, 4))
        self.assertNotEqual(of(False, 2), of(False, 4))

    def test_kv_with_scales_of_its_own_is_for_one_engine_until_the_user_says_that_they_are_fixed(self):
        def of(engine, dtype, fixed=False):
            model = SimpleNamespace(name="m", dtype=dtype)
            return name_of(offloading_config(engine_id=engine, model=model), fixed=fixed)

        self.assertNotEqual(of("e1", "fp8_inc"), of("e2", "fp8_inc"))
        self.assertEqual(of("e1", "fp8_inc", fixed=True), of("e2", "fp8_inc", fixed=True))
        for dtype in ("float32", "bfloat16", "fp8_e4m3"):
            self.assertEqual(of("e1", dtype), of("e2", dtype))

    def test_a_length_that_follows_free_memory_is_one_word(self):
        auto = [engine(max_model_len=length) for length in (4096, 5000)]
        for found in auto:
            found.model_config.original_max_model_len = -1
        self.assertEqual(*(name_of(offloading_config(), seen=found) for found in auto))

    def test_with_lora_and_without_a_configuration_it_is_the_engines_own(self):
        found = offloading_config()
        for seen, reason in (
            (engine(lora=object()), "a tier does not see adapters"), (None, "does not show the engine's configuration"),
            (engine(load={"load_format": "dummy"}), "its weights are random ones"), (SimpleNamespace(), "identifying it failed"),
        ):
            (one, why), (other, _) = (compute(found, seen=seen) for _ in range(2))
            self.assertNotEqual(one, other)
            self.assertIn(reason, why)
        self.assertIsNone(compute(found)[1])

    def test_new_weights_in_a_local_folder_are_another_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            with open(path, "wb") as file:
                file.write(b"1")
            self.assertIn("may not be what was loaded", compute(offloading_config(), seen=engine(model=folder))[1])
            self.enterContext(mock.patch.object(namespace.loaded, "start_of_this_process", lambda: time.time() + 60))
            first = name_of(offloading_config(), seen=engine(model=folder))
            self.assertEqual(first, name_of(offloading_config(), seen=engine(model=folder)))
            os.utime(path, ns=(1, 1))
            self.assertNotEqual(first, name_of(offloading_config(), seen=engine(model=folder)))


class Keys(unittest.TestCase):
    def test_a_hash_is_of_the_whole_key(self):
        some = [key_of("p", 0, 0), key_of("p", 0, 1), key_of("p", 1, 0), key_of("p", 0)[:16] + bytes(4)]
        hashes = [keys.hashes_of([key]) for key in some]
        self.assertEqual(len(set(hashes)), 4)
        self.assertEqual(keys.hashes_of(some), b"".join(hashes))
        self.assertEqual({len(digest) for digest in hashes}, {keys.HASH_BYTES})


class Log(unittest.TestCase):
    def test_one_line_in_ten_seconds_with_the_number_of_the_others(self):
        now = [0.0]
        teller = logs.Teller(logging.getLogger("vllm.kvscout"), clock=lambda: now[0])
        with self.assertLogs("vllm.kvscout", logging.WARNING) as log:
            for _ in range(3):
                teller.warn("%s failed", "it")
            now[0] = 10.0
            teller.warn("%s failed", "it")
        self.assertEqual([line.split(":", 2)[2] for line in log.output],
                         ["kvscout tier: it failed", "kvscout tier: it failed (2 lines like this were suppressed)"])


class Case(unittest.TestCase):
    keys = {}

    def setUp(self):
        self.server = ServerProcess(**self.keys)
        self.addCleanup(self.server.stop)
        self.engine = Engine(self, self.server.endpoint)


class Copies(Case):
    def test_what_was_stored_is_loaded_into_other_chunks(self):
        prompt = keys_of("a", 8)
        end = self.engine.store(prompt)
        self.assertEqual((end.ok, end.bytes, end.keys), (True, 8 * ROW_BYTES, ()))
        self.engine.wipe()
        self.assertEqual(self.engine.prefix("r", prompt), 8)
        places = [40, 3, 22, 9, 50, 51, 11, 63]
        end = self.engine.load("r", prompt, places)
        self.assertEqual((end.ok, end.bytes, set(end.keys)), (True, 8 * ROW_BYTES, set(prompt)))
        self.assertTrue(self.engine.holds(prompt, places))
        blank = set(range(ROWS)) - set(places)
        self.assertEqual({self.engine.row(chunk) for chunk in blank}, {bytes(ROW_BYTES)})
        self.assertEqual((self.engine.counts["lookups"], self.engine.counts["lookup_keys"]), (1, 8))

    def test_chunks_are_loaded_in_any_order_and_in_parts(self):
        prompt = keys_of("a", 12)
        self.engine.store(prompt)
        self.engine.wipe()
        self.assertEqual(self.engine.prefix("r", prompt), 12)
        mixed = [prompt[at] for at in (7, 8, 9, 0, 2, 4, 3, 11)]
        places = [5, 6, 60, 61, 1, 0, 30, 31]
        self.assertTrue(self.engine.load("r", mixed, places).ok)
        self.assertTrue(self.engine.holds(mixed, places))
        rest = [key for key in prompt if key not in mixed]
        self.assertTrue(self.engine.load("r", rest, [40, 41, 42, 43]).ok)
        self.assertTrue(self.engine.holds(rest, [40, 41, 42, 43]))
        self.assertEqual(self.engine.client.stats()["live"], 0)

    def test_groups_of_one_prompt_are_different_chunks(self):
        both = keys_of("h", 3, 0) + keys_of("h", 3, 1)
        self.engine.store(both)
        self.engine.wipe()
        self.assertEqual(set(self.engine.known("r", both).values()), {True})
        self.assertTrue(self.engine.load("r", both).ok)
        self.assertTrue(self.engine.holds(both))

    def test_a_chunk_that_is_there_is_not_stored_again(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        self.engine.store(prompt[:2] + keys_of("b", 1))
        self.assertEqual((self.engine.counts["stored_chunks"], self.engine.counts["present_chunks"]), (5, 2))

    def test_a_load_that_no_lookup_found_fails_and_copies_nothing(self):
        end = self.engine.load("r", keys_of("never", 2))
        self.assertEqual((end.ok, end.keys), (False, ()))
        self.assertEqual(self.engine.row(0), bytes(ROW_BYTES))
        self.assertEqual(self.engine.counts["failed_chunks"], 2)

    def test_two_requests_are_served_from_one_store(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        for request in ("r1", "r2"):
            self.engine.wipe()
            self.assertEqual(self.engine.prefix(request, prompt), 4)
            self.assertTrue(self.engine.load(request, prompt).ok)
            self.assertTrue(self.engine.holds(prompt))

    def test_drain_in_an_engine_with_more_than_a_thousand_descriptors(self):
        open_more_than_a_thousand(self)
        engine = Engine(self, self.server.endpoint)
        prompt = keys_of("many", 32)
        engine.fill(prompt, range(32))
        engine.transfers.store(engine.job(), prompt, range(32))
        engine.transfers.drain()
        self.assertTrue(engine.transfers.ended()[0].ok)

    def test_drain_ends_with_no_copy_under_way(self):
        prompt = keys_of("a", 32)
        self.engine.fill(prompt, range(32))
        for at in range(0, 32, 4):
            self.engine.transfers.store(self.engine.job(), prompt[at : at + 4], range(at, at + 4))
        self.engine.transfers.drain()
        self.engine.wipe()
        ended = self.engine.transfers.ended()
        self.assertEqual((len(ended), {end.ok for end in ended}), (8, {True}))
        self.assertTrue(self.engine.transfers.is_idle())
        self.assertEqual(self.engine.prefix("r", prompt), 32)
        self.assertTrue(self.engine.load("r", prompt).ok)
        self.assertTrue(self.engine.holds(prompt))


class Asking(Case):
    def test_a_prefix_with_a_gap_is_one_question(self):
        prompt = keys_of("a", 6)
        self.engine.store(prompt[:3] + prompt[4:])
        self.assertEqual(self.engine.prefix("r", prompt), 3)
        self.assertEqual(self.engine.counts["lookups"], 1)

    def test_keys_behind_a_gap_are_known_with_the_others(self):
        prompt = keys_of("w", 40)
        there = set(prompt[10:20]) | {prompt[0]}
        self.engine.store([key for key in prompt if key in there])
        backwards = prompt[::-1]  # as vLLM looks for a window
        found = self.engine.known("r", backwards)
        self.assertEqual({key for key, hit in found.items() if hit}, there)
        self.assertEqual((self.engine.counts["lookups"], self.engine.counts["lookup_keys"]), (1, 40))
        self.assertEqual(self.engine.counts["hit_keys"], 11)
        window = backwards[20:30]
        self.engine.wipe()
        self.assertTrue(self.engine.load("r", window).ok)
        self.assertTrue(self.engine.holds(window))

    def test_all_requests_of_a_step_ask_in_one_frame(self):
        before, start = self.engine.client.stats()["frames_sent"], time.monotonic()
        for request in "abcdefgh":
            self.engine.ask(request, keys_of(request, 16)[::-1])
        self.engine.lookups.flush()
        self.assertTrue(self.engine.client.step_wait(60000000))
        self.assertIn(self.engine.client.stats()["frames_sent"] - before, range(1, 2 + pings(start)))
        self.assertEqual((self.engine.counts["lookups"], self.engine.counts["lookup_keys"]), (8, 128))
        self.assertEqual(set(self.engine.ask("a", keys_of("a", 16)).values()), {False})

    def test_more_keys_than_a_question_may_have_are_two(self):
        prompt = keys_of("many", lookups.MAX_KEYS + 2)
        self.engine.store(prompt[-3:])
        found = self.engine.known("r", prompt)
        self.assertEqual([key for key in prompt if found[key]], prompt[-3:])
        self.assertEqual((self.engine.counts["lookups"], self.engine.counts["lookup_errors"]), (2, 0))
        self.assertTrue(self.engine.load("r", prompt[-3:]).ok)
        self.assertTrue(self.engine.holds(prompt[-3:]))

    def test_what_was_found_is_given_back_when_the_request_ends_or_is_scheduled(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        for end in (lambda: self.engine.lookups.finished("r"), lambda: self.engine.lookups.scheduled(["r"])):
            self.assertEqual(self.engine.prefix("r", prompt), 4)
            self.assertEqual(self.engine.client.stats()["live"], 1)
            end()
            self.assertEqual(self.engine.client.stats()["live"], 0)
            wait_for(lambda: self.server.counter("sessions") == 0, what="the session's end")

    def test_nothing_stays_when_all_that_was_found_is_copied(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        self.engine.prefix("r", prompt)
        self.engine.load("r", prompt[:2], [0, 1])
        self.assertEqual(self.engine.client.stats()["live"], 1)
        self.engine.load("r", prompt[2:], [2, 3])
        self.assertEqual(self.engine.client.stats()["live"], 0)

    def test_a_request_that_ends_while_its_copies_run_ends_its_lookup_behind_them(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        self.engine.prefix("r", prompt)
        job = self.engine.start_load("r", prompt, range(4))
        self.engine.lookups.finished("r")
        self.assertEqual(self.engine.client.stats()["live"], 1)
        self.assertTrue(self.engine.end_of(job).ok)
        self.assertEqual(self.engine.client.stats()["live"], 0)

    def test_a_lookup_that_finds_nothing_ends_at_once(self):
        self.assertEqual(self.engine.prefix("r", keys_of("never", 4)), 0)
        self.assertEqual(self.engine.client.stats()["live"], 0)

    def test_a_request_that_ends_before_its_question_is_sent_asks_nothing(self):
        self.engine.ask("r", keys_of("a", 4))
        self.engine.lookups.finished("r")
        self.engine.lookups.flush()
        self.assertEqual(self.engine.counts["lookups"], 0)

    def test_a_key_whose_copy_failed_is_missing_until_the_request_ends(self):
        prompt = keys_of("a", 2)
        self.engine.store(prompt)
        self.assertEqual(self.engine.prefix("r", prompt), 2)
        self.server.kill()
        self.assertFalse(self.engine.load("r", prompt).ok)
        self.server.start()
        wait_for(lambda: self.engine.store(prompt).ok, what="a store at the new server")
        wait_for(lambda: self.engine.prefix(f"r{self.engine.job()}", prompt) == 2, what="hits at the new server")
        self.assertEqual(self.engine.prefix("r", prompt), 0)
        self.engine.lookups.scheduled(["r"])
        self.assertEqual(self.engine.prefix("r", prompt), 0)
        self.engine.lookups.finished("r")
        self.assertEqual(self.engine.prefix("r", prompt), 2)


class SmallPool(Case):
    keys = {"l1_bytes": "256Ki", "eviction": "lru", "max_promised": "256Ki"}

    def test_what_was_evicted_is_missing_and_what_is_found_has_its_bytes(self):
        for prompt in "abcdefgh":
            self.engine.store(keys_of(prompt, 8))
        survivors = 0
        for prompt in "abcdefgh":
            found = self.engine.known(prompt, keys_of(prompt, 8))
            hits = [key for key, hit in found.items() if hit]
            survivors += len(hits)
            self.engine.wipe()
            if hits:
                self.assertTrue(self.engine.load(prompt, hits).ok)
            self.assertTrue(self.engine.holds(hits))
            self.engine.lookups.finished(prompt)
        self.assertGreater(survivors, 0)
        self.assertLess(survivors, 64)
        self.assertEqual(set(self.engine.known("newest", keys_of("h", 8)).values()), {True})

    def test_what_each_engine_announces_equals_what_it_finds(self):
        own = [events.of_engine(SimpleNamespace(kv_events_config=self.told(True)), Event, "STORAGE", "LOCAL", KVScoutError) for _ in range(2)]
        engines = [Engine(self, self.server.endpoint, "events", events=each) for each in own]
        found = [keys_of(prompt, 4) for prompt in range(40)]
        everything = [key for keys in found for key in keys]
        for keys in found:
            engines[0].store(keys)
        engines[0].clear()
        for keys in found[:30]:
            engines[0].store(keys)
        for each, engine in zip(own, engines, strict=True):
            announced = set()
            known = {key for key, hit in engine.known("all", everything).items() if hit}
            engine.lookups.finished("all")
            self.assertTrue(0 < len(known) < len(everything), len(known))
            wait_for(lambda each=each, engine=engine, known=known, announced=announced: self.take(each, engine, announced) == known, "the same")

    def take(self, own, engine, announced):
        for event in own.take(engine.client):
            self.assertEqual((event.medium, event.locality, event.removal_expected), ("STORAGE", "LOCAL", True))
            (announced.difference_update if event.removed else announced.update)(event.keys)
        return announced

    @staticmethod
    def told(enabled):
        return SimpleNamespace(enable_kv_cache_events=enabled)

    def test_without_the_flag_there_are_no_events(self):
        for spec in (SimpleNamespace(), SimpleNamespace(kv_events_config=self.told(False))):
            self.assertIsNone(events.of_engine(spec, Event, "STORAGE", "LOCAL", KVScoutError))

    def test_what_was_touched_outlives_what_was_not(self):
        old = keys_of("old", 8)
        self.engine.store(old)
        self.engine.store(keys_of("later", 8))
        self.engine.lookups.touch(old)
        self.engine.lookups.flush()
        wait_for(lambda: (self.engine.lookups.flush(), self.engine.client.stats()["live"] == 0)[1], what="the touch")
        wait_for(lambda: self.server.counter("sessions") == 0, what="its end at the server")
        self.engine.store(keys_of("new", 24))
        self.assertEqual(self.engine.prefix("r", old), 8)
        self.assertEqual(self.engine.prefix("r2", keys_of("later", 8)), 0)


class Wishes(Case):
    keys = {"l1_bytes": "256Ki", "eviction": "lru", "max_promised": "256Ki"}

    def setUp(self):
        super().setUp()
        self.manager = Manager(self, self.engine, Watch(), None)

    def turn(self, *actions):
        """A request ends with @actions, and others fill the pool. Returns how many of its four keys are there."""
        prompt, counts = f"p{self.engine.job()}", self.engine.counts
        keys = keys_of(prompt, 4)
        self.manager.load(prompt, keys, *actions)
        wait_for(lambda: self.manager.step() or not self.manager.call("has_pending_work"), what="the end of its question")
        wait_for(lambda: self.manager.step() or self.engine.client.stats()["live"] == 0, what="its answer, and that of a touch")
        self.manager.load(f"others {prompt}", keys_of(f"others {prompt}", 32))
        again = self.manager.begin(f"again {prompt}")
        found = self.manager.lookup(again, keys)
        self.manager.call("on_request_finished", again)
        return len(found)

    def test_a_request_is_kept_or_let_go_after_its_end(self):
        self.assertEqual(self.turn(), 0)
        self.assertEqual(self.turn(("kv.retain", {"ttl_seconds": 60})), 4)
        self.assertEqual(self.turn(("kv.retain", {"ttl_seconds": 60}), ("kv.evict", {})), 0)
        self.assertEqual(self.turn(("kv.retain", {"ttl_seconds": 60, "block_hashes": [7]}), ("kv.share", {})), 0)
        counts = {name: n for name, n in self.engine.counts.items() if name == "keeps" or name.startswith("wishes_")}
        self.assertEqual(counts, {"keeps": 1, "wishes_accepted": 3, "wishes_clipped": 0, "wishes_rejected": 1, "wishes_unknown": 1})
        self.assertEqual([self.server.counter(f"hints.{hint}") for hint in ("likely", "unlikely")], [1, 1])

    def test_it_is_asked_for_only_after_its_last_store(self):
        request, keys = self.manager.begin("r", ("kv.retain", {"ttl_seconds": 60})), keys_of("r", 4)
        for at in (0, 2):
            self.manager.job("submit_store", request, keys[at : at + 2], [at, at + 1])
        self.manager.call("on_request_finished", request)
        while self.manager.jobs:
            self.assertFalse(self.engine.lookups.has_wishes())
            self.manager.ended(None)
        self.assertTrue(self.manager.call("has_pending_work"))
        wait_for(lambda: self.manager.step() or self.server.counter("keeps.accepted"), what="the keep")
        self.manager.call("on_request_finished", self.manager.begin("none", ("kv.fetch", {})))
        self.assertFalse(self.manager.call("has_pending_work"))

    def test_a_reset_forgets_what_is_wished(self):
        request = self.manager.begin("r", ("kv.retain", {"ttl_seconds": 60}))
        self.manager.job("submit_store", request, keys_of("r", 4), list(range(4)))
        self.manager.call("on_request_finished", request)
        self.manager.reset()
        self.assertFalse(self.manager.call("has_pending_work"))
        self.assertEqual(self.engine.counts["keeps"], 0)


class FewPromises(Case):
    keys = {"l1_bytes": "1Mi", "max_promised": "64Ki"}

    def test_a_request_does_not_wait_for_what_others_keep_promised(self):
        prompt = keys_of("a", 16)
        self.engine.store(prompt)
        self.assertEqual(sum(self.engine.known("r1", prompt).values()), 8)
        self.assertEqual(sum(self.engine.known("r2", keys_of("a", 16)[8:]).values()), 0)
        self.assertEqual(self.engine.counts["lookup_errors"], 0)
        self.engine.lookups.finished("r1")
        wait_for(lambda: self.server.counter("sessions") == 0, what="the end of the session")
        self.assertEqual(sum(self.engine.known("r3", prompt[8:]).values()), 8)


class Servers(Case):
    def test_a_killed_server_costs_hits_and_its_successor_is_used(self):
        prompt = keys_of("a", 8)
        self.engine.store(prompt)
        self.assertEqual(self.engine.prefix("r", prompt), 8)
        self.server.kill()
        self.engine.wipe()
        end = self.engine.load("r", prompt)
        self.assertFalse(end.ok)
        self.assertTrue(self.engine.holds(end.keys, [prompt.index(key) for key in end.keys]))
        asked = self.engine.counts["lookups"]
        self.assertEqual(set(self.engine.known("r2", prompt).values()), {False})
        self.assertEqual(self.engine.counts["lookups"], asked + 1)  # and none for each key
        self.assertFalse(self.engine.store(prompt).ok)
        self.server.start()
        wait_for(lambda: self.engine.store(prompt).ok, what="a store at the new server")
        wait_for(lambda: self.engine.prefix(f"r{self.engine.job()}", prompt) == 8, what="hits at the new server")
        request = f"r{self.engine.job()}"
        self.assertEqual(self.engine.prefix(request, prompt), 8)
        self.engine.wipe()
        self.assertTrue(self.engine.load(request, prompt).ok)
        self.assertTrue(self.engine.holds(prompt))

    def test_jobs_under_way_end_when_the_server_is_killed(self):
        prompt = keys_of("a", ROWS)
        self.engine.fill(prompt, range(ROWS))
        jobs = [self.engine.job() for _ in range(16)]
        for number, job in enumerate(jobs):
            self.engine.transfers.store(job, prompt[number * 4 : number * 4 + 4], range(number * 4, number * 4 + 4))
        self.server.kill()
        self.engine.transfers.drain()
        self.assertEqual({end.job_id for end in self.engine.transfers.ended()}, set(jobs))
        self.assertTrue(self.engine.holds(prompt))  # a store changes nothing in vLLM's region

    def test_a_stopped_server_holds_up_no_request_and_no_drain(self):
        prompt = keys_of("a", 4)
        self.engine.store(prompt)
        self.server.freeze()
        self.engine.fill(prompt, range(4))
        self.engine.transfers.store(self.engine.job(), keys_of("b", 4), range(4))
        self.assertEqual(self.engine.prefix("r", prompt), 0)
        self.engine.transfers.drain()
        self.assertEqual(len(self.engine.transfers.ended()), 1)
        self.server.thaw()
        wait_for(lambda: self.engine.prefix(f"r{self.engine.job()}", prompt) == 4, what="hits")


class Watch:
    def look(self):
        """What the server says."""

    close = look


class Events:
    wants_step = False

    def describe(self, keys):
        return [bytes(key) for key in keys]

    def keep(self, keys):
        """Keys of a store or load."""

    read = keep

    def announce_anew(self):
        """After a reset."""

    def take(self, client):
        yield "an event"


# Without these it is not known what is in the region or in the pool.
ENDS_ALL = {"poll", "clear", "forget_all", "drain", "get_stats"}


class Faults(Case):
    """Whatever raises in a hook of vLLM, each job is reported once, no key is unknown for ever, and what was copied has its bytes."""

    def make(self):
        engine = Engine(self, self.server.endpoint, events=Events())
        return Manager(self, engine, Watch(), engine.transfers._events)

    def life(self, manager, prompt):
        keys = keys_of(prompt, 4)
        for name in "abcd":
            manager.engine.lookups.samples.rate = name == "d"  # it is computed and compared
            manager.load(name, keys, ("kv.retain", {"ttl_seconds": 60}))
            manager.step()
        ends = manager.begin("ends")  # while its copies run
        found = manager.lookup(ends, keys)
        if found:
            number = manager.job("submit_load", ends, found, list(range(8, 8 + len(found))))
            manager.call("on_request_finished", ends)
            manager.wait(number)
        manager.job("submit_store", manager.begin("e"), keys_of(prompt + "d", 4), list(range(12, 16)))
        manager.reset()
        manager.load("e", keys)

    def test_no_hook_lets_an_exception_out(self):
        manager = self.make()
        self.life(manager, "reference")
        self.works(manager, "reference")
        self.assertEqual(manager.engine.counts["hook_errors"], 0)
        for at in manager.calls.seen:
            for times in (1, 1000000) if at[2] != "ended" else (1,):  # which has nothing in it that could fail
                with self.subTest(at=at, times=times):
                    self.one(at, times)

    def one(self, at, times):
        manager, prompt = self.make(), f"{at} {times}"
        manager.calls.fails, manager.calls.times = at, times
        with self.assertLogs("vllm.kvscout", "WARNING") as log:  # some calls come only if an answer is late
            wait_for(lambda: self.life(manager, prompt) or manager.calls.times < times, what="the call")
        self.assertGreaterEqual(manager.engine.counts["hook_errors"], 1)
        self.assertEqual(len([line for line in log.output if " failed at vllm_rig.py:" in line]), 1, log.output)
        if times == 1 and at[2] not in ENDS_ALL:
            self.works(manager, prompt)

    def works(self, manager, prompt):
        wait_for(lambda: manager.load(f"r{manager.engine.job()}", keys_of(prompt, 4)), what="a load")

    def test_each_hook_is_one_or_named_here(self):
        own = {name: what for name, what in vars(type(self.make().tier)).items() if not name.startswith("_") and callable(what)}
        self.assertEqual({name for name, what in own.items() if not hasattr(what, "__wrapped__")}, {"shutdown", "config_info"})


def other_row(key):
    return bytes(range(256)) * (ROW_BYTES // 256)


class Comparing(Case):
    """Requests whose hits are computed, and compared when they come to be stored."""

    def make(self, **keys):
        engine = Engine(self, self.server.endpoint, events=Events())
        engine.lookups.samples = Samples(1)
        self.manager, self.keys, self.counts = Manager(self, engine, Watch(), engine.transfers._events, **keys), keys_of(f"s{keys}", 4), engine.counts
        for name, copied in (("stores", 0), ("first", 4)):  # the first hit is no sample
            self.assertEqual(self.manager.load(name, self.keys), copied)

    def verified(self):
        self.assertEqual((self.counts["hook_errors"], self.manager.engine.lookups._requests), (0, {}))
        return tuple(self.counts[f"verify_{name}"] for name in ("samples", "mismatches", "chunks"))

    def load_other(self, n):
        with mock.patch("tier_rig.row_of", other_row):
            self.assertEqual([self.manager.load(f"other{i}", self.keys) for i in range(n)], [0] * n)

    def test_a_sample_finds_nothing_and_what_it_stores_is_compared(self):
        self.make()
        present = self.counts["present_chunks"]
        self.assertEqual(self.manager.load("sample", self.keys), 0)
        self.assertEqual((self.verified(), self.counts["present_chunks"]), ((1, 0, 4), present))
        more = [*self.keys, *keys_of("new", 2)]  # stored beside it
        self.assertEqual(self.manager.load("longer", more), 0)
        self.assertEqual((self.verified(), self.counts["stored_chunks"]), ((2, 0, 8), 6))

    def test_three_mismatches_make_the_tier_inert_until_a_reset(self):
        self.make()
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            self.load_other(3)
        self.assertEqual(self.verified(), (3, 3, 12))
        self.assertRegex(log.output[0], "namespace tier, request other0, chunk .*all layers: error .* stored it at")
        self.assertIn("kvscout tier: this engine is inert", log.output[-1])
        self.assertEqual(self.manager.load("none", self.keys), 0)
        self.assertEqual(self.verified(), (3, 3, 12))
        self.manager.reset()
        self.assertEqual([self.manager.load(name, self.keys) for name in ("anew", "loads")], [0, 4])

    def test_with_log_it_only_says_so(self):
        self.make(mismatches_make_inert=False)
        self.load_other(4)
        self.assertEqual((self.verified(), self.manager.tier._is_out), ((4, 4, 16), False))

    def test_a_request_is_one_sample_however_often_it_stores(self):
        self.make()
        for name, computes in (("right", tier_rig.row_of), ("wrong", other_row)):
            request = self.manager.begin(name)
            self.assertEqual(self.manager.lookup(request, self.keys), [])
            with mock.patch("tier_rig.row_of", computes):
                for at in (0, 2):
                    self.manager.wait(self.manager.job("submit_store", request, self.keys[at : at + 2], [at, at + 1]))
            self.manager.call("on_request_finished", request)
        self.assertEqual(self.verified(), (2, 1, 8))

    def test_a_reset_between_lookup_and_store_leaves_nothing_to_compare(self):
        self.make()
        request = self.manager.begin("sample")
        self.assertEqual(self.manager.lookup(request, self.keys), [])
        self.manager.reset()
        self.manager.wait(self.manager.job("submit_store", request, self.keys, list(range(4))))
        self.manager.call("on_request_finished", request)
        self.assertEqual(self.verified(), (0, 0, 0))

    def test_only_rows_of_one_kind_of_numbers_are_compared(self):
        for dtype, specs, found in (
            ("bfloat16", ("FullAttentionSpec", "SlidingWindowSpec"), "bfloat16"), ("fp8", ("FullAttentionSpec",), "float8_e4m3fn"),
            ("fp8_ds_mla", ("MLAAttentionSpec",), None), ("bfloat16", ("FullAttentionSpec", "MambaSpec"), None), ("bfloat16", (), None),
        ):
            groups = [SimpleNamespace(kv_cache_spec=type(name, (), {})()) for name in specs]
            own = SimpleNamespace(model=SimpleNamespace(dtype=dtype))
            self.assertEqual(namespace.element(own, SimpleNamespace(kv_cache_groups=groups)), found)


class TwoEngines(Case):
    def test_one_stores_and_the_other_loads(self):
        other = Engine(self, self.server.endpoint)
        prompt = keys_of("shared", 8)
        self.engine.store(prompt)
        self.assertEqual(other.prefix("r", prompt), 8)
        places = list(range(20, 28))
        self.assertTrue(other.load("r", prompt, places).ok)
        self.assertTrue(other.holds(prompt, places))

    def test_another_namespace_shares_nothing(self):
        self.engine.store(keys_of("a", 4))
        self.assertEqual(Engine(self, self.server.endpoint, namespace="other").prefix("r", keys_of("a", 4)), 0)

    def test_a_reset_of_one_keeps_the_other_out_until_its_own(self):
        other = Engine(self, self.server.endpoint)
        before, after = keys_of("before", 4), keys_of("after", 4)
        self.engine.store(before)
        self.assertTrue(other.store(keys_of("joined", 4)).ok)  # its worker has said HELLO: one that comes after the clear is in
        self.assertEqual(other.prefix("r", before), 4)
        self.engine.clear()
        self.assertEqual(self.engine.prefix("r", before), 0)
        self.assertTrue(self.engine.store(after).ok)
        old = keys_of("old weights", 4)
        self.assertFalse(other.store(old).ok)
        self.assertEqual(self.engine.prefix("r2", old), 0)
        other.wipe()
        other.known("r2", after)
        self.assertFalse(other.load("r2", after).ok)
        self.assertFalse(any(other.region))
        other.clear()
        wait_for(lambda: other.store(keys_of("new", 2)).ok, what="a store in the new generation")

    def test_a_reset_to_the_next_number_keeps_the_other_out_until_its_own(self):
        first, other = (Engine(self, self.server.endpoint, namespace="numbers", weights_version=1) for _ in range(2))
        first.store(keys_of("a", 4))
        self.assertEqual(other.prefix("r", keys_of("a", 4)), 4)
        first.reset(2)
        wait_for(lambda: first.store(keys_of("b", 4)).ok, what="a store with number 2")
        self.assertEqual(first.prefix("r", keys_of("a", 4)), 0)
        self.assertFalse(other.store(keys_of("c", 4)).ok)
        self.assertEqual(first.prefix("r2", keys_of("c", 4)), 0)
        other.reset(2)
        wait_for(lambda: other.prefix(f"r{other.job()}", keys_of("b", 4)) == 4, what="what the first one has stored")
        wait_for(lambda: other.store(keys_of("d", 4)).ok, what="a store of the second engine")
        self.assertEqual(first.prefix("r3", keys_of("d", 4)), 4)


if __name__ == "__main__":
    unittest.main()
