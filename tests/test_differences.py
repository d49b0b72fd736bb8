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


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("opset", [11, 13, 18])
def test_reduce_mean__no_elements__nan(dtype: Any, opset: int) -> None:
    x = np.zeros((2, 0), dtype)
    inputs: list[Array | None] = [x, np.array([1])] if opset == 18 else [x]
    axes: dict[str, Any] = {} if opset == 18 else {"axes": [1]}
    for keep in (0, 1):
        assert np.isnan(one("ReduceMean", inputs, opset, keepdims=keep, **axes)).all()
        assert not ort_run("ReduceMean", inputs, opset, keepdims=keep, **axes)[0].any()


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


def test_resize__weighted_sums_of_integers__rounded_once() -> None:
    even, sizes = np.full((1, 1, 9, 11), 100, np.uint8), np.array([1, 1, 20, 23])
    inputs: list[Array | None] = [even, None, None, sizes]
    assert (one("Resize", inputs, 19, mode="linear") == 100).all()
    assert 99 in ort_run("Resize", inputs, 19, mode="linear")[0]
    signed: list[Array | None] = [np.full((1, 1, 9, 11), -5, np.int8), None, None, np.array([1, 1, 4, 5])]
    assert (one("Resize", signed, 19, mode="linear", antialias=1) == -5).all()
    assert not ort_run("Resize", signed, 19, mode="linear", antialias=1)[0].any()


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pool__same_padding_with_dilations__has_as_many_outputs_as_onnx_says(op_type: str) -> None:
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    window: dict[str, Any] = {"kernel_shape": [3], "auto_pad": "SAME_UPPER", "dilations": [2], "strides": [2]}
    assert one(op_type, [x], 22, **window).shape == (1, 1, 3)
    assert ort_run(op_type, [x], 22, **window)[0].shape == (1, 1, 2)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pool__window_longer_than_the_input__is_refused(op_type: str) -> None:
    x = np.ones((1, 1, 2), np.float32)
    with pytest.raises(pyruntime.errors.InvalidGraph, match="windows that fit the padded input"):
        one(op_type, [x], 22, kernel_shape=[3])
    assert ort_run(op_type, [x], 22, kernel_shape=[3])[0].shape == (1, 1, 0)


def test_string_split__without_delimiter__at_all_white_space() -> None:
    x = np.array(["a\tb c"], object)
    op = make_op(node_of("StringSplit", [x], 2), {"": 20})
    assert run_op(op, [x])[0].tolist() == [["a", "b", "c"]]
    assert ort_run("StringSplit", [x], 20, 2)[0].tolist() == [["a\tb", "c"]]


ML = "ai.onnx.ml"


def learned(op_type: str, x: Array, **attributes: Any) -> tuple[list[Any], list[Any]]:
    """Both outputs of a classifier, in onnxruntime and here."""
    opsets = {"": 15, ML: attributes.pop("opset", 1)}
    mine = run_op(make_op(node_of(op_type, [x], 2, ML, **attributes), opsets), [x])
    return ort_run(op_type, [x], 15, 2, ML, opsets[ML], **attributes), list(mine)


def test_svm_classifier__two_labels_without_support_vectors__larger_score_decides() -> None:
    x = np.array([[1, 0], [0, 1]], np.float32)
    machine: dict[str, Any] = {"coefficients": [1.0, -0.5, 0.5, 1.0], "rho": [0.0], "kernel_params": [0.0] * 3}
    theirs, mine = learned("SVMClassifier", x, classlabels_ints=[5, 6], **machine)
    np.testing.assert_array_equal(theirs[1], mine[1])
    assert (theirs[0].tolist(), mine[0].tolist()) == ([6, 6], [5, 6])


def test_svm_classifier__one_label_with_support_vectors__is_refused() -> None:
    x = np.ones((1, 2), np.float32)
    machine: dict[str, Any] = {"coefficients": [1.0], "support_vectors": [1.0, 1.0], "vectors_per_class": [1]}
    with pytest.raises(pyruntime.errors.InvalidGraph, match="two classes or more"):
        learned("SVMClassifier", x, classlabels_ints=[5], rho=[0.1], kernel_params=[0.0] * 3, **machine)


def test_probit__one_score_of_two_labels__quantiles_of_both() -> None:
    x = np.array([[0.3], [0.7]], np.float32)
    attributes: dict[str, Any] = {"coefficients": [1.0], "intercepts": [0.0], "classlabels_ints": [5, 6]}
    theirs, mine = learned("LinearClassifier", x, post_transform="PROBIT", **attributes)
    quantile = ort_run("LinearRegressor", [x], 15, 1, ML, coefficients=[1.0], post_transform="PROBIT")[0]
    np.testing.assert_allclose(mine[1], np.concatenate([-quantile, quantile], axis=1), 1e-5)
    assert not np.allclose(theirs[1], mine[1])


STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
"""A tree of two leaves."""


def test_tree_classifier__no_votes_or_votes_for_one_label__base_values_count() -> None:
    x, labels = np.ones((1, 1), np.float32), {"classlabels_int64s": [5, 6], "base_values": [0.25, 0.75]}
    theirs, mine = learned("TreeEnsembleClassifier", x, **STUMP, **labels)
    assert [v.tolist() for v in theirs] == [[0], [[0, 0]]]
    assert [v.tolist() for v in mine] == [[6], [[0.25, 0.75]]]
    votes = {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 0], "class_weights": [1.0, 1.0]}
    theirs, mine = learned("TreeEnsembleClassifier", x, **STUMP, **labels, **votes)
    assert [v.tolist() for v in theirs] == [[6], [[1.25, 0]]]
    assert [v.tolist() for v in mine] == [[5], [[1.25, 0.75]]]


def test_affine_grid__one_pixel_with_aligned_corners__in_the_middle() -> None:
    inputs: list[Array | None] = [np.array([[[1, 0, 0], [0, 1, 0]]], np.float32), np.array([1, 1, 1, 1])]
    assert not one("AffineGrid", inputs, 20, align_corners=1).any()
    assert (ort_run("AffineGrid", inputs, 20, align_corners=1)[0] == 1).all()
