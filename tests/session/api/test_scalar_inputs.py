"""Inputs that are declared as scalars take every shape, as in onnxruntime: voice detectors are fed a rate of [1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import pyruntime
from tests.desktop import on_desktop

CPU = ["CPUExecutionProvider"]

MODELS = {
    "branch": """g (float[N, 4] x, int64 s) => (float[N, 4] y, int64 z) {
        k = Constant <value = int64 {16000}> ()
        c = Equal(s, k)
        y = If (c) <
            then_branch = t () => (float[P, 4] a) { a = Mul(x, x) },
            else_branch = e () => (float[P, 4] b) { b = Neg(x) }
        >
        z = Identity(s)
    }""",
    "trips": """g (float[N, 4] x, int64 s) => (float[N, 4] y) {
        c = Constant <value = bool {1}> ()
        y = Loop (s, c, x) <body = b (int64 i, bool p, float[N, 4] v) => (bool q, float[N, 4] w) {
            q = Identity(p)  w = Add(v, x)
        }>
    }""",
    "factor": """g (float[N, 4] x, float s) => (float[N, 4] y) { y = Mul(x, s) }""",
    "bound": """g (float[N, 4] x, float s) => (float[N, 4] y) { z = Neg(s)  y = Clip(x, z, s) }""",
}

FEEDS: dict[str, list[Any]] = {
    "branch": [[16000], 16000, [8000], 8000, [16000]],
    "trips": [[3], 2, [0], [5]],
    "factor": [[0.5], 2.0, [[3.0]], [1.0, 2.0, 3.0, 4.0], 2.0],
    "bound": [0.5, [0.25], 0.75],
}


def run(ort: Any, name: str, providers: list[str] | None) -> list[Any]:
    model = parser.parse_model('<ir_version: 9, opset_import: ["": 18]> ' + MODELS[name]).SerializeToString()
    session = ort.InferenceSession(model, providers=providers)
    dtype = np.int64 if name in ("branch", "trips") else np.float32
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    return [session.run(None, {"x": x[: 1 + n % 3], "s": np.array(s, dtype)}) for n, s in enumerate(FEEDS[name])]


def check(found: list[Any], expected: list[Any]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_scalar_input__fed_in_other_shapes__as_onnxruntime(name: str) -> None:
    check(run(pyruntime, name, CPU), run(onnxruntime, name, CPU))


@pytest.mark.parametrize("name", MODELS)
def test_scalar_input__fed_in_other_shapes_on_a_gpu__as_onnxruntime(name: str) -> None:
    with on_desktop():
        found = run(pyruntime, name, ["WebGpuExecutionProvider"])
    check(found, run(onnxruntime, name, CPU))
