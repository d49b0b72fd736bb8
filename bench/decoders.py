"""Language models of onnxruntime-genai's builder, with random weights.

    python bench/decoders.py OUT [--tiny] [NAME ...]

writes folders as users have them: model.onnx, model.onnx.data, genai_config.json. Sizes are those of Qwen2.5-0.5B and
Llama-3.2-1B, weights of 4 bits in blocks of 32, activations float32. `qwen` and `llama` have accuracy_level 4, as the
builder writes models; in `qwen1` and `llama1` it is 1: activations are not rounded. Runs in the environment of
bench/requirements.txt; page/decode.js measures them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import torch
import transformers as tr
from tokenizers import Tokenizer, models, pre_tokenizers

TINY = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "intermediate_size": 512,
    "vocab_size": 500,
    "max_position_embeddings": 2048,
}
GAIN = 3.0
"""Deviation of weights times the root of the hidden size. With that of untrained models, 0.02 for every size, what a
layer adds is little, and a text one word for ever."""

SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": True}


def random(kind: Any, config: Any) -> Any:
    config.initializer_range = GAIN / config.hidden_size**0.5
    return kind(config)


def qwen(tiny: bool) -> Any:
    large = {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "intermediate_size": 4864,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
    }
    heads = {"num_attention_heads": 4 if tiny else 14, "num_key_value_heads": 2}
    return random(tr.Qwen2ForCausalLM, tr.Qwen2Config(rope_theta=1e6, **heads, **SPECIAL, **(TINY if tiny else large)))


def llama(tiny: bool) -> Any:
    large = {
        "hidden_size": 2048,
        "num_hidden_layers": 16,
        "intermediate_size": 8192,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
    }
    heads = {"num_attention_heads": 4 if tiny else 32, "num_key_value_heads": 2 if tiny else 8}
    return random(tr.LlamaForCausalLM, tr.LlamaConfig(rope_theta=5e5, **heads, **SPECIAL, **(TINY if tiny else large)))


DECODERS: dict[str, tuple[Callable[[bool], Any], int]] = {
    "llama": (llama, 4),
    "qwen": (qwen, 4),
    "llama1": (llama, 1),
    "qwen1": (qwen, 1),
}
"""Architecture and accuracy_level of MatMulNBits."""


def write_tokenizer(folder: Path) -> None:
    """Some tokenizer, which the builder copies and the benchmark does not use."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    tr.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def build(name: str, out: Path, tiny: bool) -> None:
    """Write the folder `out`."""
    make, level = DECODERS[name]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        checkpoint = Path(scratch) / "checkpoint"
        make(tiny).half().save_pretrained(checkpoint)
        write_tokenizer(checkpoint)
        builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(checkpoint), "-o", str(out)]
        options = ["use_webgpu_fp32=true", f"accuracy_level={level}"]
        kind = ["-p", "int4", "-e", "webgpu", "-c", scratch, "--extra_options", *options]
        subprocess.run([*builder, *kind], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})


def levels(model: Path) -> set[int]:
    """accuracy_level of the products with packed weights."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    return {a.i for node in nodes for a in node.attribute if a.name == "accuracy_level"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tiny", action="store_true", help="a few hundred kilobytes, for software adapters")
    args = parser.parse_intermixed_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or DECODERS:
        build(name, args.folder / name, args.tiny)
        if (found := levels(args.folder / name / "model.onnx")) != {DECODERS[name][1]}:
            raise SystemExit(f"{name}: the builder wrote accuracy_level {found}, not what it was asked for")
        print(name, (args.folder / name / "model.onnx.data").stat().st_size, flush=True)


if __name__ == "__main__":
    main()
