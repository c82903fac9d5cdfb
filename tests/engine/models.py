# SPDX-License-Identifier: Apache-2.0
"""Tiny models with seeded random weights, made on the spot: nothing is downloaded, and no model's licence is touched.

A random model with small weights repeats one token for ever, and its answer hardly depends on the prompt. These have
larger weights, so that an answer holds many distinct tokens and a wrong block of KV changes it (the runner checks
both before it trusts a comparison). All are float32: on a CPU bfloat16 is not equal to itself when the batch differs.
"""

import json
import os

VOCAB = 512
IMAGE_TOKEN = VOCAB  # of the model that sees images
IMAGE_PIXELS, PATCH_PIXELS = 64, 8
SEED = 20250
OTHER_SEED = 20251  # new weights for a running engine
GEMMA_WINDOW = 256


# What all text models here have alike.
TEXT = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 8192,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dtype": "float32",
}


def _llama(window):
    from transformers import MistralConfig, LlamaConfig

    shape = dict(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        **TEXT,
    )
    if window:
        return MistralConfig(sliding_window=window, head_dim=32, **shape)
    return LlamaConfig(head_dim=32, **shape)


def _gemma():
    """Two layers with full attention and four with a window: vLLM makes three groups of two layers each."""
    from transformers import Gemma3TextConfig

    text = {**TEXT, "tie_word_embeddings": False}
    theta = text.pop("rope_theta")
    return Gemma3TextConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        query_pre_attn_scalar=32,
        sliding_window=GEMMA_WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": theta} for kind in ("full_attention", "sliding_attention")
        },
        **text,
    )


def _mellum():
    """Windows that SGLang keeps in a pool of their own; without experts."""
    from transformers import MellumConfig

    text = dict(TEXT)
    theta = text.pop("rope_theta")
    return MellumConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        sliding_window=GEMMA_WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        mlp_layer_types=["dense"] * 6,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": theta} for kind in ("full_attention", "sliding_attention")
        },
        **text,
    )


def _recurrent():
    """Short convolutions, whose state is recurrent, beside full attention."""
    from transformers import Lfm2Config

    text = dict(TEXT)
    theta = text.pop("rope_theta")
    return Lfm2Config(
        hidden_size=128,
        intermediate_size=256,
        block_auto_adjust_ff_dim=False,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        conv_L_cache=3,
        block_dim=128,
        conv_dim=128,
        conv_dim_out=128,
        layer_types=["conv", "full_attention"] * 2,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        **text,
    )


def _mla():
    from transformers import DeepseekV2Config

    return DeepseekV2Config(
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        kv_lora_rank=512,
        q_lora_rank=None,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_routed_experts=4,
        n_shared_experts=1,
        num_experts_per_tok=2,
        first_k_dense_replace=3,
        **TEXT,
    )


def _images():
    """A Llava: a small CLIP in front of the Llama, with one more token that stands for an image."""
    from transformers import CLIPVisionConfig, LlavaConfig

    text = _llama(0)
    text.vocab_size = VOCAB + 8
    vision = CLIPVisionConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=IMAGE_PIXELS,
        patch_size=PATCH_PIXELS,
        projection_dim=64,
    )
    return LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_id=IMAGE_TOKEN,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        image_seq_length=(IMAGE_PIXELS // PATCH_PIXELS) ** 2,
        tie_word_embeddings=False,
        dtype="float32",
    )


def _name_tower_as_published(folder):
    """transformers 5 leaves `vision_model.` out of the names of a CLIP's weights. Published models have it, and vLLM 0.32
    looks for it."""
    from safetensors.torch import load_file, save_file

    path = os.path.join(folder, "model.safetensors")
    named = load_file(path)
    old, new = "vision_tower.", "vision_tower.vision_model."
    save_file(
        {key if key.startswith(new) else key.replace(old, new, 1): weight for key, weight in named.items()},
        path,
        metadata={"format": "pt"},
    )


