"""A folder of onnxruntime-genai's layout: the decoder of tests/contrib with a tokenizer of 50 tokens."""

from __future__ import annotations

import json
from pathlib import Path

from tests.contrib.decoder import decoder

__all__ = ["write_folder"]

_LETTERS = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ", *".,?!:0123456789"]
_MERGED = [("t", "h"), ("th", "e"), ("Ġ", "a")]
_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def write_folder(folder: Path) -> Path:
    """Writes model.onnx, genai_config.json, tokenizer.json and tokenizer_config.json; returns the folder."""
    made = decoder()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(made.model)
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    config = {
        "model": {
            "bos_token_id": 1,
            "eos_token_id": 1,
            "pad_token_id": 0,
            "context_length": 128,
            "type": "llama",
            "vocab_size": 50,
            "decoder": {
                "session_options": {"log_id": "genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": made.size,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": made.layers,
                "num_key_value_heads": made.groups,
                "inputs": inputs | {"past_key_names": "past.%d.key", "past_value_names": "past.%d.value"},
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"do_sample": False, "max_length": 128, "top_k": 50, "past_present_share_buffer": True},
    }
    special = ["<pad>", "<eos>"]
    tokens = [*special, *_LETTERS, *("".join(pair) for pair in _MERGED)]
    tokens += [f"<unused{i}>" for i in range(50 - len(tokens))]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": t} | flags for i, t in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": [" ".join(pair) for pair in _MERGED],
        },
    }
    names = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<eos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    for name, content in (
        ("genai_config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", names | {"chat_template": _TEMPLATE}),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), "utf-8")
    return folder
