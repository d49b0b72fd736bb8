"""Arguments of another Python type than expected: each error names the argument or input, and what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

import pyruntime

MODEL = parser.parse_model(
    """<ir_version: 9, opset_import: ["": 18]>
    g (float[N, 3] x, int64[M] n, uint8[K] u, string[J] t) => (float[N, 3] y, int64[M] m, uint8[K] v, string[J] s) {
        y = Neg(x)  m = Identity(n)  v = Identity(u)  s = Identity(t)
    }"""
).SerializeToString()

FEED: dict[str, Any] = {
    "x": np.ones((2, 3), np.float32), "n": np.array([1, 2]), "u": np.array([1], np.uint8), "t": np.array(["a"], object)
}  # fmt: skip

VALUES: dict[str, tuple[str, Any, type[Exception], str]] = {
    "None": ("x", None, TypeError, "NoneType"),
    "None for texts": ("t", None, TypeError, "NoneType"),
    "dict": ("x", {"a": 1}, TypeError, "dict"),
    "set": ("x", {1.0, 2.0}, TypeError, "set"),
    "text": ("x", "abc", TypeError, "str"),
    "bytes": ("x", b"abc", TypeError, "bytes"),
    "generator": ("n", (i for i in range(3)), TypeError, "generator"),
    "ragged list": ("x", [[1.0, 2.0, 3.0], [1.0]], RuntimeError, "inhomogeneous"),
    "list of texts": ("x", [["a", "b", "c"]], RuntimeError, "could not convert"),
    "list with None": ("n", [None], RuntimeError, "NoneType"),
    "list with NaN for integers": ("n", [float("nan")], RuntimeError, "NaN"),
    "integer that 64 bits do not hold": ("n", [2**70], RuntimeError, "too large"),
    "integer that 8 bits do not hold": ("u", [300], RuntimeError, "300"),
    "negative integer without a sign": ("u", [-1], RuntimeError, "-1"),
    "complex array": ("x", np.ones((2, 3), np.complex64), pyruntime.InvalidArgument, "complex64"),
    "array of objects": ("x", np.ones((2, 3), object), pyruntime.InvalidArgument, "string"),
}


@pytest.fixture(scope="module")
def session() -> pyruntime.InferenceSession:
    return pyruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", VALUES)
def test_feed__value_that_is_no_tensor__names_the_input_and_what_came(
    session: pyruntime.InferenceSession, name: str
) -> None:
    fed, value, builtin, came = VALUES[name]
    with pytest.raises(pyruntime.InvalidArgument, match=f"'{fed}'.*{came}") as raised:
        session.run(None, {**FEED, fed: value})
    assert isinstance(raised.value, builtin)


@pytest.mark.parametrize("value", [[1, 2], (1, 2), range(1, 3), np.int64(1), 1, [np.int32(1), 2]])
def test_feed__lists_and_numbers__are_read_in_the_declared_type(
    session: pyruntime.InferenceSession, value: Any
) -> None:
    if np.ndim(value) == 0:
        value = [value]
    found = session.run(["m"], {**FEED, "n": value})[0]
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.array(value, np.int64))


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "output names as a text": (lambda s: s.run("y", FEED), r"\['y'\]"),
    "feed as a list": (lambda s: s.run(None, list(FEED.values())), r"got list.*'x', 'n'"),
    "no feed": (lambda s: s.run(None, None), "got NoneType"),
    "run options as a text": (lambda s: s.run(None, FEED, "fast"), "RunOptions, got str"),
    "run options as an empty dict": (lambda s: s.run(None, FEED, {}), "RunOptions, got dict"),
    "OrtValues as a list": (lambda s: s.run_with_ort_values(None, list(FEED.values())), r"got list.*'x', 'n'"),
    "OrtValues: output names as a text": (lambda s: s.run_with_ort_values("y", FEED), r"\['y'\]"),
    "OrtValues: run options": (lambda s: s.run_with_ort_values(None, FEED, {}), "RunOptions, got dict"),
    "session options as a dict": (lambda s: type(s)(MODEL, {"a": 1}), "SessionOptions, got dict"),
}


@pytest.mark.parametrize("name", CALLS)
def test_call__argument_of_another_type__says_what_is_expected(session: pyruntime.InferenceSession, name: str) -> None:
    call, text = CALLS[name]
    with pytest.raises(pyruntime.WrongType, match=text):
        call(session)