def _processor(folder):
    """What turns images into the model's input."""
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"),
        unk_token="t0",
        bos_token="t1",
        eos_token="t2",
        pad_token="t0",
    )
    size = {"height": IMAGE_PIXELS, "width": IMAGE_PIXELS}
    LlavaProcessor(
        image_processor=CLIPImageProcessor(size=size, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH_PIXELS,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    ).save_pretrained(folder)


def _phi():
    """Two sets of factors for rope; vLLM takes the long ones if max_model_len is above 4,096."""
    from transformers import Phi3Config

    text = dict(TEXT)
    theta = text.pop("rope_theta")
    head = 32
    rope = {
        "rope_type": "longrope",
        "rope_theta": theta,
        "short_factor": [1.0] * (head // 2),
        "long_factor": [1.0 + 0.5 * i for i in range(head // 2)],
        "original_max_position_embeddings": 4096,
        "partial_rotary_factor": 1.0,
    }
    return Phi3Config(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        original_max_position_embeddings=4096,
        rope_parameters=rope,
        **text,
    )


def _prefix():
    """Tokens of a prompt attend to those behind them, too, in layers that vLLM describes as full attention otherwise."""
    from transformers import HrmTextConfig

    text = dict(TEXT)
    theta = text.pop("rope_theta")
    return HrmTextConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        head_dim=32,
        H_cycles=1,
        L_cycles=1,
        L_bp_cycles=[1],
        embedding_scale=1.0,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        **text,
    )


def _llama4():
    """Layers without rope, the second of two, scale their queries if attn_temperature_tuning is on."""
    from transformers import Llama4TextConfig

    text = {**TEXT, "max_position_embeddings": 65536}
    theta = text.pop("rope_theta")
    return Llama4TextConfig(
        hidden_size=128,
        intermediate_size=256,
        intermediate_size_mlp=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_local_experts=2,
        num_experts_per_tok=1,
        interleave_moe_layer_step=8,
        no_rope_layers=[1, 0, 1, 0],
        attention_chunk_size=None,
        floor_scale=64,
        attn_scale=1.0,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        **text,
    )


def _long(kv_heads=4, head_dim=32):
    """For comparisons of time: 8 KiB of KV and five times the work for each token."""
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        **TEXT,
    )


def _wide():
    """The same with 128 KiB of KV for each token, as a Llama 3 of 8 billion weights has in bfloat16."""
    return _long(8, 256)


MODELS = {
    "gemma": _gemma,
    "mellum": _mellum,
    "images": _images,
    "llama": lambda: _llama(0),
    "window": lambda: _llama(512),
    "mla": _mla,
    "recurrent": _recurrent,
    "long": _long,
    "wide": _wide,
    "phi": _phi,
    "llama4": _llama4,
    "prefix": _prefix,
}


def _tokenizer(folder):
    """One word for each token, `t0` to `t511`: the HTTP server wants a tokenizer, and a person who reads its answers,
    too."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = {f"t{i}": i for i in range(VOCAB)}
    words["<image>"] = IMAGE_TOKEN
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump(
            {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "t0", "eos_token": "t2", "bos_token": "t1"}, f
        )


def make(name, root, seed=SEED):
    """Return the folder of the model, which is made if it is not there yet. Another seed is another set of weights."""
    folder = os.path.join(root, f"{name}-{seed}")
    if os.path.exists(os.path.join(folder, "done")):
        return folder
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(seed)
    kind = AutoModelForImageTextToText if name == "images" else AutoModelForCausalLM
    model = kind.from_config(MODELS[name]())
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.fill_(1.0)
            elif "embed" in key:
                weight.normal_(0.0, 1.0)
            else:
                # MLA repeats two tokens for ever with smaller ones.
                weight.normal_(0.0, (3.0 if name == "mla" else 2.0) / weight.shape[-1] ** 0.5)
    model.save_pretrained(folder, safe_serialization=True)
    _tokenizer(folder)
    if name == "images":
        _name_tower_as_published(folder)
        _processor(folder)
    with open(os.path.join(folder, "done"), "w"):
        pass
    return folder


def make_eagle(model, root):
    """Return the folder of an EAGLE head for @model's folder: one layer more, which guesses from the model's last hidden state. Its
    guesses are random, so nearly all are refused."""
    import torch
    from safetensors.torch import save_file

    folder = os.path.join(root, f"{os.path.basename(model)}-eagle")
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    os.makedirs(folder, exist_ok=True)
    draw = torch.Generator().manual_seed(SEED)
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    wide, narrow = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {
        "fc": (hidden, 2 * hidden),
        "layers.0.self_attn.q_proj": (wide, hidden),
        "layers.0.self_attn.k_proj": (narrow, hidden),
        "layers.0.self_attn.v_proj": (narrow, hidden),
        "layers.0.self_attn.o_proj": (hidden, wide),
        "layers.0.mlp.gate_proj": (inner, hidden),
        "layers.0.mlp.up_proj": (inner, hidden),
        "layers.0.mlp.down_proj": (hidden, inner),
    }
    weights = {f"{name}.weight": torch.randn(shape, generator=draw) / shape[1] ** 0.5 for name, shape in shapes.items()}
    weights["layers.0.post_attention_layernorm.weight"] = torch.ones(hidden)
    save_file(weights, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**config, "num_hidden_layers": 1}, file)
    return folder


def make_adapter(model, root, number):
    """Return the folder of a LoRA adapter for @model's folder; another number is another adapter."""
    import torch
    from safetensors.torch import save_file

    folder = os.path.join(root, f"{os.path.basename(model)}-adapter-{number}")
    with open(os.path.join(model, "config.json")) as file:
        config = json.load(file)
    os.makedirs(folder, exist_ok=True)
    draw = torch.Generator().manual_seed(number)
    rank, hidden, head = 8, config["hidden_size"], config["head_dim"]
    out = {"q_proj": config["num_attention_heads"] * head, "v_proj": config["num_key_value_heads"] * head}
    weights = {}
    for layer in range(config["num_hidden_layers"]):
        for name, rows in out.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(rank, hidden, generator=draw) / hidden**0.5
            weights[f"{prefix}.lora_B.weight"] = torch.randn(rows, rank, generator=draw)
    save_file(weights, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump(
            {
                "peft_type": "LORA",
                "task_type": "CAUSAL_LM",
                "r": rank,
                "lora_alpha": 2 * rank,
                "lora_dropout": 0.0,
                "bias": "none",
                "target_modules": sorted(out),
                "base_model_name_or_path": model,
            },
            file,
        )
    return folder
