"""What docs/DIFFERENCES.md says of numbers: onnxruntime's and this project's, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import FunctionProto, TensorProto, helper

import pyruntime
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import OPTIONS, node_of, ort_run

FLOAT = TensorProto.FLOAT


def both(
    nodes: Sequence[Any], fed: Mapping[str, Array], opset: int = 21, functions: Sequence[FunctionProto] = ()
) -> tuple[Array, Array]:
    """Output y of a model in onnxruntime and here, on NumPy."""
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in fed.items()
    ]
    graph = helper.make_graph(nodes, "both", inputs, [helper.make_tensor_value_info("y", FLOAT, None)])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))
    model = made.SerializeToString()
    cpu = ["CPUExecutionProvider"]
    theirs = onnxruntime.InferenceSession(model, OPTIONS, providers=cpu).run(None, dict(fed))[0]
    mine = pyruntime.InferenceSession(model, providers=cpu).run(None, dict(fed))[0]
    return np.asarray(theirs), np.asarray(mine)


def one(op_type: str, inputs: list[Array | None], opset: int = 21, **attributes: Any) -> Array:
    """The first output here, on NumPy."""
    return run_op(make_op(node_of(op_type, inputs, **attributes), {"": opset}), inputs)[0]


@pytest.mark.parametrize("to", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2])
def test_cast__float_to_four_and_two_bits__truncates(to: int) -> None:
    x = np.array([0.4, 0.9, 1.5, 1.9], np.float32)
    nodes = [helper.make_node("Cast", ["x"], ["z"], to=to), helper.make_node("Cast", ["z"], ["y"], to=FLOAT)]
    theirs, mine = both(nodes, {"x": x}, opset=25)
    rounded = [0, 1, -2, -2] if to == TensorProto.INT2 else [0, 1, 2, 2]
    assert (theirs.tolist(), mine.tolist()) == (rounded, [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("to", "x", "theirs", "mine"),
    [
        (TensorProto.FLOAT8E4M3FN, 480, 448, np.nan),
        (TensorProto.FLOAT8E4M3FN, 500, np.nan, np.nan),
        (TensorProto.FLOAT8E5M2, 61441, np.nan, np.inf),
        (TensorProto.FLOAT8E5M2, 70000, np.inf, np.inf),
    ],
)
def test_cast__to_eight_bits_without_saturation__overflows_as_onnx(
    to: int, x: float, theirs: float, mine: float
) -> None:
    cast = helper.make_node("Cast", ["x"], ["z"], to=to, saturate=0)
    found = both([cast, helper.make_node("Cast", ["z"], ["y"], to=FLOAT)], {"x": np.array([x], np.float32)})
    np.testing.assert_array_equal(np.concatenate(found), np.array([theirs, mine], np.float32))


def test_attention__lowest_float_masks_a_whole_row__mean_of_the_values() -> None:
    r = np.random.default_rng(0)
    q, k, v = (r.random((1, 1, n, 4), np.float32) for n in (2, 3, 3))
    mask = np.full((2, 3), np.finfo(np.float32).min)
    theirs, mine = both([helper.make_node("Attention", list("qkvm"), ["y"])], {"q": q, "k": k, "v": v, "m": mask}, 23)
    assert not theirs.any()
    np.testing.assert_allclose(mine[0, 0], np.broadcast_to(v[0, 0].mean(axis=0), (2, 4)), 1e-5)


@pytest.mark.parametrize("length", [7, 10])
def test_dft__inverse_of_half_a_spectrum_with_a_length__as_numpy(length: int) -> None:
    x = np.random.default_rng(1).standard_normal((1, 5, 2)).astype(np.float32)
    inputs: list[Array | None] = [x, np.array(length), np.array(1)]
    expected = np.fft.irfft(x[0, :, 0] + 1j * x[0, :, 1], length)
    np.testing.assert_allclose(one("DFT", inputs, 20, inverse=1, onesided=1)[0, :, 0], expected, 1e-4, 1e-5)
    assert not np.allclose(ort_run("DFT", inputs, 20, inverse=1, onesided=1)[0][0, :, 0], expected, atol=1e-2)


@pytest.mark.parametrize(
    ("activation", "default"), [("Affine", (1.0, 0.0)), ("ScaledTanh", (1.0, 1.0)), ("ThresholdedRelu", (1.0, None))]
)
def test_rnn__activation_without_alpha__has_the_operator_s_defaults(
    activation: str, default: tuple[float, float | None]
) -> None:
    r = np.random.default_rng(2)
    inputs: list[Array | None] = [
        r.standard_normal(shape).astype(np.float32) for shape in ((3, 2, 4), (1, 3, 4), (1, 3, 3))
    ]
    given: dict[str, Any] = {"activation_alpha": [default[0]]} | (
        {} if default[1] is None else {"activation_beta": [default[1]]}
    )
    named: dict[str, Any] = {"hidden_size": 3, "activations": [activation]}
    mine = one("RNN", inputs, 14, **named)
    np.testing.assert_allclose(mine, ort_run("RNN", inputs, 14, **named, **given)[0], 1e-4, 1e-5)
    assert not np.allclose(mine, ort_run("RNN", inputs, 14, **named)[0])


def test_function__named_as_an_operator__is_called() -> None:
    body = [helper.make_node("Neg", ["X"], ["Y"])]
    function = helper.make_function("com.microsoft", "Gelu", ["X"], ["Y"], body, [helper.make_opsetid("", 21)])
    call, x = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"), np.array([1, -1], np.float32)
    theirs, mine = both([call], {"x": x}, functions=[function])
    np.testing.assert_allclose(theirs, [0.8413447, -0.15865526], 1e-5)
    np.testing.assert_array_equal(mine, -x)


def test_reduce_mean__no_elements__nan() -> None:
    x = np.zeros((2, 0), np.float32)
    inputs: list[Array | None] = [x, np.array([1])]
    assert np.isnan(one("ReduceMean", inputs, 18)).all() and not ort_run("ReduceMean", inputs, 18)[0].any()


def test_resize__antialiased_axis_that_keeps_its_length__is_resampled() -> None:
    x, scales = np.array([[1, 4, 9, 25]], np.float32), np.array([2, 1.2], np.float32)
    resize: dict[str, Any] = {"mode": "linear", "antialias": 1}
    np.testing.assert_array_equal(ort_run("Resize", [x, None, scales], 19, **resize)[0][0], x[0])
    (wanted,) = ort_run("Resize", [x, None, scales], 19, mode="linear")
    np.testing.assert_allclose(one("Resize", [x, None, scales], 19, **resize), wanted, 1e-5)


@pytest.mark.parametrize("row", [[np.nan, 1, 2], [1, np.nan, 2], [1, 2, np.nan]])
def test_extremes__nan_anywhere__nan(row: list[float]) -> None:
    x = np.array(row, np.float32)
    place = int(np.flatnonzero(np.isnan(x))[0])
    for op_type, opset in (("ReduceMax", 13), ("ReduceMin", 13)):
        assert np.isnan(one(op_type, [x], opset))
        assert bool(np.isnan(ort_run(op_type, [x], opset)[0][0])) is (place == 0)  # by where it stands
    for op_type in ("ArgMax", "ArgMin"):
        assert one(op_type, [x], 13, axis=0).tolist() == [place]
    assert np.isnan(one("MaxPool", [x[None, None]], 12, kernel_shape=[3]))
    assert not np.isnan(ort_run("MaxPool", [x[None, None]], 12, kernel_shape=[3])[0])
