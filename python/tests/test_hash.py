# SPDX-License-Identifier: Apache-2.0
"""hash_blocks: against what request objects of a real vLLM had (vllm_vectors.json, which tests/unit/hash/hash_vectors.py --from-vllm
printed), and against the independent implementation in that script. Wrong arguments, threads."""

import array
import hashlib
import importlib.util
import json
import pathlib
import random
import sys
import threading
import time
import unittest

import kvscout
from rig import wait_for

HERE = pathlib.Path(__file__).resolve().parent
REFERENCE = HERE.parent.parent / "tests" / "unit" / "hash" / "hash_vectors.py"


def hashes_of(tokens, block_tokens, **more):
    return [value.hex() for value in kvscout.hash_blocks(tokens, block_tokens, **more)]


def reference():
    """The module hash_vectors, with its vectors."""
    if not REFERENCE.exists():
        raise unittest.SkipTest("the repository is not around this file")
    spec = importlib.util.spec_from_file_location("hash_vectors", REFERENCE)
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SystemExit:
        raise unittest.SkipTest("cbor2 is not installed") from None
    module.fill()
    return module


class Vectors(unittest.TestCase):
    def test_request_objects_of_vLLM_have_these_hashes(self):
        recorded = json.loads((HERE / "vllm_vectors.json").read_text(encoding="ascii"))
        self.assertGreaterEqual(len(recorded["vectors"]), 70)
        for vector in recorded["vectors"]:
            tokens = [token for count, token in vector["runs"] for _ in range(count)]
            got = hashes_of(tokens, vector["block_tokens"], dialect=recorded["dialect"], seed=vector["seed"],
                            lora=vector["lora"] and tuple(vector["lora"]), mm=vector["mm"], salt=vector["salt"],
                            prompt_embeds=[bytes.fromhex(digest) for digest in vector["prompt_embeds"]])
            self.assertEqual(got, vector["hashes"], vector["name"])

    def test_the_independent_implementation_agrees_in_both_dialects(self):
        module = reference()
        for name, dialect, tokens, block, _, seed, lora, items, salt, embeds, hashes in module.VECTORS:
            step = block * module.EMBED_ROW
            digests = [hashlib.sha256(embeds[i : i + step]).digest() for i in range(0, len(embeds or b""), step)]
            got = kvscout.hash_blocks(tokens, block, dialect=dialect or "vllm-0.31", seed=seed, lora=lora, mm=items, salt=salt,
                                      prompt_embeds=digests)
            self.assertEqual(got, hashes, name)


class Tokens(unittest.TestCase):
    def test_every_kind_of_tokens_gives_the_same_hashes(self):
        tokens = [random.Random(7).randrange(1 << 31) for _ in range(100)]

        class OwnInt:
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        class OwnSequence:
            def __len__(self):
                return len(tokens)

            def __getitem__(self, i):
                return tokens[i]

        expected = kvscout.hash_blocks(tokens, 16)
        self.assertEqual([len(value) for value in expected], [32] * 6)
        kinds = [tuple(tokens), OwnSequence(), [OwnInt(token) for token in tokens]]
        kinds += [array.array(code, tokens) for code in "iIlLqQ"]
        kinds.append(memoryview(array.array("I", tokens)))
        try:
            import numpy
            kinds += [numpy.array(tokens, dtype) for dtype in ("int32", "uint32", "int64", "uint64", "<i4")]
            kinds.append(list(numpy.array(tokens, "int64")))
        except ImportError:
            pass
        for kind in kinds:
            with self.subTest(kind=repr(kind)[:40]):
                self.assertEqual(kvscout.hash_blocks(kind, 16), expected)

    def test_ids_reach_to_32_bits(self):
        high = [0xFFFFFFFF] * 4
        self.assertEqual(kvscout.hash_blocks(high, 4), kvscout.hash_blocks(array.array("I", high), 4))
        self.assertEqual(kvscout.hash_blocks(high, 4), kvscout.hash_blocks(array.array("q", high), 4))

    def test_only_full_blocks_have_a_hash(self):
        self.assertEqual(kvscout.hash_blocks([], 16), [])
        self.assertEqual(kvscout.hash_blocks([1] * 15, 16), [])
        self.assertEqual(len(kvscout.hash_blocks([1] * 47, 16)), 2)

    def test_a_chain_goes_on_from_its_last_hash(self):
        tokens = list(range(64))
        more = {"mm": [("img", 20, 30)], "salt": "s"}
        whole = kvscout.hash_blocks(tokens, 16, **more)
        for cut in (1, 2, 3):
            rest = kvscout.hash_blocks(tokens[cut * 16:], 16, parent=whole[cut - 1], first_block=cut, **more)
            self.assertEqual(whole[:cut] + rest, whole)

    def test_lora_by_name_alone_in_the_older_dialect(self):
        named = kvscout.hash_blocks([1] * 16, 16, dialect="vllm-0.30", lora="adapter")
        self.assertEqual(named, kvscout.hash_blocks([1] * 16, 16, dialect="vllm-0.30", lora=("adapter", "/any")))

    def test_a_list_that_shrinks_under_the_call_is_told(self):
        tokens = []

        class Shrinks:
            def __index__(self):
                del tokens[5:]
                return 1

        tokens += [1, 2, 3, 4, Shrinks(), 6, 7, 8]
        with self.assertRaises(IndexError):
            kvscout.hash_blocks(tokens, 4)


