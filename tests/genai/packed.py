"""Folders of small decoders as onnxruntime-genai's builder writes them, of random weights in one of its precisions.

data/greedy.json is what onnxruntime-genai 0.18.0 writes in them on the CPU, greedily.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["PRECISIONS", "SHAPES", "Shape", "packed_model", "prompt_of", "write_packed_folder"]

POSITIONS, BLOCK = 2048, 32
FIRST = 0x4E00
"""The character of token 0."""

_CONTRIB = {"MatMulNBits", "GroupQueryAttention", "SkipSimplifiedLayerNormalization", "GatherBlockQuantized"}


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; `bias`: of queries, keys and values; `tied`: embeddings and logits have one table."""

    layers: int
    heads: int
    groups: int
    size: int
    inner: int
    words: int
    bias: bool
    tied: bool

    @property
    def width(self) -> int:
        return self.heads * self.size


SHAPES = {
    "llama": Shape(layers=3, heads=4, groups=2, size=16, inner=160, words=320, bias=False, tied=False),
    "qwen2": Shape(layers=4, heads=6, groups=2, size=16, inner=128, words=320, bias=True, tied=True),
}


def prompt_of(tokens: int, words: int) -> list[int]:
    """Ids of a prompt, none of them special."""
    return [(i * 7919 + 13) % (words - 3) + 3 for i in range(tokens)]


PRECISIONS = {"int4": (True, "float32"), "int4 float16": (True, "float16")}
PRECISIONS |= {"float32": (False, "float32"), "float16": (False, "float16")}
"""Whether weights are packed in blocks of 32 with 4 bits, and the type of everything else."""


