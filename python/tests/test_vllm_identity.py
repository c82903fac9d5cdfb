# SPDX-License-Identifier: Apache-2.0
"""Which engines have the same namespace, as far as it shows without vLLM: what counts of a configuration and of a loaded model.
Tensors are stand-ins; `./dev engine identity` runs engines."""

import dataclasses
import enum
import os
import subprocess
import sys
import tempfile
import time
import types
import unittest
from types import SimpleNamespace
from unittest import mock

from kvscout.vllm import identity, internals, loaded, refusals
from vllm_rig import modules_of_vllm


class Hf:
    model_type = "tiny"

    def __init__(self, **more):
        self.__dict__.update({"_name_or_path": "/a", "transformers_version": "5.0", "hidden_size": 8, **more})


@dataclasses.dataclass
class ModelConfig:
    """Some of vLLM's fields, and one that it does not have yet."""

    model: str = "/models/one"
    max_model_len: int = 2048
    seed: int = 0
    revision: str | None = None
    dtype: str = "bfloat16"
    hf_config: object = dataclasses.field(default_factory=Hf)
    override_generation_config: dict = dataclasses.field(default_factory=dict)
    quantization: str | None = None
    of_next_year: object = 1

    def try_get_generation_config(self):
        return {"temperature": 1.0}


def model(**more):
    return identity.digest(identity.of_model(ModelConfig(**more)))