class Wrong(unittest.TestCase):
    def told(self, error, text, tokens=(1, 2, 3, 4), block_tokens=4, **more):
        with self.assertRaisesRegex(error, text):
            kvscout.hash_blocks(tokens, block_tokens, **more)

    def test_tokens(self):
        self.told(TypeError, "token_ids must be a list of ints, or a buffer", tokens=5)
        self.told(TypeError, "token_ids must be a list of ints", tokens="text")
        self.told(TypeError, r"token_ids\[1\] must be an int, not 'x'", tokens=[1, "x"])
        self.told(TypeError, r"token_ids\[1\] must be an int, not True", tokens=[1, True])
        self.told(TypeError, "must be a list of ints, or a buffer of ints of 4 or 8 bytes, not a buffer with format d",
                  tokens=array.array("d", [1.0]))
        self.told(TypeError, "format B", tokens=b"abcd")
        for wrong in (-1, 1 << 32, 1 << 70, -(1 << 70)):
            self.told(kvscout.ArgumentError, rf"token_ids\[2\] must be 0\.\.4294967295, not {wrong}", tokens=[0, 1, wrong])
        self.told(kvscout.ArgumentError, r"token_ids\[1\] must be .*, not -5", tokens=array.array("i", [1, -5]))
        self.told(kvscout.ArgumentError, r"token_ids\[1\] must be .*, not -5", tokens=array.array("q", [1, -5]))
        self.told(kvscout.ArgumentError, r"token_ids\[0\] must be .*, not 4294967296", tokens=array.array("q", [1 << 32]))
        self.told(BufferError, "", tokens=memoryview(array.array("I", range(8)))[::2])

    def test_the_rest(self):
        self.told(kvscout.ArgumentError, r"block_tokens must be 1\.\.65536, not 0", block_tokens=0)
        self.told(kvscout.ArgumentError, r"block_tokens must be 1\.\.65536, not 65537", block_tokens=65537)
        self.told(TypeError, "block_tokens must be an int", block_tokens="16")
        self.told(TypeError, "block_tokens must be an int, not True", block_tokens=True)
        self.told(kvscout.ArgumentError, "dialect must be 'vllm-0.30' or 'vllm-0.31', not 'sglang'", dialect="sglang")
        self.told(TypeError, "seed must be a str", seed=0)
        self.told(kvscout.ArgumentError, "seed must be at most 65535 bytes", seed="s" * 65536)
        self.told(kvscout.ArgumentError, "seed must be .* without a NUL", seed="a\0")
        self.told(kvscout.ArgumentError, r"lora must be \(name, path\) in dialect vllm-0.31, not 'a'", lora="a")
        self.told(TypeError, r"lora must be \(name, path\), or None", lora=("a",))
        self.told(TypeError, "the path in lora must be a str", lora=("a", 5))
        self.told(TypeError, r"mm must be a list of \(identifier, offset, length\)", mm=5)
        self.told(TypeError, r"mm\[0\] must be \(identifier, offset, length\), not 'abc'", mm=["abc"])
        self.told(TypeError, "the offset of mm.0. must be an int", mm=[("a", "1", 2)])
        self.told(TypeError, "the length of mm.0. must be an int, not True", mm=[("a", 1, True)])
        self.told(kvscout.ArgumentError, r"the length of mm\[0\] must be 0\.\.4294967295, not -1", mm=[("a", 1, -1)])
        self.told(kvscout.ArgumentError, r"mm must be sorted by offset: mm\[1\] is at 3, the one before it at 5",
                  mm=[("a", 5, 1), ("b", 3, 1)])
        self.told(TypeError, "salt must be a str", salt=b"s")
        self.told(TypeError, "prompt_embeds must be a list of digests", prompt_embeds=b"x" * 32)
        self.told(kvscout.ArgumentError, r"prompt_embeds\[0\] must be a SHA-256 digest of 32 bytes", prompt_embeds=[b"x"])
        self.told(kvscout.ArgumentError, "parent must be the hash of the block before", parent=b"x", first_block=1)
        self.told(kvscout.ArgumentError, "must be given together", first_block=1)
        self.told(kvscout.ArgumentError, "must be given together", parent=bytes(32))
        with self.assertRaisesRegex(TypeError, "at most 2 arguments by position, not 3"):
            kvscout.hash_blocks([], 4, "vllm-0.31")


class Threads(unittest.TestCase):
    def test_other_threads_run_while_it_hashes(self):
        tokens = array.array("I", [7]) * (16 << 20)
        expected = kvscout.hash_blocks(tokens[:160], 16)
        before = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, before)
        sys.setswitchinterval(60)  # a thread that holds the GIL is not asked for it

        def turns_of_a_call():
            results, started, turns = [], threading.Event(), 0

            def work():
                started.set()
                results.append(kvscout.hash_blocks(tokens, 1 << 16))
                results.append(kvscout.hash_blocks(tokens[:160], 16))

            thread = threading.Thread(target=work)
            thread.start()
            started.wait()
            while not results:
                turns += 1
                time.sleep(0)  # gives the GIL away; it comes back only if the other thread lets it go
            thread.join()
            self.assertEqual(len(results[0]), 256)
            self.assertEqual(results[1], expected)
            return turns

        wait_for(lambda: turns_of_a_call() > 1, what="a call during which this thread runs")


if __name__ == "__main__":
    unittest.main()
