"""Models whose outputs are inputs with rows appended, in the ways exporters write caches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests import open_models
from tests.contrib.decoder import decoder

__all__ = ["CACHED", "STATIC", "STATIC_ROWS", "Cached"]

Feeds = dict[str, np.ndarray[Any, Any]]
F, F16, INT64, BOOL = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
HEADS, SIZE = 4, 8
STATIC_ROWS = 64
"""Rows of the caches of STATIC."""


@dataclass(frozen=True)
class Cached:
    """A model and how it is fed.

    Attributes:
        caches: input by output, both of the cache.
        empty: the caches at first. feeds: others, for a batch, new rows, and past ones.
        in_place: caches that are left where they are. chunks: onnxruntime takes several new rows after past ones.
        atol: for outputs about 1.
    """

    model: bytes
    caches: dict[str, str]
    empty: Callable[[int], Feeds]
    feeds: Callable[[int, int, int], Feeds]
    in_place: int
    chunks: bool = True
    atol: float = 1e-4


def _random(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape) + len(shape)).normal(size=shape).astype(dtype)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Any]],
    outputs: Mapping[str, int],
    constants: dict[str, np.ndarray[Any, Any]],
    opset: int = 17,
) -> bytes:
    graph = helper.make_graph(
        nodes,
        "cached",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _multiplied(nodes: list[onnx.NodeProto], constants: dict[str, Any], width: int) -> str:
    """y [B, n, width] times packed weights, plus q; its name."""
    rng = np.random.default_rng(3)
    constants["codes"] = rng.integers(0, 256, (width, width // 16, 8), np.uint8)
    constants["code_scales"] = (rng.uniform(0.5, 1.5, (width, width // 16)) / 8 / np.sqrt(width)).astype(np.float32)
    sizes: dict[str, Any] = {"K": width, "N": width, "block_size": 16}
    names = ["y", "codes", "code_scales"]
    nodes.append(helper.make_node("MatMulNBits", names, ["product"], domain="com.microsoft", **sizes))
    nodes.append(helper.make_node("Add", ["product", "q"], ["z"]))
    return "z"


def _attending(op: str, opset: int, product: bool = False, **attributes: Any) -> Cached:
    """One attention operator with caches [B, H, P, D], fed q, k and v [B, n, H D]; then a product."""
    names = ["q", "k", "v", *([""] * (3 if op == "MultiHeadAttention" else 1)), "past_k", "past_v"]
    domain = "com.microsoft" if op == "MultiHeadAttention" else ""
    node = helper.make_node(op, names, ["y", "present_k", "present_v"], domain=domain, **attributes)
    inputs: dict[str, tuple[int, list[Any]]] = {n: (F, ["b", "n", HEADS * SIZE]) for n in "qkv"}
    inputs |= {n: (F, ["b", HEADS, "p", SIZE]) for n in ("past_k", "past_v")}
    nodes = [node]
    constants: dict[str, np.ndarray[Any, Any]] = {}
    result = _multiplied(nodes, constants, HEADS * SIZE) if product else "y"
    model = _model(nodes, inputs, {result: F, "present_k": F, "present_v": F}, constants, opset)
    return Cached(
        model,
        {"present_k": "past_k", "present_v": "past_v"},
        lambda b: {n: np.zeros((b, HEADS, 0, SIZE), np.float32) for n in ("past_k", "past_v")},
        lambda b, n, p: {name: _random(b, n, HEADS * SIZE) * (i + 1 + p % 7) / 4 for i, name in enumerate("qkv")},
        2,
    )


def _decoder() -> Cached:
    names = [f"{layer}_{kind}" for layer in range(2) for kind in ("key", "value")]
    return Cached(
        open_models.decoder(),
        {f"present_{n}": f"past_{n}" for n in names},
        lambda b: {f"past_{n}": np.zeros((b, 2, 0, 8), np.float32) for n in names},
        lambda b, n, p: open_models.decoder_feeds(b, n, p, caches=False),
        4,
        atol=2e-3,
    )


def _group_query() -> Cached:
    made = decoder(positions=512)
    names = list(made.empty(1))
    outputs = [o.name for o in onnx.load_from_string(made.model).graph.output]
    caches = dict(zip([o for o in outputs if "present" in o], names, strict=True))

    def feeds(b: int, n: int, p: int) -> Feeds:
        ids = np.random.default_rng(n + 100 * p).integers(0, 50, (b, n))
        return {"input_ids": ids, "attention_mask": np.ones((b, p + n), np.int64)}

    return Cached(made.model, caches, made.empty, feeds, len(names), False, 2e-3)


def _grouped(bits: int = 0, scalar: bool = False, rows: int = 0, masked: bool = False, product: bool = False) -> Cached:
    """One GroupQueryAttention of 4 heads over 2.

    Args:
        bits: of the caches; 0: float32, with a rotary embedding.
        scalar: total_sequence_length is an input; else it is the length of a mask.
        rows: of caches that do not grow; 0: they do.
        masked: seqlens_k is computed from the mask.
        product: a product reads the result.
    """
    size, scale = 16, np.array([0.05 if bits != 4 else 0.5], np.float32)
    kind, dtype = {0: (F, np.float32), 8: (TensorProto.INT8, np.int8), 4: (TensorProto.UINT8, np.uint8)}[bits]
    stored = size // 2 if bits == 4 else size
    attributes: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
    turn = ["cos", "sin"] if not bits else ["", ""]
    attributes |= {"do_rotary": 1} if not bits else {"kv_cache_bit_width": bits}
    attributes |= {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"} if bits else {}
    names = ["q", "k", "v", "past_k", "past_v", "seqlens_k", "total", *turn]
    names += ["", "", "", "scale", "scale"] if bits else []
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "present_k", "present_v"], domain="com.microsoft", **attributes
    )
    angles = np.arange(600)[:, None] / 100 ** (np.arange(0, size, 2) / size)
    constants = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)} if not bits else {}
    constants |= {"scale": scale} if bits else {}
    inputs: dict[str, tuple[int, Any]] = {"q": (F, ["b", "n", 4 * size])}
    inputs |= {n: (F, ["b", "n", 2 * size]) for n in "kv"}
    inputs |= {n: (kind, ["b", 2, rows or "p", stored]) for n in ("past_k", "past_v")}
    nodes = [node]
    if masked:
        constants["axis"] = np.array([1])
        nodes[:0] = [
            helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0),
            helper.make_node("Sub", ["count", "one"], ["less"]),
            helper.make_node("Cast", ["less"], ["seqlens_k"], to=TensorProto.INT32),
        ]
    else:
        inputs["seqlens_k"] = (TensorProto.INT32, ["b"])
    if scalar:
        inputs["total"] = (TensorProto.INT32, [])
    else:
        inputs["mask"] = (INT64, ["b", "t"])
        constants["one"] = np.array(1)
        nodes[:0] = [
            helper.make_node("Shape", ["mask"], ["shape"]),
            helper.make_node("Gather", ["shape", "one"], ["length"]),
            helper.make_node("Cast", ["length"], ["total"], to=TensorProto.INT32),
        ]

    def feeds(b: int, n: int, p: int) -> Feeds:
        made = {name: _random(b, n, (4 if name == "q" else 2) * size) for name in "qkv"}
        total = {"total": np.array(p + n, np.int32)} if scalar else {"mask": np.ones((b, p + n), np.int64)}
        ends = {} if masked else {"seqlens_k": np.full(b, p + n - 1, np.int32)}
        return {**made, **ends, **total}

    result = _multiplied(nodes, constants, 4 * size) if product else "y"
    return Cached(
        _model(nodes, inputs, {result: F, "present_k": kind, "present_v": kind}, constants),
        {"present_k": "past_k", "present_v": "past_v"},
        lambda b: {n: np.zeros((b, 2, rows, stored), dtype) for n in ("past_k", "past_v")},
        feeds,
        2,
        False,
        2e-3,
    )


def _scattered(added: bool) -> Cached:
    """TensorScatter into caches [b, H, rows, D], and Attention over the rows that count.

    Args:
        added: how many count is computed from write_indices; else it is an input.
    """
    nodes = [helper.make_node("Shape", ["q"], ["n"], start=1, end=2)]
    for name in "qkv":
        nodes += [
            helper.make_node("Reshape", [name, "split"], [f"{name}_split"]),
            helper.make_node("Transpose", [f"{name}_split"], [f"{name}_heads"], perm=[0, 2, 1, 3]),
        ]
    for name in "kv":
        given = [f"past_{name}", f"{name}_heads", "write"]
        nodes.append(helper.make_node("TensorScatter", given, [f"present_{name}"], axis=2))
    nodes += [helper.make_node("Add", ["write", "n"], ["counted"])] if added else []
    given = ["q_heads", "present_k", "present_v", "", "", "", "counted"]
    nodes.append(helper.make_node("Attention", given, ["y"], is_causal=1))
    inputs: dict[str, tuple[int, Any]] = {n: (F, ["b", "n", HEADS * SIZE]) for n in "qkv"}
    inputs |= {f"past_{n}": (F, ["b", HEADS, STATIC_ROWS, SIZE]) for n in "kv"} | {"write": (INT64, ["b"])}
    inputs |= {} if added else {"counted": (INT64, ["b"])}

    def feeds(b: int, n: int, p: int) -> Feeds:
        counted = {} if added else {"counted": np.full(b, p + n)}
        return {**{name: _random(b, n, HEADS * SIZE) + p % 3 for name in "qkv"}, "write": np.full(b, p), **counted}

    outputs = {"y": F, "present_k": F, "present_v": F}
    return Cached(
        _model(nodes, inputs, outputs, {"split": np.array([0, 0, HEADS, SIZE])}, 24),
        {"present_k": "past_k", "present_v": "past_v"},
        lambda b: {f"past_{n}": np.zeros((b, HEADS, STATIC_ROWS, SIZE), np.float32) for n in "kv"},
        feeds,
        2,
    )


def _merged() -> Cached:
    """A merged decoder: in the branch with caches they grow, and one of the encoder is handed on as it is."""
    new = helper.make_node("Add", ["x", "x"], ["doubled"])

    def branch(name: str, nodes: list[onnx.NodeProto], outputs: list[str]) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(o, F, None) for o in outputs])

    grown = helper.make_node("Concat", ["past", "doubled"], ["a"], axis=2)
    total = helper.make_node("ReduceSum", ["a", "axis"], ["t"], keepdims=0)
    with_past = branch("with_past", [grown, total, helper.make_node("Identity", ["cross"], ["c"])], ["t", "a", "c"])
    first = [
        helper.make_node("Identity", ["doubled"], ["fa"]),
        helper.make_node("ReduceSum", ["fa", "axis"], ["ft"], keepdims=0),
        helper.make_node("Mul", ["x", "x"], ["fc"]),
    ]
    nodes = [
        new,
        helper.make_node(
            "If",
            ["use_cache"],
            ["y", "present", "present_cross"],
            then_branch=with_past,
            else_branch=branch("without", first, ["ft", "fa", "fc"]),
        ),
    ]
    shape = ["b", HEADS, "n", SIZE]
    inputs = {"x": (F, shape), "use_cache": (BOOL, [1]), "past": (F, ["b", HEADS, "p", SIZE])}
    inputs["cross"] = (F, ["b", HEADS, "c", SIZE])
    outputs = {"y": F, "present": F, "present_cross": F}
    return Cached(
        _model(nodes, inputs, outputs, {"axis": np.array([2], np.int64)}),
        {"present": "past", "present_cross": "cross"},
        lambda b: {n: np.zeros((b, HEADS, 0, SIZE), np.float32) for n in ("past", "cross")},
        lambda b, n, p: {"x": _random(b, HEADS, n, SIZE) + p, "use_cache": np.array([p > 0])},
        2,
        atol=1e-2,
    )


def _joined(kind: int, dtype: Any, axis: int, shape: list[int], in_place: int) -> Cached:
    """One Concat, whose inputs and output are read by others too; `shape` without the axis."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=axis),
        helper.make_node("Cast", ["present"], ["wide"], to=F),
        helper.make_node("ReduceMean", ["wide"], ["mean"], axes=[axis], keepdims=1),
        helper.make_node("Cast", ["past"], ["wide_past"], to=F),
        helper.make_node("ReduceSum", ["wide_past", "axis"], ["sum"], keepdims=1),
        helper.make_node("Add", ["mean", "sum"], ["y"]),
    ]
    whole: list[Any] = [*shape[:axis], "p", *shape[axis:]]
    new: list[Any] = [*shape[:axis], "n", *shape[axis:]]

    def drawn(rows: int) -> np.ndarray[Any, Any]:
        size = tuple(rows if isinstance(d, str) else d for d in new)
        return (np.random.default_rng(rows).normal(size=size) * 4).astype(dtype)

    return Cached(
        _model(nodes, {"past": (kind, whole), "x": (kind, new)}, {"y": F, "present": kind}, {"axis": np.array([axis])}),
        {"present": "past"},
        lambda b: {"past": drawn(0)},
        lambda b, n, p: {"x": drawn(n) + dtype(p % 3)},
        in_place,
        atol=1e-3,
    )


