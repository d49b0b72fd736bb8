"""Weights of 160 MiB and of 600 MB at WebGPU's guaranteed limits: the GPU alone runs what reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

import pyruntime as ort
from pyruntime.target import Limits
from tests.desktop import on_target

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


@pytest.mark.parametrize("kind", ROWS)
def test_run__table_of_600_mb_at_portable_limits__on_the_gpu_alone(
    kind: str, desktop_gpu: None, tmp_path: Path
) -> None:
    path, rows = model_of(tmp_path, kind), ROWS[kind]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with on_target("default") as device:
        assert device.target.limits == Limits()
        session = ort.InferenceSession(path, options)
        (y,) = session.run(None, {"i": np.array([tokens(rows)[5], -1])})
        assert NBYTES < device.ledger.total < 1.2 * NBYTES + 4 * y.nbytes
        assert max(device.ledger.live.values()) <= device.target.limits.buffer_bytes
    expected = np.zeros((2, rows))
    for place, token in enumerate((tokens(rows)[5], rows - 1)):
        for other in tokens(rows):
            expected[place, other] = (row(token) / 16) @ (row(other) / 16)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=1e-3)


LARGE = (4096, 10_240)
"""A float32 matrix of 160 MiB."""

USES: dict[str, tuple[NodeProto, tuple[int, int], Callable[[Any, Any], Any]]] = {
    "MatMul": (helper.make_node("MatMul", ["x", "w"], ["y"]), (2, LARGE[0]), lambda x, w: x @ w),
    "Gemm": (helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), (2, LARGE[1]), lambda x, w: x @ w.T),
    "Add": (helper.make_node("Add", ["x", "w"], ["y"]), (1, LARGE[1]), lambda x, w: x + w),
}


@pytest.mark.parametrize("use", USES)
def test_run__weight_of_160_mib_at_portable_limits__on_the_gpu_alone(
    use: str, desktop_gpu: None, tmp_path: Path
) -> None:
    node, shape, expected = USES[use]
    rng = np.random.default_rng(0)
    rows = {row: rng.standard_normal(LARGE[1], dtype=np.float32) for row in (0, 3275, 3276, LARGE[0] - 1)}
    w = stored(tmp_path, "w", LARGE, "float32", rows)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    made = helper.make_model(
        helper.make_graph([node], "test", [x], [y], [w]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    fed = rng.standard_normal(shape, dtype=np.float32)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with on_target("default") as device:
        assert device.target.limits == Limits()
        (result,) = ort.InferenceSession(tmp_path / "model.onnx", options).run(None, {"x": fed})
    table = np.memmap(tmp_path / "w", np.float32, "r", shape=LARGE)
    np.testing.assert_allclose(result, expected(fed, table), rtol=1e-3, atol=1e-3)