class Configuration(unittest.TestCase):
    def test_what_is_harmless_does_not_count(self):
        for more in ({"model": "/models/copy"}, {"max_model_len": 8192}, {"seed": 7}, {"revision": "main"}):
            self.assertEqual(model(), model(**more), more)

    def test_all_else_counts_and_a_field_that_nobody_knows_too(self):
        for more in ({"dtype": "float16"}, {"override_generation_config": {"attn_temperature_tuning": True}}, {"quantization": "fp8"},
                     {"of_next_year": 2}):
            self.assertNotEqual(model(), model(**more), more)

    def test_all_of_the_models_configuration_counts_as_it_is_when_loaded(self):
        self.assertEqual(model(), model(hf_config=Hf(_name_or_path="/b", transformers_version="5.1", _commit_hash="c0ffee")))
        for more in ({"hidden_size": 16}, {"attn_temperature_tuning": True}, {"rope_parameters": {"rope_theta": 5e5}}):
            self.assertNotEqual(model(), model(hf_config=Hf(**more)), more)

    def test_the_generation_config_counts_by_its_content(self):
        with mock.patch.object(ModelConfig, "try_get_generation_config", lambda self: {"attn_temperature_tuning": True}):
            tuned = model()
        self.assertNotEqual(model(), tuned)

    def test_what_cannot_be_compared_is_unidentified(self):
        for value in (lambda: None, object(), os.getcwd):
            with self.assertRaisesRegex(identity.Unidentified, "cannot be compared"):
                model(of_next_year=value)

    def test_the_image_processor_counts_where_there_are_images(self):
        hf = SimpleNamespace(__version__="5.0")
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sys.modules, {"transformers": hf}):
            path = os.path.join(folder, "preprocessor_config.json")
            found = []
            for text in ("{}", '{"size": 7}'):
                with open(path, "w") as file:
                    file.write(text)
                with mock.patch.object(loaded, "start_of_this_process", lambda: time.time() + 60):
                    found.append(identity._images(SimpleNamespace(model=folder, multimodal_config=1)))
            with mock.patch.object(loaded, "start_of_this_process", lambda: 0), self.assertRaises(identity.Unidentified):
                identity._images(SimpleNamespace(model=folder, multimodal_config=1))
        self.assertNotEqual(*found)
        self.assertIsNone(identity._images(ModelConfig()))

    def test_a_model_of_a_hub_is_told_by_its_commit(self):
        hub, remote = mock.MagicMock(), SimpleNamespace(model="org/model", hf_config=SimpleNamespace(), revision="main")
        with mock.patch.dict(sys.modules, {"huggingface_hub": hub}):
            hub.snapshot_download.return_value = "/hub/models--org--model/snapshots/c0ffee"
            self.assertEqual(identity.commit(remote), "c0ffee")
            remote.hf_config._commit_hash = "c0ffee"
            self.assertEqual(identity.commit(remote), "c0ffee")
            remote.hf_config._commit_hash = "decaf"  # the branch moved between configuration and weights
            self.assertRaisesRegex(identity.Unidentified, "of the commit decaf, and the hub's cache is at c0ffee", identity.commit, remote)
            hub.snapshot_download.side_effect = FileNotFoundError
            self.assertRaisesRegex(identity.Unidentified, "whose commit is known", identity.commit, remote)

    def test_what_json_cannot_write_is_the_same_in_each_process(self):
        code = "from kvscout.vllm import identity as i; import pathlib"
        code += "; print(i.digest(i.plain({'b': {3, 1}, 'a': (1.5, pathlib.Path('x')), 1: None})))"
        runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)}
        self.assertEqual(len(runs), 1)

    def test_each_variable_counts_but_those_that_the_table_calls_harmless(self):
        def of(**variables):
            with mock.patch.dict(os.environ, variables, clear=True):
                return identity.of_environment()

        rank = {"VLLM_DP_RANK": "1", "VLLM_DP_RANK_LOCAL": "1", "VLLM_DP_SIZE": "2", "VLLM_DP_MASTER_PORT": "5"}
        own = {"VLLM_DIST_IDENT": "50211", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME": "vllm_mm_A", "VLLM_HOST_IP": "10.0.0.2"}
        pod = {"VLLM_SERVICE_HOST": "10.3.0.1", "VLLM_ROUTER_PORT_80_TCP": "tcp://10.3.0.2:80", "VLLM_ROUTER_PORT_80_TCP_ADDR": "10.3.0.2"}
        self.assertEqual(of(**rank, **own, **pod, VLLM_LOGGING_LEVEL="DEBUG", VLLM_CACHE_ROOT="/c", HOME="/root", NCCL_DEBUG="INFO"), {})
        for name in (
            "BATCH_INVARIANT", "MOE_ROUTING_SIMULATION_STRATEGY", "MARLIN_INPUT_DTYPE", "HUMMING_USE_F16_ACCUM", "CPU_INT4_W4A8",
            "NEW_THING", "MLA_DISABLE", "MAX_LORA_RANK", "LOGITS", "PORTABLE",
        ):
            self.assertEqual(of(**{f"VLLM_{name}": "1"}, **rank), {f"VLLM_{name}": "1"})
        for name in ("AITER_BF16_FP8_MOE_BOUND", "FLA_TRIL_PRECISION", "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE"):
            self.assertEqual(of(**{name: "0"}), {name: "0"})

    def test_versions_share_within_a_minor_one(self):
        found = [internals.minor_version(version) for version in ("0.32.0", "0.32.1+cpu", "0.33.0rc1", "1.0.0")]
        self.assertEqual(found, ["0.32", "0.32", "0.33", "1.0"])


class Backend(enum.Enum):
    FLASH = 1


class Module:
    """As torch.nn.Module, in what is read of it."""

    def __init__(self, children=(), tensors=(), **attributes):
        self._parameters, self._buffers, self.children = dict(tensors), {}, dict(children)
        self.__dict__.update(attributes)

    def named_modules(self, path=""):
        yield path, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{path}.{name}" if path else name)


class LongRope(Module):
    pass


class OtherRope(Module):
    pass


def tensor(content, numel=1):
    return SimpleNamespace(content=content, numel=lambda: numel)


def runner(rope=None, weight="w", draft=None, **attention):
    impl = SimpleNamespace(scale=1.0)
    layer = Module({"rotary": rope or LongRope(use_long_rope=False)}, {"weight": tensor(weight)}, impl=impl, **attention)
    root = Module({"layer": layer})
    return SimpleNamespace(get_model=lambda: root, get_draft_model=lambda: draft, layer=layer)


LOAD = SimpleNamespace(load_format="auto", download_dir=None)


def of_runner(found, layers=None, **config):
    spec = SimpleNamespace(layer_names=["layer", "of another stage"])
    layers = {"layer": found.layer} if layers is None else layers
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(model="/nowhere", hf_config=None), load_config=LOAD,
        compilation_config=SimpleNamespace(static_forward_context=layers), **config,
    )
    with mock.patch.object(loaded, "of_tensor", lambda tensor: tensor.content):
        return loaded.of_runner(found, vllm_config, SimpleNamespace(kv_cache_groups=[spec]), loaded.Packed())


