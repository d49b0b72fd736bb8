"""Runs whole ONNX models on the host: the importer's graph through the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

from pyruntime.ir import DeclaredType, DType, TensorType, ValueType, declared_element, known
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.interpreter import RunContext, interpret
from tests.harness import carrier
from tests.oracle import OPTIONS

__all__ = ["check_model", "compare", "run_model", "run_model_typed", "text_model", "value_of"]


def value_of(given: Any, declared: DeclaredType | None = None) -> ValueType:
    """A NumPy array, TensorProto, list or None with its type; lists and None need a declaration."""
    given = _array(given)
    if isinstance(given, (np.ndarray, np.generic)):
        dtype, array = carrier(np.asarray(given))
        return known(TensorType(dtype, array.shape), array.astype(object) if dtype is DType.STRING else array)
    element = declared_element(declared)
    assert element is not None and not isinstance(element, DType), f"{given!r} is no {declared}"
    return known(element, _plain(given))


def _array(given: Any) -> Any:
    return onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def _plain(given: Any) -> Any:
    if isinstance(given, list):
        return [_plain(item) for item in given]
    return carrier(given)[1] if isinstance(given, np.ndarray) else given


def run_model_typed(
    model: onnx.ModelProto, feeds: Mapping[str, Any], context: RunContext | None = None
) -> list[ValueType]:
    """The model's outputs in order, with their types."""
    graph = import_model(read_model(model.SerializeToString())).graph
    declared = {v.name: v.type for v in (*graph.inputs, *graph.overridable)}
    made = interpret(graph, {k: value_of(v, declared[k]) for k, v in feeds.items()}, context=context)
    return [made[v.name] for v in graph.outputs]


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Any], context: RunContext | None = None) -> list[Any]:
    """The values of the model's outputs in order."""
    return [value.value() for value in run_model_typed(model, feeds, context)]


def compare(got: Any, expected: Any, rtol: float, atol: float) -> None:
    """Sequences item by item, optionals, maps and tensors: shape, type and values."""
    if isinstance(expected, list):
        assert isinstance(got, list) and len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            compare(mine, theirs, rtol, atol)
    elif expected is None or isinstance(expected, dict):
        assert got == expected
    else:
        dtype, theirs = carrier(expected)
        assert got.shape == theirs.shape, f"shape {got.shape}, expected {theirs.shape}"
        if dtype is DType.STRING:
            np.testing.assert_array_equal(got, theirs)
            return
        assert got.dtype == theirs.dtype, f"type {got.dtype}, expected {theirs.dtype}"
        if dtype.is_float or theirs.dtype.kind == "c":
            np.testing.assert_allclose(got, theirs, rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, theirs)


def text_model(text: str, opset: int = 21) -> onnx.ModelProto:
    """A model written in ONNX's text form, without the header."""
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')


def check_model(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """The model's outputs, after comparing them with onnxruntime's."""
    got = run_model(model, feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    for mine, theirs in zip(got, session.run(None, feeds), strict=True):
        compare(mine, theirs, 1e-5, 1e-6)
    return got
