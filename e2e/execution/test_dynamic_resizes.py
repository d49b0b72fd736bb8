"""Resize in plans for every size, on WebGPU: what it reads and weighs is as in plans for one size."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.execution.test_dynamic_sizes import RUN, x
from e2e.harness.python import BrowserPython

pytestmark = pytest.mark.unguarded

RESIZES = [
    ("nearest", coordinates, nearest, scale)
    for coordinates in ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
    for nearest in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    for scale in (2.0, 0.5, 3.0, 1.5, 0.75)
    if (coordinates, nearest) != ("tf_half_pixel_for_nn", "ceil")
] + [
    ("linear", coordinates, "floor", scale)
    for coordinates in ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
    for scale in (2.0, 0.5, 3.0, 1.5, 0.75)
]


FILTERS = [
    {"mode": mode, "coordinate_transformation_mode": coordinates, "scale": scale, **how}
    for mode in ("linear", "cubic")
    for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    for scale in (2.0, 0.5, 0.75, 0.125)
    for how in ({}, {"antialias": 1}, {"exclude_outside": 1}, {"antialias": 1, "exclude_outside": 1})
    if mode == "cubic" or how
] + [{"mode": "cubic", "cubic_coeff_a": -0.5, "scale": s, "antialias": a} for s in (3.0, 0.5) for a in (0, 1)]
SCALES = (2.0, 0.5, 3.0, 1.5, 0.75, 0.125)


def resizes(opset: int, ways: list[dict[str, Any]], sizes: bool = False) -> bytes:
    """x: [1, 2, h, w] -> one output for each way of Resize; `sizes`: to a size that is computed, not by a scale."""
    nodes = []
    if sizes:
        nodes = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Div", ["shape", "half"], ["smaller"])]
        nodes.append(helper.make_node("Add", ["shape", "some"], ["larger"]))
    for i, way in enumerate(ways):
        how = {name: value for name, value in way.items() if name != "scale"}
        to = ["", "smaller" if way["scale"] < 1 else "larger"] if sizes else [f"s{way['scale']}"]
        nodes.append(helper.make_node("Resize", ["x", "", *to], [f"y{i}"], **how))
    constants = [numpy_helper.from_array(np.array([1, 1, s, s], np.float32), f"s{s}") for s in SCALES]
    constants += [numpy_helper.from_array(np.array(v), n) for n, v in (("half", [1, 1, 2, 2]), ("some", [0, 0, 3, 9]))]
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(len(ways))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "h", "w"])]
    graph = helper.make_graph(nodes, "resizes", inputs, outputs, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(made.SerializeToString())


def compare_resizes(model: bytes, ways: list[dict[str, Any]], python: BrowserPython) -> None:
    """Plans for dynamic sizes against those of one size each, which onnxruntime is compared with elsewhere."""
    fed = [x(1, 2, h, w) for h, w in ((24, 19), (33, 40), (19, 64), (57, 30))]
    found, told, plans = python(RUN, model=model, fed=fed, gpu=False)
    assert not told["fixed"] and any(plans), told
    closed = RUN.replace('"software" if gpu else ""', '"dynamic_dimensions"')
    wanted, _, plans = python(closed, model=model, fed=fed, gpu=False)
    assert not any(plans)
    for number, (run, expected) in enumerate(zip(found, wanted, strict=True)):
        for how, y, z in zip(ways, run, expected, strict=True):
            np.testing.assert_allclose(y, z, 1e-5, 0 if how["mode"] == "nearest" else 1e-5, err_msg=f"{how} {number}")


def moved_by_rounding(most: int) -> list[tuple[int, int]]:
    """(length, outputs) where nearest elements in float32 are others than those of exact quotients."""
    found = []
    for length, outputs in itertools.product(range(2, most), repeat=2):
        exact = np.arange(outputs) * length // outputs
        if (np.floor(np.arange(outputs, dtype=np.float32) / np.float32(outputs / length)) != exact).any():
            found.append((length, outputs))
    return found


@pytest.mark.parametrize("gpu", [False, True], ids=["software", "gpu"])
def test_resize__to_the_size_of_something_else__takes_the_elements_of_float32(
    gpu: bool, python_in_browser: BrowserPython
) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Shape", ["like"], ["length"]),
        helper.make_node("Concat", ["rows", "length"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", nearest_mode="floor",
                         coordinate_transformation_mode="asymmetric"),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in {"x": ["r", "l"], "like": ["m"]}.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "nearest", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    pairs = moved_by_rounding(150)
    assert len(pairs) > 100
    pairs = [(9, 7), (600, 450), *pairs[:: len(pairs) // 40], (900, 31), (64, 900), (120, 120), (700, 699)]
    fed = [
        {"x": np.arange(2 * length, dtype=np.float32).reshape(2, length), "like": np.zeros(most, np.float32)}
        for length, most in pairs
    ]
    found, told, plans = python_in_browser(RUN, model=model, fed=fed, gpu=gpu)
    assert not told["fixed"] and any(plans)
    reference = onnxruntime.InferenceSession(model)
    for feeds, pair, (y,) in zip(fed, pairs, found, strict=True):
        np.testing.assert_array_equal(y, reference.run(None, feeds)[0], err_msg=str(pair))


def test_resize__every_formula_of_coordinates__as_tables_have_it(python_in_browser: BrowserPython) -> None:
    names = "mode", "coordinate_transformation_mode", "nearest_mode", "scale"
    ways = [dict(zip(names, way, strict=True)) for way in RESIZES]
    compare_resizes(resizes(17, ways), ways, python_in_browser)


@pytest.mark.parametrize("sizes", [False, True], ids=["scales", "sizes"])
def test_resize__every_filter__as_tables_have_it(sizes: bool, python_in_browser: BrowserPython) -> None:
    ways = [way for way in FILTERS if not sizes or way["scale"] in (2.0, 0.5)]
    compare_resizes(resizes(18, ways, sizes), ways, python_in_browser)
