"""Quantised weights of DequantizeLinear: results as onnxruntime's, and no float copy of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pyruntime.device.null import NullDevice
from pyruntime.ir import Array
from pyruntime.session import InferenceSession
from pyruntime.session.run.program import Program
from tests.quantized.cases import rngs
from tests.quantized.planned import planned
from tests.quantized.test_models import reference
from tests.session.run.test_dynamic_sizes import on

TYPES: dict[int, tuple[int, int, Any]] = {
    TensorProto.INT4: (-8, 8, ml_dtypes.int4),
    TensorProto.UINT4: (0, 16, ml_dtypes.uint4),
    TensorProto.INT8: (-128, 128, np.int8),
    TensorProto.UINT8: (0, 256, np.uint8),
}


def dequantized(
    rng: np.random.Generator, kind: int, shape: tuple[int, ...], axis: int | None, block: int, zeros: bool
) -> tuple[list[onnx.TensorProto], onnx.NodeProto]:
    """Initializers w, s and perhaps z, and the node that makes `d` of them."""
    low, high, dtype = TYPES[kind]
    if axis is None:
        form: tuple[int, ...] = ()
    elif block:
        form = tuple(-(-d // block) if i == axis else d for i, d in enumerate(shape))
    else:
        form = (shape[axis],)
    given: list[tuple[str, Any]] = [
        ("w", rng.integers(low, high, shape).astype(dtype)),
        ("s", rng.uniform(0.005, 0.02, form).astype(np.float32)),
    ]
    if zeros:
        given.append(("z", rng.integers(low, high, form).astype(dtype)))
    names = [n for n, _ in given]
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis, **({"block_size": block} if block else {})}
    node = helper.make_node("DequantizeLinear", names, ["d"], **attributes)
    return [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in given], node


def model_of(
    nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], x: Array, y: tuple[int, ...] | None = None
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes, "packed", [helper.make_tensor_value_info("x", kind, x.shape)], [onnx.ValueInfoProto(name="y")], weights
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def product_case(rng: np.random.Generator) -> tuple[onnx.ModelProto, Array, str]:
    """MatMul or Gemm of a weight in one of its layouts."""
    kind = int(rng.choice(list(TYPES)))
    k, n, m = (
        int(rng.choice([16, 33, 64, 100, 256, 300])),
        int(rng.choice([1, 7, 24, 40])),
        int(rng.choice([1, 2, 9, 33])),
    )
    form = str(rng.choice(["MatMul", "Transpose", "Gemm", "GemmT"]))
    rows_are_n = form in ("Transpose", "GemmT")
    shape, k_axis = ((n, k), 1) if rows_are_n else ((k, n), 0)
    grain = str(rng.choice(["tensor", "column", "block"]))
    block = int(rng.choice([16, 32, 48, 128])) if grain == "block" else 0
    axis = None if grain == "tensor" else k_axis if grain == "block" else 1 - k_axis
    weights, back = dequantized(rng, kind, shape, axis, block, bool(rng.random() < 0.5))
    x = rng.standard_normal((m, k)).astype(np.float32)
    nodes = [back]
    if form == "Transpose":
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    if form.startswith("Gemm"):
        weights.append(onnx.numpy_helper.from_array(rng.standard_normal(n).astype(np.float32), "c"))
        nodes.append(helper.make_node("Gemm", ["x", "d", "c"], ["y"], transB=int(rows_are_n)))
    else:
        nodes.append(helper.make_node("MatMul", ["x", "t" if rows_are_n else "d"], ["y"]))
    return model_of(nodes, weights, x), x, f"{form} {kind} {shape} {grain} {block} m={m}"


def conv_case(rng: np.random.Generator) -> tuple[onnx.ModelProto, Array, str]:
    """Conv of a weight with one scale, or one an output channel."""
    kind = int(rng.choice(list(TYPES)))
    group = int(rng.choice([1, 1, 2, 6]))
    shape = (12, 6 // group, *((3, 3) if rng.random() < 0.6 else (1, 1)))
    weights, back = dequantized(rng, kind, shape, 0 if rng.random() < 0.7 else None, 0, bool(rng.random() < 0.5))
    weights.append(onnx.numpy_helper.from_array(rng.standard_normal(12).astype(np.float32), "c"))
    x = rng.standard_normal((2, 6, 9, 8)).astype(np.float32)
    conv = helper.make_node("Conv", ["x", "d", "c"], ["y"], group=group, pads=[1, 0, 1, 1])
    return model_of([back, conv], weights, x), x, f"Conv {kind} {shape} group={group}"


def gather_case(rng: np.random.Generator) -> tuple[onnx.ModelProto, Array, str]:
    """Gather of rows of a weight."""
    kind = int(rng.choice(list(TYPES)))
    axis, block = [(None, 0), (0, 0), (1, 0), (1, 16), (1, 32)][int(rng.integers(5))]
    weights, back = dequantized(rng, kind, (20, 64), axis, block, bool(rng.random() < 0.5))
    x = rng.integers(-20, 20, (2, 5))
    return (
        model_of([back, helper.make_node("Gather", ["d", "x"], ["y"])], weights, x),
        x,
        f"Gather {kind} {axis} {block}",
    )


@pytest.mark.parametrize("case", [product_case, conv_case, gather_case])
def test_weights__random_layouts__stay_packed_and_give_what_onnxruntime_gives(case: Any) -> None:
    for seed, rng in rngs(25):
        model, x, what = case(rng)
        plan = planned(model, {"x": x.shape})
        note = f"PYRUNTIME_SEED={seed}: {what}"
        weight = next(i for i in model.graph.initializer if i.name == "w")
        size = int(np.prod(weight.dims))
        floats = [str(t) for t in plan.held().values() if t.dtype.is_float and t.size >= size > 64]
        assert not floats, f"{note} holds {floats}"
        assert not plan.on_host, note
        (mine,), (theirs,) = plan.run({"x": x}), reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-3, err_msg=note)


class Labelled(NullDevice):
    """Knows what each buffer is for."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[int, str] = {}

    async def allocate(self, sizes: Sequence[int], label: str) -> list[int]:
        made = await super().allocate(sizes, label)
        self.labels |= dict.fromkeys(made, label)
        return made

    def held(self, label: str) -> int:
        """Bytes of all buffers for that."""
        return sum(size for number, size in self.ledger.live.items() if self.labels[number] == label)


@pytest.mark.parametrize(
    ("kind", "axis", "block", "bits"),
    [(TensorProto.INT4, 0, 32, 4), (TensorProto.UINT4, 1, 0, 4), (TensorProto.INT8, 1, 0, 8)],
)
def test_weights__of_dequantize_linear__are_held_packed(kind: int, axis: int, block: int, bits: int) -> None:
    """The session's bytes on the device: packed weights and their scales, over several plans."""
    rng = np.random.default_rng(0)
    weights, back = dequantized(rng, kind, (512, 1024), axis, block, False)
    x = np.zeros((3, 512), np.float32)
    model = model_of([back, helper.make_node("MatMul", ["x", "d"], ["y"])], weights, x)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    device = Labelled()

    async def use(session: InferenceSession, program: Program) -> None:
        for rows in (3, 1, 9, 40):
            await session.run_async(None, {"x": np.zeros((rows, 512), np.float32)})
            packed, scales = 512 * 1024 * bits // 8, 4 * 1024 * (512 // (block or 128))
            assert device.held("weights") <= packed + 2 * scales + 4096
            assert device.held("arena") < 4 * 512 * 1024 * 2

    on(device, model.SerializeToString(), use)