CACHED: dict[str, Cached] = {
    "concat": _decoder(),
    "group_query": _group_query(),
    "group_query_8": _grouped(8),
    "group_query_4": _grouped(4),
    "group_query_scalar": _grouped(scalar=True),
    "group_query_product": _grouped(product=True),
    "multi_head_product": _attending("MultiHeadAttention", 17, product=True, num_heads=HEADS, unidirectional=1),
    "multi_head": _attending("MultiHeadAttention", 17, num_heads=HEADS),
    "multi_head_causal": _attending("MultiHeadAttention", 17, num_heads=HEADS, unidirectional=1),
    "attention": _attending("Attention", 23, q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=1),
    "merged": _merged(),
    "rows_first": _joined(F, np.float32, 0, [6], 1),
    "rows_inside": _joined(F, np.float32, 1, [3, 5], 1),
    "rows_last": _joined(F, np.float32, 2, [2, 3], 1),
    "float16": _joined(F16, np.float16, 1, [3, 6], 1),
    "int64": _joined(INT64, np.int64, 1, [2], 1),
    "float16_odd": _joined(F16, np.float16, 1, [3, 5], 0),
}
"""By how they are written; batches of one where the shape says so."""

STATIC: dict[str, Cached] = {
    "scatter": _scattered(False),
    "scatter_added": _scattered(True),
    "group_query": _grouped(rows=STATIC_ROWS),
    "group_query_scalar": _grouped(scalar=True, rows=STATIC_ROWS),
    "group_query_masked": _grouped(rows=STATIC_ROWS, masked=True),
    "group_query_8": _grouped(8, rows=STATIC_ROWS),
    "group_query_4": _grouped(4, rows=STATIC_ROWS),
}
"""Those that do not grow, by how they are written; `feeds` gets how many rows count."""
