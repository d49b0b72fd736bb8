"""Models with large weights, in files: a table of 600 MB that embeds tokens and makes their logits, one of 160 MiB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

__all__ = ["NBYTES", "ROWS", "USES", "fed_to", "logits_of", "model_of", "tokens", "weight_model"]

WIDTH, BLOCK = 1024, 32
NBYTES = 600_000_000
ROWS = {"float32": NBYTES // (4 * WIDTH), "float16": NBYTES // (2 * WIDTH), "4 bits": NBYTES * 2 // WIDTH}
"""Tokens, whose table has `NBYTES`."""

KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "uint8": TensorProto.UINT8}


def tokens(rows: int) -> list[int]:
    """Tokens in all parts of the table, at its ends and about its middle."""
    return [0, 1, rows // 5, rows // 3, rows // 2 - 1, rows // 2, 2 * rows // 3, rows - rows // 9, rows - 1]


def row(token: int) -> np.ndarray:
    """Integers from 1 to 15, as a row of 4-bit numbers with zero points of 0."""
    return (np.arange(WIDTH) * (token % 7 + 1) + token) % 15 + 1


def stored(path: Path, name: str, shape: tuple[int, ...], dtype: str, rows: Mapping[int, np.ndarray]) -> TensorProto:
    """A tensor in a file of its own that is 0 but for these rows."""
    data = np.memmap(path / name, dtype, "w+", shape=shape)
    for number, values in rows.items():
        data[number] = values
    data.flush()
    made = TensorProto(name=name, data_type=KINDS[dtype], dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": name, "offset": "0", "length": str(data.nbytes)}.items():
        made.external_data.add(key=key, value=value)
    return made


def packed(path: Path, rows: int) -> tuple[list[NodeProto], list[TensorProto]]:
    """Both nodes for a table of 4-bit numbers."""
    pairs = {token: row(token).reshape(-1, 2) for token in tokens(rows)}
    bytes_ = {token: (low + 16 * high).astype(np.uint8) for token, (low, high) in ((t, p.T) for t, p in pairs.items())}
    blocks = WIDTH // BLOCK
    table = stored(path, "w", (rows, WIDTH // 2), "uint8", bytes_)
    scales = stored(path, "s", (rows, blocks), "float16", dict.fromkeys(bytes_, np.full(blocks, 1 / 16, np.float16)))
    zeros = stored(path, "z", (rows, blocks // 2), "uint8", {})
    facts: dict[str, Any] = {"domain": "com.microsoft", "bits": 4, "block_size": BLOCK}
    gather = helper.make_node("GatherBlockQuantized", ["w", "i", "s", "z"], ["e"], **facts)
    product = helper.make_node("MatMulNBits", ["e", "w3", "s", "z"], ["y"], K=WIDTH, N=rows, **facts)
    again = TensorProto()
    again.CopyFrom(table)
    again.name = "w3"
    again.dims[:] = [rows, blocks, BLOCK // 2]
    return [gather, product], [table, again, scales, zeros]


def plain(path: Path, rows: int, dtype: str) -> tuple[list[NodeProto], list[TensorProto]]:
    """Both nodes for a table of floats."""
    table = stored(path, "w", (rows, WIDTH), dtype, {token: row(token) / 16 for token in tokens(rows)})
    gather = helper.make_node("Gather", ["w", "i"], ["e"])
    turned = helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])
    return [gather, turned, helper.make_node("MatMul", ["e", "t"], ["y"])], [table]


def model_of(path: Path, kind: str) -> Path:
    """The file of a model whose output has, for each token, its product with every row of the table."""
    rows = ROWS[kind]
    nodes, tables = packed(path, rows) if kind == "4 bits" else plain(path, rows, kind)
    result = TensorProto.FLOAT if kind == "float32" else TensorProto.FLOAT16
    i = helper.make_tensor_value_info("i", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", result, ["n", rows])
    graph = helper.make_graph(nodes, "test", [i], [y], tables)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made: ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    (path / "model.onnx").write_bytes(made.SerializeToString())
    return path / "model.onnx"


def logits_of(kind: str, asked: list[int]) -> np.ndarray:
    """The output for these tokens, each in `tokens` or counted from the end."""
    rows = ROWS[kind]
    made = np.zeros((len(asked), rows))
    for place, token in enumerate(asked):
        for other in tokens(rows):
            made[place, other] = (row(token % rows) / 16) @ (row(other) / 16)
    return made


LARGE = (4096, 10_240)
"""A float32 matrix of 160 MiB."""

USES: dict[str, tuple[NodeProto, tuple[int, int], Callable[[Any, Any], Any]]] = {
    "MatMul": (helper.make_node("MatMul", ["x", "w"], ["y"]), (2, LARGE[0]), lambda x, w: x @ w),
    "Gemm": (helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), (2, LARGE[1]), lambda x, w: x @ w.T),
    "Add": (helper.make_node("Add", ["x", "w"], ["y"]), (1, LARGE[1]), lambda x, w: x + w),
}


def weight_model(path: Path, use: str) -> tuple[Path, np.ndarray]:
    """The file of a model of one node, whose weight has `LARGE`, and the weight."""
    rng = np.random.default_rng(0)
    rows = {row: rng.standard_normal(LARGE[1], dtype=np.float32) for row in (0, 3275, 3276, LARGE[0] - 1)}
    w = stored(path, "w", LARGE, "float32", rows)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    graph = helper.make_graph([USES[use][0]], "test", [x], [y], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path / "model.onnx").write_bytes(made.SerializeToString())
    return path / "model.onnx", np.memmap(path / "w", np.float32, "r", shape=LARGE)


def fed_to(use: str) -> np.ndarray:
    """The input of such a model."""
    return np.random.default_rng(1).standard_normal(USES[use][1], dtype=np.float32)
