"""Quantised models: what onnxruntime gives, in how many dispatches, and what the GPU holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from pyruntime.ir import Array, DType, TensorType
from tests.oracle import OPTIONS
from tests.quantized.models import dynamic, encoder, listener, residual_net, static
from tests.quantized.planned import Planned, planned

LAYERS, WIDTH = 2, 64
CALIBRATION = [np.random.default_rng(i).standard_normal((2, 3, 32, 32)).astype(np.float32) for i in range(3)]

PER_LAYER = 15
"""Dispatches of a layer at most: four products (query, key and value are one), four quantisations of two dispatches
each (of one, where few elements are quantised), attention, two norms."""


def reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Any]:
    """What onnxruntime's CPU computes, node by node as the file has them."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    made: list[Any] = session.run(None, feeds)
    return made


def ids(batch: int, length: int) -> Array:
    return np.random.default_rng([batch, length]).integers(0, 50, (batch, length))


@pytest.mark.parametrize("options", [{}, {"per_channel": True}, {"weight_type": QuantType.QUInt8}], ids=str)
def test_encoder__dynamically_quantised__as_onnxruntime_in_few_dispatches(options: dict[str, Any]) -> None:
    model = dynamic(encoder(LAYERS, WIDTH, 4), **options)
    feeds = {"ids": ids(2, 24)}
    plan = planned(model, {"ids": (2, 24)})
    assert not plan.on_host
    # Of few elements: only the widest activation takes two dispatches. The embedding comes in bytes.
    assert len(plan.kernels) <= 1 + (PER_LAYER - 3) * LAYERS - 1
    assert len(planned(model, {"ids": (8, 64)}).kernels) <= 1 + PER_LAYER * LAYERS - 1
    assert sum(k.startswith("matmul_integer") for k in plan.kernels) == 4 * LAYERS
    (mine,), (theirs,) = plan.run(feeds), reference(model, feeds)
    np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


def test_encoder__dynamically_quantised__holds_bytes() -> None:
    plan = planned(dynamic(encoder(LAYERS, WIDTH, 4)), {"ids": (1, 9)})
    large = [t for t in plan.held().values() if t.size >= WIDTH * WIDTH // 2]
    assert len(large) == 4 * LAYERS + 1
    assert all(t.dtype.bits == 8 for t in large)


def test_listener__dynamically_quantised__as_onnxruntime_in_few_dispatches() -> None:
    model = dynamic(listener(16, 24), weight_type=QuantType.QUInt8)
    x = np.random.default_rng(0).standard_normal((2, 16, 40)).astype(np.float32)
    plan = planned(model, {"x": x.shape})
    # Each of the three: one quantisation and one product, bias and activation in it; the rows of x are transposed.
    assert len(plan.kernels) <= 7, plan.kernels
    (mine,), (theirs,) = plan.run({"x": x}), reference(model, {"x": x})
    np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4)


KINDS: dict[str, dict[str, Any]] = {
    "channels": {},
    "tensors": {"per_channel": False},
    "signed": {"activation_type": QuantType.QInt8},
    "unsigned": {"weight_type": QuantType.QUInt8, "per_channel": False},
    "operators": {"quant_format": QuantFormat.QOperator},
    "16 bits": {"activation_type": QuantType.QUInt16},
    "16 bits, signed": {"activation_type": QuantType.QInt16, "extra_options": {"ActivationSymmetric": True}},
}


def net(kind: str) -> tuple[onnx.ModelProto, Planned]:
    model = static(residual_net(32, 16), CALIBRATION, **KINDS[kind])
    return model, planned(model, {"x": (2, 3, 32, 32)})


@pytest.mark.parametrize("kind", KINDS)
def test_residual_net__statically_quantised__as_onnxruntime_within_a_step(kind: str) -> None:
    model, plan = net(kind)
    feeds = {"x": CALIBRATION[0]}
    (mine,), (theirs,) = plan.run(feeds), reference(model, feeds)
    last = [n for n in model.graph.node if n.op_type == "DequantizeLinear"][-1]
    step = next(float(onnx.numpy_helper.to_array(i)) for i in model.graph.initializer if i.name == last.input[1])
    np.testing.assert_allclose(mine, theirs, atol=1.01 * step)
    assert not plan.on_host


@pytest.mark.parametrize("kind", ["channels", "tensors", "unsigned"])
def test_residual_net__in_qdq__bytes_from_end_to_end(kind: str) -> None:
    _, plan = net(kind)
    # The input quantised, six convolutions, pooling, the mean and its quantisation, the classes.
    assert len(plan.kernels) == 11
    large = [t for t in plan.held().values() if t.size > 256]
    assert len(large) == 7
    assert all(t.dtype.bits == 8 for t in large)
    between = [
        t for p in plan.placed for t in p.outputs if isinstance(t, TensorType) and t.rank == 4 and t.shape[-1] > 1
    ]
    *bytes_, mean = [t.dtype for t in between]
    assert all(t in (DType.UINT8, DType.INT8) for t in bytes_)
    assert mean is DType.FLOAT  # the last convolution dequantises for the mean over it


@pytest.mark.parametrize("kind", ["16 bits", "16 bits, signed"])
def test_residual_net__of_16_bits__quantises_where_it_computes(kind: str) -> None:
    _, plan = net(kind)
    # As with 8 bits, but for two float tensors, which their consumers need, and a split convolution.
    assert len(plan.kernels) <= 14, plan.kernels
    assert sum(k.startswith("quantize") for k in plan.kernels) == 1  # after the mean
