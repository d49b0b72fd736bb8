"""Trained models cut where they round, and the cut model in pieces; onnxruntime's CPU as the judge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from tools.zoo.trained.cut import Cut, cut, pieces

TEXT = """<ir_version: 10, opset_import: ["" : 17]>
g (float[4] x, bool c) => (float[4] y) <float[4] w = {1.0, -2.0, 3.0, 0.5}> {
    a = Add(x, w)
    q, s, z = DynamicQuantizeLinear(a)
    b = DequantizeLinear(q, s, z)
    d = If(c) <
        then_branch = then () => (float[4] t) { t = Mul(b, w) }, else_branch = other () => (float[4] e) { e = Neg(b) }
    >
    q2, s2, z2 = DynamicQuantizeLinear(d)
    y = DequantizeLinear(q2, s2, z2)
}"""


def session_of(data: bytes) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])


@pytest.fixture
def whole(tmp_path: Any) -> Cut:
    onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "model.onnx")
    feeds = {"x": np.array([0.3, 1.7, -2.2, 9.0], np.float32), "c": np.array(True)}
    return cut(tmp_path / "model.onnx", feeds, session_of)


def test_cut__two_roundings__each_part_reads_what_onnxruntime_gave(whole: Cut) -> None:
    _, fed, wanted = whole
    assert set(fed) == {"x", "c", "a/cut", "d/cut"}
    assert list(wanted) == ["y", "a", "d"]


@pytest.mark.parametrize(("limit", "count"), [(math.inf, 1), (0, 3), (48, 3), (96, 2)])
def test_pieces__size_limit__give_all_outputs_of_the_cut_model(whole: Cut, limit: float, count: int) -> None:
    made: dict[str, Any] = {}
    found = list(pieces(whole, limit))
    for data, fed, wanted in found:
        session = session_of(data)
        assert {i.name for i in session.get_inputs()} == set(fed)
        assert [o.name for o in session.get_outputs()] == list(wanted)
        made |= dict(zip(wanted, session.run(None, fed), strict=True))
    assert len(found) == count
    assert list(made) == list(whole[2])
    assert all(np.array_equal(made[name], value) for name, value in whole[2].items())
