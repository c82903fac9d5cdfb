#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Test vectors of the block hashes, made without any code of the library: hashlib and cbor2 only.

    hash_vectors.py > hash_vectors.h    make the header
    hash_vectors.py --check             exit 1 when the header beside this file is not what would be made now
    hash_vectors.py --against-vllm      exit 1 when a vector of the installed vLLM's dialect differs from what a request
                                        object of that vLLM has; needs vLLM 0.30 or newer, and prints which
    hash_vectors.py --from-vllm         print, as JSON, what the request objects of that vLLM have; python/tests/vllm_vectors.json
                                        was made so

Exits 77 (skipped) where cbor2 (or vLLM) is not installed. The rules follow vLLM's vllm/v1/core/kv_cache_utils.py and
vllm/utils/hashing.py (sha256_cbor). The walk over multimodal items carries its position from block to block, as
vLLM's does; the library computes it from the block's position, so each checks the other.
"""

import collections
import hashlib
import json
import os
import pathlib
import sys
import types

try:
    import cbor2
except ImportError:
    sys.exit(77)

DEFAULT_SEED = "vllm-none-hash"
UNTAGGED = "vllm-0.30"
TAGGED = "vllm-0.31"


def sha256_cbor(value):
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


class Items:
    """The multimodal items of a request and how far the walk over them has come."""

    def __init__(self, items):
        self.items = items
        self.position = 0

    def pairs_of_block(self, start, end):
        pairs = []
        if not self.items or sum(self.items[-1][1:]) <= start:
            return pairs
        while self.position < len(self.items):
            identifier, first, length = self.items[self.position]
            if first >= end:
                break
            if first + length > start:
                pairs.append((identifier, first - start))
            if first + length > end:
                break
            self.position += 1
        return pairs


def block_hashes(dialect, tokens, block_tokens, seed, lora, items, salt, embeds):
    def key(tag, *values):
        if dialect == TAGGED:
            return (tag, *values)
        return values[0] if tag != "mm" else values

    walk = Items(items)
    parent = sha256_cbor(DEFAULT_SEED if seed is None else seed)
    hashes = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        end = start + block_tokens
        extra = [] if lora is None else [key("lora", *lora)]
        extra += [key("mm", *pair) for pair in walk.pairs_of_block(start, end)]
        if salt and start == 0:
            extra.append(key("cache_salt", salt))
        if embeds is not None:
            extra.append(key("prompt_embeds", hashlib.sha256(embeds[start * EMBED_ROW : end * EMBED_ROW]).digest()))
        parent = sha256_cbor((parent, tuple(tokens[start:end]), tuple(extra) if extra else None))
        hashes.append(parent)
    return hashes


# --- What to hash ---------------------------------------------------------------------------------------------------

EMBED_ROW = 12  # bytes of one token's embedding; any number serves


def draw(label, count, below):
    """@count numbers below @below, the same in every run and on every machine."""
    numbers = []
    for i in range(count):
        word = hashlib.sha256(f"{label}/{i}".encode()).digest()
        numbers.append(int.from_bytes(word[:8], "big") % below)
    return numbers


def embeddings(label, rows):
    """The embeddings of @rows tokens."""
    return b"".join(hashlib.sha256(f"{label}/{i}".encode()).digest()[:EMBED_ROW] for i in range(rows))


Vector = collections.namedtuple("Vector", "name dialect tokens block chunk seed lora items salt embeds hashes")
VECTORS = []


def vector(name, tokens, block=16, chunk=None, seed=None, lora=None, items=(), salt=None, embeds=None):
    """One vector; with extra keys one in each dialect. @lora is (name, path)."""
    chunk = block * 2 if chunk is None else chunk
    has_keys = lora is not None or items or salt or embeds is not None
    for dialect in (TAGGED, UNTAGGED) if has_keys else (None,):
        hashes = block_hashes(dialect, tokens, block, seed, lora, list(items), salt, embeds)
        label = f"{name}_untagged" if dialect == UNTAGGED else name
        VECTORS.append(Vector(label, dialect, tokens, block, chunk, seed, lora, list(items), salt, embeds, hashes))


def fill():
    edges = [0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65534, 65535, 65536, 65537, 0x7FFFFFFF, 0xFFFFFFFF]
    vocabulary = 151936
    text = draw("text", 100, vocabulary)
    art = "0f" * 32

    # Integers and array heads.
    vector("no_tokens", [])
    vector("one_token_less_than_a_block", text[:15])
    vector("one_block", text[:16])
    vector("one_token_more_than_a_block", text[:17])
    vector("ids_of_one_byte", list(range(24)) + [0] * 8)
    vector("ids_of_two_bytes", [24 + n for n in draw("two", 32, 232)])
    vector("ids_of_three_bytes", [256 + n for n in draw("three", 32, 65536 - 256)])
    vector("ids_of_five_bytes", [65536 + n for n in draw("five", 32, 2**32 - 65536)])
    vector("ids_at_every_edge", edges)
    vector("ids_at_every_edge_backwards", edges[::-1])
    vector("vocabulary_100_tokens", text, chunk=32)
    vector("chunk_of_one_block", text, chunk=16)
    vector("chunk_of_three_blocks", text, chunk=48)
    vector("chunk_longer_than_the_prompt", text, chunk=128)
    vector("block_of_1", text[:9], block=1, chunk=4)
    vector("block_of_23", draw("b23", 60, vocabulary), block=23)
    vector("block_of_24", draw("b24", 60, vocabulary), block=24)
    vector("block_of_64", draw("b64", 200, vocabulary), block=64)
    vector("block_of_255", draw("b255", 300, 300), block=255, chunk=255)
    vector("block_of_256", draw("b256", 520, vocabulary), block=256)
    vector("block_of_300", draw("b300", 610, vocabulary), block=300)

    # Seeds.
    vector("seed_given", text[:40], seed="0")
    vector("seed_empty", text[:40], seed="")
    vector("seed_spelled_as_the_default", text[:40], seed=DEFAULT_SEED)
    vector("seed_of_23_bytes", text[:40], seed="s" * 23)
    vector("seed_of_24_bytes", text[:40], seed="s" * 24)
    vector("seed_of_300_bytes", text[:40], seed="seed?" * 60)
    vector("seed_not_ascii", text[:40], seed="Gr\u00fc\u00dfe \u2603 \U0001f511")

    # LoRA and salt.
    vector("lora", text[:50], lora=("sql-adapter", "/adapters/sql"))
    vector("lora_empty_name", text[:50], lora=("", "/adapters/none"))
    vector("lora_other_path", text[:50], lora=("sql-adapter", "/adapters/sql-2"))
    vector("lora_path_of_300_bytes", text[:50], lora=("a", "/adapters/" + "x" * 290))
    vector("lora_not_ascii", text[:50], lora=("\u9069\u914d\u5668-\u03b2\U0001f9e0", "/\u9069"))
    vector("lora_of_256_bytes", text[:50], lora=("lora" * 64, "/l"))
    vector("salt_first_block_only", text[:50], salt="tenant-7")
    vector("salt_empty_is_none", text[:50], salt="")
    vector("salt_not_ascii", text[:50], salt="cl\u00e9 \u043a\u043b\u044e\u0447")
    vector("salt_of_24_bytes", text[:50], salt="x" * 24)
    vector("lora_and_salt", text[:50], lora=("a", "/b"), salt="b")
    vector("salt_that_spells_the_lora", text[:50], salt="sql-adapter")
    vector("salt_beyond_the_first_block_of_64", draw("s64", 200, vocabulary), block=64, salt="tenant-7")

    # Multimodal items.
    pad = [151655] * 100
    vector("item_in_one_block", pad[:48], items=[("img", 20, 5)])
    vector("item_at_block_start", pad[:48], items=[("img", 16, 4)])
    vector("item_ends_at_block_end", pad[:48], items=[("img", 20, 12)])
    vector("item_fills_block", pad[:48], items=[("img", 16, 16)])
    vector("item_begins_at_block_end", pad[:32], items=[("img", 32, 4)])
    vector("item_last_token_of_block", pad[:48], items=[("img", 15, 1)])
    vector("item_over_blocks_negative_offset", pad[:80], items=[("img", 10, 50)])
    vector("item_long_two_byte_negative_offset", [1] * 700, items=[("img", 3, 600)], chunk=64)
    vector("item_of_24_byte_identifier", pad[:48], items=[("i" * 24, 2, 20)])
    vector("item_of_64_byte_identifier", pad[:48], items=[(art, 2, 20)])
    vector("item_of_256_byte_identifier", pad[:48], items=[("0123456789abcdef" * 16, 2, 20)])
    vector("item_offset_of_five_bytes", [0] * 65536 * 3, block=65536, items=[("far", 0, 2**18)], chunk=65536)
    vector("item_offset_of_three_bytes", [0] * 66000, block=65536, items=[("far", 65500, 50)], chunk=65536)
    vector("item_identifier_not_ascii", pad[:48], items=[("\u753b\u50cf", 2, 20)])
    vector("item_beyond_prompt", pad[:48], items=[("img", 40, 100)])
    vector("item_of_no_tokens", pad[:48], items=[("none", 20, 0), ("none-at-start", 32, 0), ("img", 40, 2)])
    vector("two_items_in_one_block", pad[:64], items=[("a", 17, 4), ("b", 25, 6)])
    vector("two_items_meet_in_a_block", pad[:64], items=[("a", 4, 20), ("b", 24, 20)])
    vector("two_items_adjacent_at_block_end", pad[:64], items=[("a", 4, 12), ("b", 16, 8)])
    vector("same_item_twice", pad[:64], items=[("a", 4, 20), ("a", 36, 20)])
    vector("thirty_items_in_one_block", pad[:96], block=32, items=[(f"i{n}", 32 + n, 1) for n in range(30)])
    vector("items_overlap_long_hides_short", pad[:96], items=[("video", 2, 60), ("audio", 6, 20), ("end", 80, 4)])
    vector("items_overlap_last_ends_first", pad[:96], items=[("video", 2, 80), ("audio", 6, 20)])
    vector("items_same_offset", pad[:64], items=[("a", 4, 6), ("b", 4, 30)])

    # Prompt embeddings.
    vector("embeds_whole_blocks", [0] * 48, embeds=embeddings("e", 48))
    vector("embeds_end_inside_block", [0] * 40 + text[:24], embeds=embeddings("e", 40))
    vector("embeds_then_decoded_blocks", [0] * 32 + text[:48], embeds=embeddings("e", 32))

    # All together.
    everything = dict(
        lora=("sql-adapter", "/adapters/sql"),
        salt="tenant-7",
        items=[(art, 3, 30), ("b" * 300, 40, 4)],
        embeds=embeddings("all", 60),
    )
    vector("everything", text[:90], **everything)
    vector("everything_given_seed", text[:90], seed="1337", **everything)
    vector("everything_block_of_24", text[:90], block=24, **everything)
    for n in range(6):
        at = sorted(draw(f"at{n}", 5, 400))
        spans = [(f"mm-{n}-{i}", at[i], 1 + draw(f"len{n}", 5, 90)[i]) for i in range(5)]
        vector(f"drawn_overlaps_{n}", draw(f"d{n}", 450, vocabulary), items=spans, salt=f"s{n}", chunk=32)


# --- The header -----------------------------------------------------------------------------------------------------


def c_string(text):
    """@text as a C string; octal escapes, as they end after three digits whatever follows."""
    if text is None:
        return "NULL"
    out = ""
    for byte in text.encode():
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out += chr(byte) if plain else f"\\{byte:03o}"
    pieces = []
    while len(out) > 80:
        cut = 80
        while "\\" in out[cut - 3 : cut]:
            cut -= 1
        pieces.append(out[:cut])
        out = out[cut:]
    pieces.append(out)
    return "\n\t\t".join(f'"{piece}"' for piece in pieces)


def wrap(words, per_line):
    return ",\n".join("\t" + ", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line))


def prompt(tokens):
    """(count, id) of a run of one id that begins @tokens, so that a prompt of placeholders is short, and the ids after it."""
    count = next((i for i, token in enumerate(tokens) if token != tokens[0]), len(tokens))
    return (count, tokens[0], tokens[count:]) if count > 8 else (0, 0, tokens)


def digests_of(embeds, block):
    step = block * EMBED_ROW
    return [hashlib.sha256(embeds[i : i + step]).hexdigest() for i in range(0, len(embeds or b""), step)]


def quoted(words):
    return [f'"{word}"' for word in words]


# What a vector's array holds: the C type, how many stand in a line, and the words of one vector.
ARRAYS = {
    "tokens": ("uint32_t", 12, lambda v: [str(token) for token in prompt(v.tokens)[2]]),
    "items": ("struct scout_hash_mm_item", 1, lambda v: [f"{{{c_string(i)}, {at}, {n}}}" for i, at, n in v.items]),
    "embeds": ("char *const", 1, lambda v: quoted(digests_of(v.embeds, v.block))),
    "hashes": ("char *const", 1, lambda v: quoted(value.hex() for value in v.hashes)),
}


def pool(words_of):
    """({name: words} to write, {name: name of the array that begins with its words}): each beginning of another is left out."""
    written, holder = {}, {}
    for name, words in sorted(words_of.items(), key=lambda pair: -len(pair[1])):
        holder[name] = next((other for other in written if written[other][: len(words)] == words), name)
        if holder[name] == name:
            written[name] = words
    return written, holder


def row(v, arrays):
    """The initializer of one vector; what is none or zero is left out."""
    n_fill, fill, _ = prompt(v.tokens)
    texts = {"dialect": v.dialect, "seed": v.seed, "lora_name": v.lora and v.lora[0], "lora_path": v.lora and v.lora[1],
             "cache_salt": v.salt}
    numbers = {"block_tokens": v.block, "chunk_tokens": v.chunk, "n_tokens": len(v.tokens), "n_fill": n_fill, "fill": fill}
    places = {kind: (arrays[kind][v.name], len(ARRAYS[kind][2](v))) for kind in ARRAYS}
    lines = [f'.name = "{v.name}"'] + [f".{field} = {c_string(text)}" for field, text in texts.items() if text is not None]
    lines = [", ".join(lines), ", ".join(f".{field} = {number}" for field, number in numbers.items() if number)]
    lines.append(", ".join(f".{kind} = {name}_{kind}, .n_{kind} = {n}" for kind, (name, n) in places.items() if n and kind != "tokens"))
    if places["tokens"][1]:
        lines[1] += f", .tokens = {places['tokens'][0]}_tokens"
    return "\t{" + ",\n\t ".join(line for line in lines if line) + "},"


HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Made by hash_vectors.py, which has the rules; do not edit. */
/* clang-format off */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvscout/hash.h>

struct hash_vector {
	const char *name;
	const char *dialect, *seed; /* NULL: the default */
	uint32_t block_tokens, chunk_tokens;
	const uint32_t *tokens;
	size_t n_tokens, n_fill; /* the first @n_fill tokens are @fill, the others are in @tokens */
	uint32_t fill;
	const char *lora_name, *lora_path, *cache_salt;
	const struct scout_hash_mm_item *items;
	size_t n_items;
	const char *const *embeds; /* digests in hexadecimal */
	size_t n_embeds;
	const char *const *hashes; /* of the blocks, in hexadecimal */
	size_t n_hashes;
};
"""


