"""Models whose weights onnxruntime's own quantisers packed: values against onnxruntime, and what the plan uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi import _pybind_state
from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

import pyruntime
from pyruntime.device.null import NullDevice
from pyruntime.ir import Array
from pyruntime.kernels import Target
from tests.session.doubles import on_device

HIDDEN, INNER, VOCABULARY = 96, 160, 50
BLOCK = 32


def decoder(rows: int = 1) -> onnx.ModelProto:
    """Embedding, an RMS norm, a gated MLP with its residual, and logits: float32, as exporters write it."""
    rng = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)

    held = [
        weight("table", VOCABULARY, HIDDEN),
        weight("gate", HIDDEN, INNER),
        weight("up", HIDDEN, INNER),
        weight("down", INNER, HIDDEN),
        weight("head", HIDDEN, VOCABULARY),
        numpy_helper.from_array(rng.uniform(0.5, 1.5, HIDDEN).astype(np.float32), "gamma"),
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.array(1e-6, np.float32), "epsilon"),
    ]
    steps: Sequence[tuple[str, Sequence[str], str, dict[str, Any]]] = (
        ("Gather", ("table", "ids"), "x", {}),
        ("Pow", ("x", "two"), "squares", {}),
        ("ReduceMean", ("squares", "last"), "mean", {"keepdims": 1}),
        ("Add", ("mean", "epsilon"), "shifted", {}),
        ("Sqrt", ("shifted",), "root", {}),
        ("Div", ("x", "root"), "unit", {}),
        ("Mul", ("unit", "gamma"), "normal", {}),
        ("MatMul", ("normal", "gate"), "g", {}),
        ("MatMul", ("normal", "up"), "u", {}),
        ("Sigmoid", ("g",), "s", {}),
        ("Mul", ("g", "s"), "silu", {}),
        ("Mul", ("silu", "u"), "inner", {}),
        ("MatMul", ("inner", "down"), "d", {}),
        ("Add", ("x", "d"), "hidden", {}),
        ("MatMul", ("hidden", "head"), "logits", {}),
    )
    held.append(numpy_helper.from_array(np.array([-1], np.int64), "last"))
    nodes = [helper.make_node(kind, list(ins), [y], name=f"{kind}_{y}", **more) for kind, ins, y, more in steps]
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, rows])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, rows, VOCABULARY])
    graph = helper.make_graph(nodes, "decoder", [ids], [logits], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def packed(model: onnx.ModelProto, kind: str, symmetric: bool = True) -> onnx.ModelProto:
    """The model with its products, and its embedding where `kind` is 'all', packed by onnxruntime's quantisers."""
    if kind == "bnb4":
        bnb = MatMulBnb4Quantizer(model, MatMulBnb4Quantizer.NF4, 64)
        bnb.process()
        whole: onnx.ModelProto = bnb.model.model
        return whole
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    held = {w.name: w for w in made.graph.initializer}
    bits = int(kind) if kind.isdigit() else 4
    for node in made.graph.node:
        at = {"MatMul": 1, "Gather": 0}.get(node.op_type)
        if at is None or (node.op_type == "Gather" and kind != "all"):
            continue
        name = node.input[at]
        weight = numpy_helper.to_array(held[name])
        # A row of an embedding is quantised as a column of a product is.
        data, scales, zeros = quantized(weight.T.copy() if at == 0 else weight, bits, symmetric)
        tensors = {"q": data.reshape(len(data), -1) if at == 0 else data, "scales": scales}
        if not symmetric:
            tensors["zeros"] = zeros
        given = [f"{name}_{key}" for key in tensors]
        made.graph.initializer.extend(
            numpy_helper.from_array(x, n) for n, x in zip(given, tensors.values(), strict=True)
        )
        made.graph.initializer.remove(held[name])
        other = node.input[1 - at]
        del node.input[:]
        node.domain = "com.microsoft"
        if at == 0:
            node.op_type = "GatherBlockQuantized"
            node.input.extend([given[0], other, *given[1:]])
            more: dict[str, int] = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
        else:
            node.op_type = "MatMulNBits"
            node.input.extend([other, *given])
            more = {"K": weight.shape[0], "N": weight.shape[1], "bits": bits, "block_size": BLOCK}
        node.attribute.extend(helper.make_attribute(key, value) for key, value in more.items())
    return made