class _Writer:
    def __init__(self, seed: int, precision: str) -> None:
        self.is_packed, self.dtype = PRECISIONS[precision]
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def given(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any) -> str:
        names = outputs or (f"v{len(self.nodes)}",)
        domain = "com.microsoft" if op in _CONTRIB else ""
        self.nodes.append(helper.make_node(op, list(inputs), list(names), names[0], domain=domain, **attributes))
        return names[0]

    def floats(self, value: Any) -> str:
        """A constant of the decoder's float type."""
        return self.given(np.asarray(value).astype(self.dtype))

    def packed(self, rows: int, columns: int) -> tuple[str, ...]:
        """Weights [rows, columns] of standard deviation about 1 / sqrt(columns), and their scales.

        Plain ones are [columns, rows].
        """
        if not self.is_packed:
            return (self.floats(self.rng.normal(size=(columns, rows)) / np.sqrt(columns)),)
        blocks = columns // BLOCK
        low, high = self.rng.integers(1, 16, (2, rows, blocks, BLOCK // 2))  # 8 is 0: a mean of 0
        codes = (low + 16 * high).astype(np.uint8)
        scales = self.rng.uniform(0.5, 1.5, (rows, blocks)) / 4.6 / np.sqrt(columns)
        return self.given(codes), self.floats(scales)

    def product(self, x: str, rows: int, columns: int) -> str:
        return self.times(x, self.packed(rows, columns), rows, columns)

    def times(self, x: str, weights: tuple[str, ...], rows: int, columns: int, *outputs: str) -> str:
        if not self.is_packed:
            return self.add("MatMul", x, *weights, outputs=outputs)
        sizes = {"K": columns, "N": rows, "bits": 4, "block_size": BLOCK}
        return self.add("MatMulNBits", x, *weights, outputs=outputs, **sizes)

    def scale(self, width: int) -> str:
        return self.floats(self.rng.uniform(0.5, 1.5, width))


def _lengths(made: _Writer) -> tuple[str, str]:
    """seqlens_k and total_sequence_length out of the attention mask."""
    one, axis = made.given(np.int64(1)), made.given(np.array([1]))
    less = made.add("Sub", made.add("ReduceSum", "attention_mask", axis, keepdims=0), one)
    total = made.add("Gather", made.add("Shape", "attention_mask"), one, axis=0)
    return made.add("Cast", less, to=TensorProto.INT32), made.add("Cast", total, to=TensorProto.INT32)


def _attended(made: _Writer, y: str, shape: Shape, i: int, given: tuple[str, ...]) -> str:
    rows = (shape.heads + 2 * shape.groups) * shape.size
    qkv = made.product(y, rows, shape.width)
    if shape.bias:
        qkv = made.add("Add", qkv, made.floats(made.rng.normal(size=rows).astype(np.float32) / 4))
    past = [f"past_key_values.{i}.{kind}" for kind in ("key", "value")]
    attended = made.add(
        "GroupQueryAttention", qkv, "", "", *past, *given,
        outputs=(f"attended.{i}", *(p.replace("past_key_values", "present") for p in past)),
        num_heads=shape.heads, kv_num_heads=shape.groups, scale=shape.size**-0.5, do_rotary=1,
    )  # fmt: skip
    return made.product(attended, shape.width, shape.width)


def _gated(made: _Writer, y: str, shape: Shape) -> str:
    gate, up = (made.product(y, shape.inner, shape.width) for _ in range(2))
    silu = made.add("Mul", gate, made.add("Sigmoid", gate))
    return made.product(made.add("Mul", silu, up), shape.width, shape.inner)


def packed_model(shape: Shape, seed: int = 3, precision: str = "int4") -> bytes:
    """input_ids, attention_mask int64 [batch, .] and caches to logits [batch, sequence, words] and caches."""
    made = _Writer(seed, precision)
    angles = np.arange(POSITIONS)[:, None] / 10000 ** (np.arange(0, shape.size, 2) / shape.size)
    given = (*_lengths(made), *(made.floats(f(angles)) for f in (np.cos, np.sin)))
    head = made.packed(shape.words, shape.width)
    if shape.tied and made.is_packed:
        flat = made.add("Reshape", head[0], made.given(np.array([shape.words, shape.width // 2])))
        numbers: dict[str, Any] = {"bits": 4, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        x = made.add("GatherBlockQuantized", flat, "input_ids", head[1], **numbers)
    elif shape.tied:
        x = made.add("Gather", made.add("Transpose", *head, perm=[1, 0]), "input_ids")
    else:
        x = made.add("Gather", made.floats(made.rng.normal(size=(shape.words, shape.width))), "input_ids")
    first = made.scale(shape.width)
    y = made.add("SimplifiedLayerNormalization", x, first, epsilon=1e-6, axis=-1, stash_type=1)
    for i in range(2 * shape.layers):
        added = _gated(made, y, shape) if i % 2 else _attended(made, y, shape, i // 2, given)
        names = (f"v{len(made.nodes)}", "", "", f"sum{len(made.nodes)}")
        scale = made.scale(shape.width)
        y = made.add("SkipSimplifiedLayerNormalization", x, added, scale, outputs=names, epsilon=1e-6)
        x = names[3]
    made.times(y, head, shape.words, shape.width, "logits")
    floats = helper.np_dtype_to_tensor_dtype(np.dtype(made.dtype))

    def value(name: str, kind: int, *dims: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, dims)

    inputs = [value("input_ids", TensorProto.INT64, "batch_size", "sequence_length")]
    inputs += [value("attention_mask", TensorProto.INT64, "batch_size", "total_sequence_length")]
    outputs = [value("logits", floats, "batch_size", "sequence_length", shape.words)]
    for i in range(shape.layers):
        for kind in ("key", "value"):
            dims = ("batch_size", shape.groups, "past_sequence_length", shape.size)
            inputs.append(value(f"past_key_values.{i}.{kind}", floats, *dims))
            dims = ("batch_size", shape.groups, "total_sequence_length", shape.size)
            outputs.append(value(f"present.{i}.{kind}", floats, *dims))
    graph = helper.make_graph(made.nodes, "decoder", inputs, outputs, made.weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def write_packed_folder(folder: Path, shape: Shape, seed: int = 3, precision: str = "int4") -> Path:
    """Writes model.onnx, genai_config.json and a tokenizer with a character for each token; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(packed_model(shape, seed, precision))
    decoder = {
        "session_options": {"log_id": "genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": shape.size,
        "hidden_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.groups,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }
    special = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    model = {**special, "context_length": POSITIONS, "type": "llama", "vocab_size": shape.words, "decoder": decoder}
    search = {"do_sample": False, "max_length": POSITIONS, "past_present_share_buffer": False}
    vocabulary = {chr(FIRST + i): i for i in range(shape.words)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": None, "byte_fallback": False},
    }
    files = {"genai_config.json": {"model": model, "search": search}, "tokenizer.json": tokenizer}
    for name, content in (*files.items(), ("tokenizer_config.json", {})):
        (folder / name).write_text(json.dumps(content, indent=1), "utf-8")
    return folder
