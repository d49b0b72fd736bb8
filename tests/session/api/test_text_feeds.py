"""What becomes text when it is fed: bytes and other objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import pyruntime as ort
from pyruntime.errors import InvalidArgument

X, Y = (helper.make_tensor_value_info(name, 8, ["N"]) for name in "xy")


def identity() -> bytes:
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [X], [Y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


def run(texts: Any) -> list[Any]:
    (y,) = ort.InferenceSession(identity()).run(None, {"x": texts})
    return list(y)


def test_feeds__objects_in_place_of_texts__as_onnxruntime() -> None:
    mixed = np.array(["a", 3, None, 1.5, True, np.float32(0.25)], object)
    session = onnxruntime.InferenceSession(identity(), providers=["CPUExecutionProvider"])
    assert run(mixed) == list(session.run(None, {"x": mixed})[0])
    assert all(type(text) is str for text in run(mixed))


@pytest.mark.parametrize("dtype", ["S", object])
def test_feeds__bytes__are_read_as_utf_8(dtype: Any) -> None:
    assert run(np.array(["ä".encode(), b"bc"], dtype)) == ["ä", "bc"]
    with pytest.raises(InvalidArgument, match="expected UTF-8"):
        run(np.array([b"\xff"], dtype))