def quantized(weight: Array, bits: int, symmetric: bool) -> tuple[Array, Array, Array]:
    """Packed weights, scales and zero points of a [K, N] matrix, by the function onnxruntime's quantiser calls."""
    k, n = weight.shape
    blocks = -(-k // BLOCK)
    data = np.zeros((n, blocks, BLOCK * bits // 8), np.uint8)
    scales, zeros = np.zeros((n, blocks), np.float32), np.zeros((n, -(-blocks * bits // 8)), np.uint8)
    function = getattr(_pybind_state, f"quantize_matmul_{bits}bits")
    function(data, np.pad(weight, ((0, blocks * BLOCK - k), (0, 0))), scales, zeros, BLOCK, n, k, symmetric)
    return data, scales, zeros


def kinds(model: onnx.ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    ("kind", "symmetric"),
    [("2", True), ("4", True), ("4", False), ("8", True), ("8", False), ("all", True), ("bnb4", True)],
)
def test_quantised_decoder__cpu_provider__agrees_with_onnxruntime(kind: str, symmetric: bool, rows: int) -> None:
    model = packed(decoder(rows), kind, symmetric)
    assert kinds(model).count("MatMulBnb4" if kind == "bnb4" else "MatMulNBits") == 4
    assert ("GatherBlockQuantized" in kinds(model)) == (kind == "all")
    feeds = {"ids": np.random.default_rng(1).integers(0, VOCABULARY, (1, rows))}
    data = model.SerializeToString()
    (theirs,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    (mine,) = pyruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(mine, theirs, 1e-4, 2e-5)


def plan_of(model: onnx.ModelProto, rows: int, target: Target) -> tuple[pyruntime.InferenceSession, NullDevice]:
    device = NullDevice(target)

    async def run() -> pyruntime.InferenceSession:
        made = await pyruntime.InferenceSession.create(model.SerializeToString())
        await made.run_async(None, {"ids": np.zeros((1, rows), np.int64)})
        return made

    with on_device(device):
        session = asyncio.run(run())
    return session, device


@pytest.mark.parametrize("vendor", ["nvidia", "google"])
@pytest.mark.parametrize("rows", [1, 33])
def test_quantised_decoder__plan__holds_no_weight_in_floats(rows: int, vendor: str) -> None:
    model = packed(decoder(rows), "all")
    session, device = plan_of(model, rows, Target(vendor=vendor))
    held = sum(len(numpy_helper.to_array(w).tobytes()) for w in model.graph.initializer)
    floats = 4 * (2 * VOCABULARY * HIDDEN + 3 * HIDDEN * INNER)
    weights = sum(size for label, size in _allocated(device) if "weights" in label)
    assert weights < held + 256 * len(model.graph.initializer) < floats / 2
    assert not any(label for label, size in _allocated(device) if size > floats / 2)
    # What joins packed weights runs once, before the plan.
    assert {n.placement for n in session.explain().nodes if n.op_type != "Concat"} == {"gpu"}


def _allocated(device: NullDevice) -> list[tuple[str, int]]:
    return [what for name, what in device.calls if name == "allocate"]  # type: ignore[misc]


def test_quantised_decoder__one_token__takes_a_dispatch_a_step() -> None:
    session, device = plan_of(packed(decoder(), "4"), 1, Target(vendor="nvidia"))
    (recording,) = device.recordings.values()
    # Gather; norm, gate and up with SiLU and product; down with residual; logits.
    assert len(recording) == 4, [n.op_type for n in session.explain().nodes]
