"""The pooling operators on the host, and what they lower to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op, Unsupported
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

GLOBAL = {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}


def pool_cases(count: int, seed: int = 0) -> Iterator[tuple[str, Array, int, dict[str, Any]]]:
    """Operator, input, number of outputs, attributes; over one to three axes."""
    for number in range(count):
        r, rng = random.Random(1000 * seed + number), np.random.default_rng(1000 * seed + number)
        name = r.choice(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
        rank = r.choice((1, 2, 2, 3))
        kernel = [r.choice((1, 2, 3, 4)) for _ in range(rank)]
        attributes: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": r.choice((0, 1))}
        # A stride past the kernel makes onnxruntime pad SAME by negative numbers.
        attributes["strides"] = [r.choice([s for s in (1, 1, 2, 3) if s <= k]) for k in kernel]
        padding = r.choice(("pads", "pads", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
        if padding == "pads":
            attributes["pads"] = [r.randint(0, k - 1) for k in kernel * 2]
        elif padding:
            attributes["auto_pad"] = padding
        if not padding.startswith("SAME"):
            attributes["dilations"] = [r.choice((1, 1, 2)) for _ in range(rank)]
        outputs, dtype = 1, "float32"
        if name == "MaxPool":
            outputs = r.choice((1, 2))
            attributes["storage_order"] = r.choice((0, 1)) if outputs == 2 else 0
            dtype = r.choice(("float32", "float32", "int8", "uint8"))
        elif name == "AveragePool":
            attributes["count_include_pad"] = r.choice((0, 1))
        else:
            attributes["p"] = r.choice((1, 2, 3))
        shape = (r.choice((1, 2)), r.choice((1, 3)), *(r.randint(7, 11) for _ in kernel))
        yield name, (rng.standard_normal(shape) * 50).astype(dtype), outputs, attributes


def pool_op(name: str, inputs: int = 1, outputs: int = 1, opset: int = 22, **attributes: Any) -> Op:
    """The operator of a node with `inputs` inputs."""
    made: Op = make_op(node_of(name, [np.zeros(1)] * inputs, outputs, **attributes), {"": opset})
    return made


def test_pool__random__as_onnxruntime() -> None:
    for name, x, outputs, attributes in pool_cases(100):
        opset = 18 if name == "LpPool" else 19
        check_against_ort(name, [x], opset=opset, outputs=outputs, tolerance=(1e-4, 1e-4), **attributes)


@pytest.mark.parametrize(
    ("name", "opset", "attributes"),
    [
        ("MaxPool", 7, {}),
        ("MaxPool", 8, {"storage_order": 1}),
        ("MaxPool", 10, {"dilations": [2, 1], "ceil_mode": 1}),
        ("AveragePool", 7, {"count_include_pad": 1}),
        ("AveragePool", 10, {"ceil_mode": 1}),
        ("LpPool", 11, {"p": 4}),
    ],
)
def test_pool__older_opset__as_onnxruntime(name: str, opset: int, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 8)).astype(np.float32)
    outputs = 2 if "storage_order" in attributes else 1
    check_against_ort(
        name, [x], opset=opset, outputs=outputs, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], **attributes
    )


LARGER: list[dict[str, Any]] = [
    {"kernel_shape": [7, 5], "strides": [7, 2]},
    {"kernel_shape": [7, 6], "strides": [3, 3]},
    {"kernel_shape": [7, 3], "strides": [7, 1], "auto_pad": "VALID"},
    {"kernel_shape": [9, 6], "strides": [4, 4], "pads": [0, 1, 1, 0]},
    {"kernel_shape": [3, 2], "strides": [5, 2], "dilations": [4, 3]},
    {"kernel_shape": [9, 9], "strides": [2, 3], "pads": [4, 4, 3, 5]},
    {"kernel_shape": [9, 11], "strides": [1, 1], "pads": [8, 9, 8, 9], "dilations": [1, 2]},
    {"kernel_shape": [1280, 1280], "strides": [1280, 1280]},
]
"""Windows larger than a padded input of 5 x 4."""


@pytest.mark.parametrize("ceil_mode", [0, 1])
@pytest.mark.parametrize("attributes", LARGER)
def test_pool__window_larger_than_the_input__sees_what_is_there(attributes: dict[str, Any], ceil_mode: int) -> None:
    x = np.random.default_rng(4).standard_normal((2, 3, 5, 4)).astype(np.float32)
    form = {**attributes, "ceil_mode": ceil_mode}
    check_against_ort("LpPool", [x], opset=22, **form)
    check_against_ort("MaxPool", [x], outputs=2, **form)
    check_against_ort("MaxPool", [(50 * x).astype(np.int8)], **form)
    for count_include_pad in (0, 1):
        check_against_ort("AveragePool", [x], opset=22, count_include_pad=count_include_pad, **form)


@pytest.mark.parametrize("name", ["AveragePool", "LpPool", "MaxPool"])
def test_pool__window_far_larger_than_the_input__is_refused(name: str) -> None:
    op = pool_op(name, kernel_shape=[7], strides=[2], ceil_mode=1)
    with pytest.raises(InvalidGraph, match="a window of 7 does not fit 5"):
        op.infer(TensorType(DType.FLOAT, (1, 1, 5)))


@pytest.mark.parametrize("strides", [[1], [7]])
def test_conv__window_larger_than_the_input__is_refused(strides: list[int]) -> None:
    op = pool_op("Conv", 2, strides=strides)
    with pytest.raises(InvalidGraph, match="a window of 7 does not fit 5"):
        op.infer(TensorType(DType.FLOAT, (1, 1, 5)), TensorType(DType.FLOAT, (1, 1, 7)))


@pytest.mark.parametrize("name", sorted(GLOBAL))
def test_global_pool__random__as_onnxruntime(name: str) -> None:
    for shape in ((2, 3, 5), (1, 4, 5, 6), (2, 1, 2, 3, 4)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        attributes: dict[str, Any] = {"p": 3} if name == "GlobalLpPool" else {}
        check_against_ort(name, [x], **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", ["AveragePool", "LpPool", "MaxPool", *sorted(GLOBAL)])
def test_pool__other_float__close_to_float32(name: str, dtype: type) -> None:
    x: Array = np.random.default_rng(2).standard_normal((2, 3, 6, 6)).astype(dtype)
    attributes: dict[str, Any] = {} if name in GLOBAL else {"kernel_shape": [3, 3]}
    op = pool_op(name, **attributes)
    (got,), (expected,) = run_op(op, [x]), run_op(op, [x.astype(np.float32)])
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float32), expected, 1e-3, 1e-3)


def test_max_pool__nan__is_the_maximum_with_the_first_index() -> None:
    x = np.array([[[1, np.nan, 2, np.nan, -np.inf, -np.inf]]], np.float32)
    y, indices = run_op(pool_op("MaxPool", outputs=2, kernel_shape=[3]), [x])
    np.testing.assert_array_equal(y, [[[np.nan, np.nan, np.nan, np.nan]]])
    np.testing.assert_array_equal(indices, [[[1, 1, 3, 3]]])
    y, indices = run_op(pool_op("MaxPool", outputs=2, kernel_shape=[2], pads=[1, 1]), [x[:, :, 4:]])
    np.testing.assert_array_equal(y, np.full((1, 1, 3), -np.inf))
    np.testing.assert_array_equal(indices, [[[0, 0, 1]]])
    np.testing.assert_array_equal(run_op(pool_op("GlobalMaxPool"), [x])[0], [[[np.nan]]])


def test_pool__window_of_padding_alone__neutral_element() -> None:
    x = np.array([[[3, 4]]], np.float32)
    attributes: dict[str, Any] = {"kernel_shape": [2], "pads": [2, 2]}
    np.testing.assert_array_equal(run_op(pool_op("AveragePool", **attributes), [x])[0], [[[0, 3, 3.5, 4, 0]]])
    np.testing.assert_array_equal(run_op(pool_op("LpPool", p=1, **attributes), [x])[0], [[[0, 3, 7, 4, 0]]])
    y, indices = run_op(pool_op("MaxPool", outputs=2, **attributes), [x])
    np.testing.assert_array_equal(y, [[[-np.inf, 3, 4, 4, -np.inf]]])
    np.testing.assert_array_equal(indices, [[[-1, 0, 1, 1, -1]]])


def test_pool__no_images__no_output() -> None:
    for name in ("MaxPool", "AveragePool", "LpPool"):
        (y,) = run_op(pool_op(name, kernel_shape=[2, 2]), [np.zeros((0, 3, 4, 4), np.float32)])
        assert y.shape == (0, 3, 3, 3)
    for name in GLOBAL:
        assert run_op(pool_op(name), [np.zeros((0, 3, 4, 4), np.float32)])[0].shape == (0, 3, 1, 1)


def test_max_unpool__inverts_max_pool() -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 8, 6)).astype(np.float32)
    y, indices = run_op(pool_op("MaxPool", outputs=2, kernel_shape=[2, 2], strides=[2, 2]), [x])
    op = pool_op("MaxUnpool", 2, kernel_shape=[2, 2], strides=[2, 2])
    (back,) = run_op(op, [y, indices])
    assert back.shape == x.shape
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert np.count_nonzero(back) == y.size
    check_against_ort("MaxUnpool", [y, indices], kernel_shape=[2, 2], strides=[2, 2])


def test_max_unpool__index_out_of_range__runtime_exception() -> None:
    op = pool_op("MaxUnpool", 2, kernel_shape=[2])
    with pytest.raises(RuntimeException, match=r"\[0, 3\)"):
        run_op(op, [np.ones((1, 1, 2), np.float32), np.array([[[0, 3]]])])


@pytest.mark.parametrize(
    ("name", "shape", "attributes"),
    [
        ("MaxPool", (1, 3), {"kernel_shape": [1]}),
        ("MaxPool", (1, 3, 4), {"kernel_shape": [2, 2]}),
        ("MaxPool", (1, 3, 4), {"kernel_shape": [5]}),
        ("MaxPool", (1, 3, 4), {"kernel_shape": [0]}),
        ("LpPool", (1, 3, 4), {"kernel_shape": [2], "p": 0}),
        ("GlobalMaxPool", (3,), {}),
    ],
)
def test_infer__malformed__invalid_graph(name: str, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph, match=f"{name}: expected"):
        pool_op(name, **attributes).infer(TensorType(DType.FLOAT, shape))


def test_lower__one_window_over_everything__a_reduction() -> None:
    x = TensorType(DType.FLOAT, (1, 512, 7, 7))
    for name, kernel in (("AveragePool", "reduce_mean"), ("MaxPool", "reduce_max"), ("LpPool", "reduce_l2")):
        (dispatch,) = pool_op(name, kernel_shape=[7, 7]).lower(Target(), x)
        assert dispatch.kernel.name.startswith(kernel)
    (dispatch,) = pool_op("MaxPool", kernel_shape=[7, 7], pads=[1, 1, 1, 1]).lower(Target(), x)
    assert dispatch.kernel.name.startswith("pool")


def test_lower__float64__unsupported() -> None:
    with pytest.raises(Unsupported, match="float64"):
        pool_op("MaxPool", kernel_shape=[2]).lower(Target(), TensorType(DType.DOUBLE, (1, 1, 4)))
