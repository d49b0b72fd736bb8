"""A decoder of two layers as exporters write them: packed queries, keys and values, rotary inside the attention.

RMS norms are ai.onnx operators; seqlens_k and total_sequence_length come from the attention mask, as the model builder
of onnxruntime-genai makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from pyruntime.ir import Array

__all__ = ["Decoder", "decoder"]


@dataclass(frozen=True)
class Decoder:
    """The model, and the shapes of its caches."""

    model: bytes
    layers: int
    groups: int
    size: int

    def empty(self, batch: int) -> dict[str, Array]:
        """Caches of no rows."""
        names = [f"past.{i}.{part}" for i in range(self.layers) for part in ("key", "value")]
        return {n: np.zeros((batch, self.groups, 0, self.size), np.float32) for n in names}


class _Writer:
    def __init__(self, seed: int, placed: bool = False, interleaved: bool = False, windowed: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.windowed = windowed
        self.placed, self.interleaved = placed, interleaved
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, value: Array) -> str:
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def random(self, name: str, *shape: int) -> str:
        return self.weight(name, (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def add(self, op: str, *inputs: str, to: str, domain: str = "", **attributes: Any) -> str:
        self.nodes.append(
            helper.make_node(op, list(inputs), to.split(), name=to.split()[0], domain=domain, **attributes)
        )
        return to.split()[0]

    def norm(self, x: str, name: str, width: int) -> str:
        """x / sqrt(mean(x²) + ε) · weight."""
        square = self.add("Pow", x, "two", to=f"{name}.square")
        mean = self.add("ReduceMean", square, "last", to=f"{name}.mean", keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, "epsilon", to=f"{name}.shifted"), to=f"{name}.root")
        scale = self.weight(f"{name}.weight", self.rng.uniform(0.5, 1.5, width).astype(np.float32))
        return self.add("Mul", self.add("Div", x, root, to=f"{name}.normed"), scale, to=name)

    def layer(self, x: str, i: int, heads: int, groups: int, size: int, width: int, local: int) -> str:
        qkv = self.add(
            "MatMul",
            self.norm(x, f"{i}.in", width),
            self.random(f"{i}.w_qkv", width, (heads + 2 * groups) * size),
            to=f"{i}.qkv",
        )
        y = self.add(
            "GroupQueryAttention",
            qkv,
            "",
            "",
            f"past.{i}.key",
            f"past.{i}.value",
            "seqlens_k",
            "total",
            "cos",
            "sin",
            *(["position_ids"] if self.placed else []),
            to=f"{i}.attended present.{i}.key present.{i}.value",
            domain="com.microsoft",
            num_heads=heads,
            kv_num_heads=groups,
            do_rotary=1,
            local_window_size=local,
            **({"sliding_window_cache": 1} if self.windowed and local > 0 else {}),
            rotary_interleaved=int(self.interleaved),
        )
        mixed = self.add("MatMul", y, self.random(f"{i}.w_o", heads * size, width), to=f"{i}.mixed")
        x = self.add("Add", x, mixed, to=f"{i}.residual")
        inner = self.norm(x, f"{i}.after", width)
        gate = self.add("MatMul", inner, self.random(f"{i}.w_gate", width, 2 * width), to=f"{i}.gate")
        up = self.add("MatMul", inner, self.random(f"{i}.w_up", width, 2 * width), to=f"{i}.up")
        silu = self.add("Mul", gate, self.add("Sigmoid", gate, to=f"{i}.sigmoid"), to=f"{i}.silu")
        product = self.add("Mul", silu, up, to=f"{i}.product")
        down = self.add("MatMul", product, self.random(f"{i}.w_down", 2 * width, width), to=f"{i}.down")
        return self.add("Add", x, down, to=f"{i}.out")


def decoder(
    seed: int = 0,
    layers: int = 2,
    heads: int = 4,
    groups: int = 2,
    size: int = 16,
    words: int = 50,
    positions: int = 128,
    local: int | tuple[int, ...] = -1,
    placed: bool = False,
    interleaved: bool = False,
    rows: int = 0,
    windowed: bool = False,
) -> Decoder:
    """input_ids, attention_mask int64 [B, ·] and the caches to logits [B, S, words] and the new caches.

    `local`: how many tokens each attention sees; `placed`: position_ids are an input; `interleaved`: which components
    the rotary embedding pairs; `rows`: of caches that do not grow; `windowed`: caches of attentions that are
    local have a window's rows, as many as are given, whatever the text is long.
    """
    made, width = _Writer(0, placed, interleaved, windowed), heads * size
    constants = {"two": np.float32(2), "epsilon": np.float32(1e-6), "last": np.array([-1]), "one": np.int64(1)}
    for name, value in constants.items():
        made.weight(name, np.asarray(value))
    made.weight("axis", np.array([1]))
    angles = np.arange(positions)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    made.weight("cos", np.cos(angles).astype(np.float32))
    made.weight("sin", np.sin(angles).astype(np.float32))
    count = made.add("ReduceSum", "attention_mask", "axis", to="count", keepdims=0)
    lengths = made.add("Sub", count, "one", to="count_less")
    made.nodes.append(helper.make_node("Cast", [lengths], ["seqlens_k"], to=TensorProto.INT32))
    shape = made.add("Shape", "attention_mask", to="mask_shape")
    width_of = made.add("Gather", shape, "one", to="mask_width", axis=0)
    made.nodes.append(helper.make_node("Cast", [width_of], ["total"], to=TensorProto.INT32))
    x = made.add("Gather", made.random("embedding", words, width), "input_ids", to="embedded")
    for i in range(layers):
        x = made.layer(x, i, heads, groups, size, width, local if isinstance(local, int) else local[i])
    made.add("MatMul", made.norm(x, "final", width), made.random("head", width, words), to="logits")
    names = ["input_ids", "attention_mask", *(["position_ids"] if placed else [])]
    tokens = [helper.make_tensor_value_info(n, TensorProto.INT64, ["B", n]) for n in names]
    parts = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]
    each = [local] * layers if isinstance(local, int) else list(local)
    sliding = [windowed and n > 0 for n in each for _ in ("key", "value")]

    def caches(kind: str, rest: str) -> list[ValueInfoProto]:
        shapes: list[list[str | int]] = [["B", groups, rows or ("W" if w else rest), size] for w in sliding]
        named = zip(parts, shapes, strict=True)
        return [helper.make_tensor_value_info(f"{kind}.{p}", TensorProto.FLOAT, shape) for p, shape in named]

    pasts, presents = caches("past", "P"), caches("present", "T")
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", "S", words])
    graph = helper.make_graph(made.nodes, "decoder", [*tokens, *pasts], [logits, *presents], made.weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.checker.check_model(model)
    return Decoder(bytes(model.SerializeToString()), layers, groups, size)