def header():
    out, holders = [HEAD], {}
    for kind, (c_type, per_line, words) in ARRAYS.items():
        written, holders[kind] = pool({v.name: words(v) for v in VECTORS})
        for name in (v.name for v in VECTORS if written.get(v.name)):
            out.append(f"static const {c_type} {name}_{kind}[] = {{\n{wrap(written[name], per_line)},\n}};\n")
    out.append("static const struct hash_vector hash_vectors[] = {\n" + "\n".join(row(v, holders) for v in VECTORS) + "\n};\n")
    return "\n".join(out)


# --- The same from the engine ---------------------------------------------------------------------------------------


def runs(tokens):
    """@tokens as (count, first) pairs of equal ids: prompts made of one placeholder stay short."""
    pairs = []
    for token in tokens:
        if pairs and pairs[-1][1] == token:
            pairs[-1][0] += 1
        else:
            pairs.append([1, token])
    return pairs


def engine_hashes(vllm, dialect, tokens, block, seed, lora, items, salt, embeds):
    """What a request object of the installed vLLM has for its blocks."""
    os.environ.pop("PYTHONHASHSEED", None)
    if seed is not None:
        os.environ["PYTHONHASHSEED"] = seed
    vllm.kv.init_none_hash(vllm.sha256_cbor)
    features = [
        vllm.Feature(data=None, modality="image", identifier=name, mm_position=vllm.Range(offset=at, length=length))
        for name, at, length in items
    ]
    prompt, decoded, rows = tokens, [], None
    if embeds is not None:
        n = len(embeds) // EMBED_ROW
        rows = vllm.torch.frombuffer(bytearray(embeds), dtype=vllm.torch.float32).reshape(n, EMBED_ROW // 4)
        prompt, decoded = tokens[:n], tokens[n:]
    request = vllm.Request(
        request_id="r",
        prompt_token_ids=prompt,
        sampling_params=vllm.Sampling(max_tokens=1),
        pooling_params=None,
        prompt_embeds=rows,
        mm_features=features or None,
        lora_request=lora and vllm.Lora(lora_name=lora[0], lora_int_id=1, lora_path=lora[1]),
        cache_salt=salt,
        block_hasher=vllm.kv.get_request_block_hasher(block, vllm.sha256_cbor),
    )
    for token in decoded:
        request.append_output_token_ids(token)
    return [bytes(value) for value in request.block_hashes]


def installed_vllm():
    """The parts of the installed vLLM that are needed, and the dialect that it speaks; exits where there is none."""
    try:
        import torch
        import vllm
        from vllm.lora.request import LoRARequest
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256_cbor as engine_digest
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.request import Request
    except ImportError as e:
        print(f"vLLM 0.30 or newer is not here: {e}", file=sys.stderr)
        sys.exit(77)
    release = tuple(int(part) for part in vllm.__version__.split(".")[:2])
    return types.SimpleNamespace(
        torch=torch, kv=kv_cache_utils, sha256_cbor=engine_digest, Request=Request, Lora=LoRARequest,
        Feature=MultiModalFeatureSpec, Range=PlaceholderRange, Sampling=SamplingParams, version=vllm.__version__,
        dialect=TAGGED if release >= (0, 31) else UNTAGGED,
    )


def each_with_engine(engine, refused):
    """(vector, what the engine's request object has) for those that its dialect and its checks allow."""
    for each in VECTORS:
        name, dialect, tokens, block, _, seed, lora, items, salt, embeds, _ = each
        if dialect not in (None, engine.dialect):
            continue
        try:
            yield each, engine_hashes(engine, dialect, tokens, block, seed, lora, items, salt, embeds)
        except (AssertionError, ValueError) as e:
            refused.append(f"{name} ({type(e).__name__}: {e})")


def against_vllm():
    engine = installed_vllm()
    equal, refused, differ = 0, [], []
    for each, got in each_with_engine(engine, refused):
        if got == each[-1]:
            equal += 1
        else:
            differ.append(each[0])
    print(f"vLLM {engine.version} ({engine.dialect}): {equal} vectors equal, {len(differ)} differ: {' '.join(differ)}")
    for line in refused:
        print(f"  the engine refuses {line}")
    sys.exit(1 if differ or not equal else 0)


def from_vllm():
    engine = installed_vllm()
    vectors = []
    for (name, _, tokens, block, _, seed, lora, items, salt, embeds, _), got in each_with_engine(engine, []):
        vectors.append({"name": name, "runs": runs(tokens), "block_tokens": block, "seed": seed, "lora": lora, "mm": items,
                        "salt": salt, "prompt_embeds": digests_of(embeds, block), "hashes": [value.hex() for value in got]})
    lines = ",\n".join(json.dumps(each) for each in vectors)
    print(f'{{"vllm": "{engine.version}", "dialect": "{engine.dialect}", "vectors": [\n{lines}\n]}}')


def main():
    fill()
    if sys.argv[1:] == ["--check"]:
        path = pathlib.Path(__file__).with_name("hash_vectors.h")
        if not path.exists() or path.read_text(encoding="ascii") != header():
            sys.exit(f"{path.name} is stale: make it again with {pathlib.Path(__file__).name} > {path.name}")
    elif sys.argv[1:] == ["--against-vllm"]:
        against_vllm()
    elif sys.argv[1:] == ["--from-vllm"]:
        from_vllm()
    elif len(sys.argv) > 1:
        sys.exit(__doc__)
    else:
        sys.stdout.write(header())


if __name__ == "__main__":
    main()