class Loaded(unittest.TestCase):
    def test_two_starts_are_the_same_and_what_compiling_left_does_not_count(self):
        self.assertEqual(of_runner(runner()), of_runner(runner()))
        self.assertEqual(of_runner(runner()), of_runner(runner(compiled=True, was_aot_compile_fn_loaded_from_disk=True)))

    def test_rope_attention_scales_and_weights_count(self):
        for other in (
            runner(LongRope(use_long_rope=True)), runner(OtherRope(use_long_rope=False)),
            runner(LongRope(use_long_rope=False, factors=[1.0, 2.0])),
            runner(weight="v"), runner(_k_scale_float=2.0), runner(backend=Backend.FLASH), runner(window=(1, None)),
        ):
            self.assertNotEqual(of_runner(runner()), of_runner(other))
        scaled = runner()
        scaled.layer.impl.scale = 0.5
        self.assertNotEqual(of_runner(runner()), of_runner(scaled))

    def test_a_rope_that_other_requests_rescale_is_the_engines_own(self):
        for rope_type in ("dynamic", "longrope", {"full": "default", "local": "dynamic"}):
            with self.assertRaisesRegex(identity.Unidentified, "scaled anew when a longer request comes"):
                of_runner(runner(OtherRope(rope_type=rope_type, max_seq_len_cached=64)))
        of_runner(runner(OtherRope(rope_type="default", max_seq_len_cached=64)))

    def test_layers_that_no_model_shows_are_the_engines_own(self):
        with self.assertRaisesRegex(identity.Unidentified, "the layer layer is in no model"):
            of_runner(runner(), layers={"layer": Module()})
        with self.assertRaisesRegex(identity.Unidentified, "was not found"):
            loaded.of_runner(None, None, None, None)

    def test_guesses_from_the_tokens_alone_count_for_nothing(self):
        for method, counts in (("ngram", False), ("ngram_gpu", False), ("suffix", False), ("eagle", True), ("draft_model", True), ("mtp", True)):
            found = SimpleNamespace(speculative_config=SimpleNamespace(method=method))
            self.assertEqual(identity.speculation(found) is not None, counts, method)
        self.assertIsNone(identity.speculation(SimpleNamespace(speculative_config=None)))

    def test_a_draft_counts_too(self):
        speculative = SimpleNamespace(draft_model_config=None)
        found = [of_runner(runner(draft=draft), speculative_config=speculative) for draft in (Module(), OtherRope())]
        self.assertNotEqual(*found)

    def test_code_from_elsewhere_counts_by_its_file(self):
        file = self.enterContext(tempfile.NamedTemporaryFile("w", suffix=".py"))
        with mock.patch.dict(sys.modules, {"plugin": SimpleNamespace(__file__=file.name)}):
            kind = type("Model", (), {"__module__": "plugin"})
            before = loaded._sources({kind})
            file.write("x = 1\n")
            file.flush()
            self.assertNotEqual(loaded._sources({kind}), before)
        self.assertEqual(loaded._sources({type("Model", (), {"__module__": "vllm.models.llama"})}), [])
        self.assertRaises(identity.Unidentified, loaded._sources, {type("Model", (), {"__module__": "typed in"})})


