"""Random chains of quantised operators, and integer products of com.microsoft, against onnxruntime.

Results may differ by one quantisation step, because onnxruntime rounds in other places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from pyruntime.ir import Array
from tests.oracle import exact
from tests.quantized.cases import bytes_of, rngs
from tests.quantized.planned import planned
from tests.quantized.test_models import reference

BYTES = (np.uint8, np.int8)


class Chain:
    """A model that quantises x, computes on bytes, and dequantises y."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def given(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def through_bytes(self, x: str, scale: float, out: str = "") -> str:
        """x quantised and dequantised."""
        kind = BYTES[self.rng.integers(2)]
        zero = self.given(bytes_of(self.rng, kind, ()) // kind(2))
        step = self.given(np.float32(scale))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, step, zero), step, zero, out=out)

    def weight(self, shape: tuple[int, ...], axis: int, channels: int) -> tuple[str, Array]:
        """Dequantised bytes, by tensor or by index of `axis`, and their scales."""
        kind, rng = BYTES[self.rng.integers(2)], self.rng
        per_axis = rng.random() < 0.6
        scale = rng.uniform(0.001, 0.004, channels if per_axis else ()).astype(np.float32)
        inputs = [self.given(bytes_of(rng, kind, shape)), self.given(scale)]
        if rng.random() < 0.6:
            inputs.append(self.given(bytes_of(rng, kind, scale.shape)))
        attributes: dict[str, Any] = {"axis": axis} if per_axis else {}
        return self.add("DequantizeLinear", *inputs, **attributes), scale

    def model(self, x: Array) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        inputs = [helper.make_tensor_value_info("x", kind, x.shape)]
        graph = helper.make_graph(self.nodes, "chain", inputs, [onnx.ValueInfoProto(name="y")], self.weights)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


STEP = 0.05


def chain_case(rng: np.random.Generator) -> tuple[onnx.ModelProto, Array, str]:
    """Conv, MatMul or Gemm, with a bias that is exact or not, an activation, and a residual or not."""
    chain, op = Chain(rng), str(rng.choice(["Conv", "MatMul", "Gemm"]))
    n = int(rng.choice([1, 5, 12, 20]))
    if op == "Conv":
        group = int(rng.choice([1, 1, 2]))
        channels, n = 3 * group, n * group
        x = rng.standard_normal((2, channels, 7, 9)).astype(np.float32)
        weight, scale = chain.weight((n, channels // group, 3, 2), 0, n)
    else:
        k, turned = int(rng.choice([4, 17, 64])), op == "Gemm" and rng.random() < 0.5
        x = rng.standard_normal((int(rng.choice([1, 3, 20])), k)).astype(np.float32)
        weight, scale = chain.weight((n, k) if turned else (k, n), 0 if turned else 1, n)
    inputs = [chain.through_bytes("x", 0.02), weight]
    exact = rng.random() < 0.5
    if op != "MatMul" and rng.random() < 0.8:
        if exact:
            bias = chain.given(rng.integers(-5000, 5000, n).astype(np.int32))
            steps = chain.given(np.asarray(np.float32(0.02) * scale))
            inputs.append(chain.add("DequantizeLinear", bias, steps, axis=0))
        else:
            inputs.append(chain.given(rng.standard_normal(n).astype(np.float32)))
    attributes: dict[str, Any] = {"group": group, "pads": [1, 0, 1, 1]} if op == "Conv" else {}
    if op == "Gemm":
        attributes = {"transB": int(turned)}
    y = chain.add(op, *inputs, **attributes)
    if rng.random() < 0.5:
        y = chain.add(str(rng.choice(["Relu", "Sigmoid"])), y)
    if rng.random() < 0.5:
        back = chain.through_bytes(y, STEP)
        y = chain.add("Add", back, chain.add("Neg", back))
        y = chain.add("Add", y, back)
    chain.through_bytes(y, STEP, out="y")
    return chain.model(x), x, f"{op} x={x.shape} n={n}"


def test_chains__random__as_onnxruntime_within_a_step() -> None:
    for seed, rng in rngs(40):
        model, x, what = chain_case(rng)
        note = f"PYRUNTIME_SEED={seed}: {what}"
        plan = planned(model, {"x": x.shape})
        assert not plan.on_host, note
        assert any("matmul_integer" in k or k.startswith("conv_") for k in plan.kernels), note
        (mine,), (theirs,) = plan.run({"x": x}), reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, atol=1.01 * STEP, err_msg=note)


def contrib_case(rng: np.random.Generator, op: str) -> tuple[onnx.ModelProto, Array]:
    chain, (m, k, n) = Chain(rng), (int(v) for v in rng.integers(1, 40, 3))
    b = BYTES[rng.integers(2)]
    per_column = rng.random() < 0.5
    weight = chain.given(exact(bytes_of(rng, b, (k, n))))
    scale = chain.given(rng.uniform(0.001, 0.004, n if per_column else ()).astype(np.float32))
    zero = chain.given(bytes_of(rng, b, (n,) if per_column else ())) if rng.random() < 0.7 else ""
    bias = chain.given(rng.standard_normal(n).astype(np.float32)) if rng.random() < 0.5 else ""
    if op == "DynamicQuantizeMatMul":
        x: Array = rng.standard_normal((2, m, k)).astype(np.float32)
        inputs = ["x", weight, scale, zero, bias]
    else:
        x = bytes_of(rng, np.uint8, (2, m, k))
        inputs = ["x", weight, chain.given(np.float32(0.03)), scale, chain.given(np.array(99, np.uint8)), zero, bias]
    while not inputs[-1]:
        inputs.pop()
    chain.add(op, *inputs, out="y", domain="com.microsoft")
    return chain.model(x), x


@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products_with_float_results__random__one_product(op: str) -> None:
    for seed, rng in rngs(15):
        model, x = contrib_case(rng, op)
        plan = planned(model, {"x": x.shape})
        note = f"PYRUNTIME_SEED={seed}"
        assert len(plan.kernels) == (2 if op == "DynamicQuantizeMatMul" else 1), f"{note}: {plan.kernels}"
        (mine,), (theirs,) = plan.run({"x": x}), reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4, err_msg=note)


def test_qlinear_operators__known_parameters__are_one_dispatch() -> None:
    rng = np.random.default_rng(1)
    x, w = bytes_of(rng, np.uint8, (2, 8, 6, 6)), exact(bytes_of(rng, np.int8, (12, 8, 3, 3)))
    for op, left, right in (("QLinearConv", x, w), ("QLinearMatMul", x[0, 0], x[0, 1][:, :4])):
        chain = Chain(rng)
        step, zero = chain.given(np.float32(0.02)), chain.given(np.array(3, np.uint8))
        zero_w = chain.given(np.array(0, right.dtype))
        chain.add(op, "x", step, zero, chain.given(right), step, zero_w, chain.given(np.float32(0.5)), zero, out="y")
        model = chain.model(left)
        plan = planned(model, {"x": left.shape})
        assert len(plan.kernels) == 1, plan.kernels
        (mine,), (theirs,) = plan.run({"x": left}), reference(model, {"x": left})
        np.testing.assert_array_equal(mine, theirs)