class Files(unittest.TestCase):
    """Where weights cannot be read from memory."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.path = os.path.join(self.folder, "model.safetensors")

    def write(self, text):
        with open(self.path, "w") as file:
            file.write(text)

    def test_they_count_by_their_content(self):
        self.write("one")
        before = loaded.of_folder(self.folder, time.time() + 60)
        self.write("two")
        self.assertNotEqual(loaded.of_folder(self.folder, time.time() + 60), before)
        self.write("one")
        self.assertEqual(loaded.of_folder(self.folder, time.time() + 60), before)

    def test_what_was_written_since_the_process_began_is_the_engines_own(self):
        began = time.time() - 60
        with self.assertRaisesRegex(identity.Unidentified, "has no weights"):
            loaded.of_folder(self.folder, began)
        self.write("one")
        os.utime(self.path, (1, 1))  # a copy keeps its old time, and shows when it was made all the same
        os.utime(self.folder, (1, 1))
        with self.assertRaisesRegex(identity.Unidentified, "written, moved or linked after this process began"):
            loaded.of_folder(self.folder, began)

    def test_a_process_knows_to_the_moment_when_it_began(self):
        """A model that was copied just before the start is the one that was loaded."""
        before = time.time()
        call = "from kvscout.vllm import loaded; print(loaded.start_of_this_process())"
        began = float(subprocess.run([sys.executable, "-c", call], check=True, capture_output=True).stdout)
        self.assertTrue(before - 0.02 <= began <= time.time(), began - before)

    def test_so_is_what_was_moved_or_linked_since(self):
        """The loader opened what the path was then. Each of these ends with other weights at the path, and none of them written lately."""
        def make(*parts):
            path = os.path.join(self.folder, *parts)
            os.makedirs(path)
            self.path = os.path.join(path, "model.safetensors")
            self.write("/".join(parts))

        def link(to, at):
            os.symlink(to, os.path.join(self.folder, at))

        def swap(one, other):
            one, other = (os.path.join(self.folder, name) for name in (one, other))
            os.rename(one, one + ".old")
            os.rename(other, one)

        for n, (path, change) in enumerate((
            ("link", lambda: swap("link", "next")), ("above/../link", lambda: swap("link", "next")),
            ("above/inner", lambda: swap("above", "new")), ("to/inner", lambda: swap("above", "new")), ("one", lambda: swap("one", "two")),
            ("one", lambda: os.remove(os.path.join(self.folder, "one", "model.safetensors"))),
        )):
            with self.subTest(path=path, n=n), tempfile.TemporaryDirectory() as quiet:
                self.folder = os.path.join(quiet, "folder")  # others are busy around @quiet
                for parts in (("one",), ("two",), ("above", "inner"), ("new", "inner")):
                    make(*parts)
                    with open(os.path.join(self.folder, *parts, "other.pt"), "w"):
                        pass
                link("one", "link")
                link(os.path.join(self.folder, "two"), "next")
                link("above", "to")
                began = time.time()
                while os.stat(self.folder).st_mtime >= began:
                    began = time.time()
                before = loaded.of_folder(os.path.join(self.folder, path), began)
                with open(os.path.join(self.folder, "beside"), "w"):
                    pass  # the folder around it may be busy
                self.assertEqual(loaded.of_folder(os.path.join(self.folder, path), began), before)
                os.remove(os.path.join(self.folder, "beside"))
                change()
                os.utime(self.folder, (1, 1))  # as rsync does
                with self.assertRaisesRegex(identity.Unidentified, "may not be what was loaded"):
                    loaded.of_folder(os.path.join(self.folder, path), began)

    def test_an_empty_parameter_leads_to_them_and_random_weights_are_the_engines_own(self):
        moved = runner()
        moved.layer._parameters["weight"] = tensor("", 0)
        with self.assertRaisesRegex(identity.Unidentified, "/nowhere is neither a local folder"):
            with mock.patch.dict(sys.modules, {"huggingface_hub": None}):
                of_runner(moved)
        with self.assertRaisesRegex(identity.Unidentified, "random"):
            loaded.files(None, SimpleNamespace(load_format="dummy"))
        with self.assertRaisesRegex(identity.Unidentified, "from elsewhere than the model's files"):
            loaded.files(SimpleNamespace(model_weights="s3://bucket"), LOAD)
        for load_format in ("runai_streamer", "of_a_plugin"):
            with self.assertRaisesRegex(identity.Unidentified, load_format):
                loaded.files(SimpleNamespace(), SimpleNamespace(load_format=load_format))
        with self.assertRaisesRegex(identity.Unidentified, "not in the files of the model"):
            loaded.files(SimpleNamespace(), LOAD, SimpleNamespace(secondary_weights=["colbert.pt"]))

    def test_files_stand_for_them_until_vllm_packs_others(self):
        """Which it does in new functions of the modules."""
        moved, packed, read = runner(), loaded.Packed(), []
        moved.layer._parameters["weight"] = tensor("", 0)
        moved.layer.cpu_linear = lambda x: x
        modules = [("layer", moved.layer)]

        def look():
            return packed.read(modules, lambda: read.append(1) or "files")

        self.assertEqual([look(), look(), len(read)], ["files", "files", 1])
        moved.layer.cpu_linear = lambda x: x
        with self.assertLogs("vllm.kvscout", "WARNING") as log:
            own = look()
        self.assertIn("new weights cannot be read from memory", log.output[0])
        self.assertEqual(look(), own)
        moved.layer.cpu_linear = lambda x: x
        self.assertNotIn(look(), (own, "files"))


class Engines(unittest.TestCase):
    @staticmethod
    def config(dtype="auto"):
        return SimpleNamespace(cache_config=SimpleNamespace(cache_dtype=dtype), parallel_config=SimpleNamespace())

    def worker(self, dtype="auto"):
        with mock.patch.object(identity, "of_config", lambda *_: {}), mock.patch.object(loaded, "of_runner", lambda *_: 1):
            return identity.Worker(self.config(dtype), None).find()

    def test_kv_with_scales_that_only_the_engine_knows_is_its_own(self):
        (same, why), (again, _) = self.worker(), self.worker()
        self.assertEqual((same, why), (again, None))
        for dtype in ("fp8_inc", "fp7_of_next_year", "fp8x"):
            (one, why), (other, _) = self.worker(dtype), self.worker(dtype)
            self.assertNotEqual(one, other)
            self.assertIn(f"KV of type {dtype} has scales", why)

    def test_the_layout_of_the_kv_memory_counts(self):
        """A slot holds a block's bytes as they lie, so another layout is other bytes for the same tokens."""
        modules = modules_of_vllm()
        modules["vllm"].__version__ = "0.32.0"
        engine = self.config()
        engine.model_config, engine.cache_config.prefix_caching_hash_algo = None, "sha256_cbor"
        engine.parallel_config.tensor_parallel_size = engine.parallel_config.pipeline_parallel_size = 1
        group = SimpleNamespace(kv_cache_spec=SimpleNamespace(block_size=16), layer_names=["a", "b"])

        def name(layout):
            found = SimpleNamespace(kv_cache_groups=[group], kv_cache_layout=layout)
            with (
                mock.patch.dict(sys.modules, modules),
                mock.patch.object(identity, "of_model", lambda model: None),
                mock.patch.object(identity, "platform", lambda: None),
            ):
                return identity.digest(identity.of_config(engine, found))

        layouts = ("LBNHC", "LBHNC", "LHBNC", *refusals.BLOCK_LAYOUTS)
        self.assertEqual(len({name(layout) for layout in layouts}), 6)
        self.assertEqual(name("BLHNC"), name("BLHNC"))

    def test_a_model_whose_code_fails_is_the_engines_own(self):
        with mock.patch.object(identity, "of_config", lambda *_: 1 / 0):
            (one, why), (other, _) = (identity.Worker(self.config(), None).find() for _ in range(2))
        self.assertNotEqual(one, other)
        self.assertIn("ZeroDivisionError", why)

    def test_after_the_start_experts_of_other_replicas_are_not_known(self):
        """Each engine hears of its own workers only; the world has those of all."""
        engine = self.config()
        engine.parallel_config.world_size = 2
        for world, elastic, shared in ((2, False, True), (4, False, False), (2, True, False)):
            engine.parallel_config.enable_elastic_ep = elastic
            with (
                mock.patch.object(identity, "of_config", lambda *_: {}), mock.patch.object(loaded, "of_runner", lambda *_: 1),
                mock.patch.object(identity, "world", lambda: SimpleNamespace(world_size=world)),
            ):
                worker = identity.Worker(engine, None)
                self.assertEqual(worker.part() == worker.part(), shared)

    def test_the_parts_of_all_workers_count_in_the_order_of_their_ranks(self):
        def engine(*parts):
            world = SimpleNamespace(world_size=len(parts), cpu_group=None)
            state = types.ModuleType("parallel_state")
            state.get_world_group = lambda: world
            distributed = types.ModuleType("torch.distributed")
            distributed.all_gather_object = lambda found, own, group: found.__setitem__(slice(None), parts)
            torch = types.ModuleType("torch")
            torch.distributed = distributed
            modules = {"vllm": types.ModuleType("vllm"), "vllm.distributed": types.ModuleType("d"),
                       "vllm.distributed.parallel_state": state, "torch": torch, "torch.distributed": distributed}
            with mock.patch.dict(sys.modules, modules):
                return identity.of_engine(parts[0], self.config())

        self.assertEqual(engine("a", "b"), engine("a", "b"))
        self.assertEqual(len({engine("a", "b"), engine("b", "a"), engine("a", "a"), engine("a")}), 4)
        self.assertEqual([engine("a", None), engine(None, "b"), engine(None)], [None] * 3)  # of an inert worker; none waits for it

    def test_what_callers_hold_is_found(self):
        class Owner:
            model_config = 1

            def call(self):
                return identity.from_callers("self", lambda owner: hasattr(owner, "model_config"))

        owner = Owner()
        self.assertIs(owner.call(), owner)
        self.assertIsNone(identity.from_callers("self", lambda owner: hasattr(owner, "no such attribute")))


if __name__ == "__main__":
    unittest.main()
