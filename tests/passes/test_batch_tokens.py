"""What an iteration computes of its slices alone is computed before the loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime as ort
from tests.models import compare, text_model
from tests.oracle import OPTIONS


def cell(body: str, directions: str = "") -> str:
    """A Scan over x and z with weights, whose body makes a state s2 and a row y."""
    return f"""
agraph (float[2, 6] h, float[n, 2, 4] x, float[n, 2, 6] z, float[4, 6] w, float[6, 6] r, float[6] b) => (p, u) {{
  p, u = Scan <num_scan_inputs = 2 {directions}, body = step (float[2, 6] s, float[2, 4] xt, float[2, 6] zt)
      => (float[2, 6] s2, float[2, 6] y) {{ {body} }}> (h, x, z)
}}"""


RECURRENT = "m = MatMul (s, r)  g = Add (a, m)  s2 = Tanh (g)  y = Sub (s2, a)"

CELLS = {
    "MatMul": (cell(f"xw = MatMul (xt, w)  a = Add (xw, b)  {RECURRENT}"), 1),
    "Gemm": (cell(f"xw = Gemm (xt, w, b)  a = Sigmoid (xw)  {RECURRENT}"), 1),
    "two slices": (cell(f"xw = MatMul (xt, w)  e = Exp (zt)  a = Mul (xw, e)  {RECURRENT}"), 1),
    "backward": (
        cell(f"xw = MatMul (xt, w)  a = Mul (xw, zt)  {RECURRENT}", ", scan_input_directions = [1, 1]"),
        1,
    ),
    "two directions": (
        cell(f"xw = MatMul (xt, w)  a = Mul (xw, zt)  {RECURRENT}", ", scan_input_directions = [1, 0]"),
        1,
    ),
    "only rows": (cell("y = Exp (zt)  xw = MatMul (xt, w)  s2 = Add (s, xw)"), 1),
    "the state alone": (cell("r0 = Mul (r, r)  q = MatMul (s, r0)  a = Add (q, zt)  " + RECURRENT), 0),
}
"""Models, and how many products leave the loop."""


@pytest.mark.parametrize("name", CELLS)
def test_cells__with_products_of_tokens__as_onnxruntime(name: str, desktop_gpu: None) -> None:
    text, before = CELLS[name]
    model = text_model(text).SerializeToString()
    session, oracle = ort.InferenceSession(model), onnxruntime.InferenceSession(model, OPTIONS)
    for length in (5, 8, 3, 1):
        random = np.random.default_rng(length)
        feeds: dict[str, Any] = {
            i.name: random.standard_normal([length if d == "n" else d for d in i.shape]).astype(np.float32)
            for i in oracle.get_inputs()
        }
        for mine, theirs in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
            compare(mine, theirs, 1e-4, 1e-5)
    nodes = session.explain().nodes
    assert "host" not in {n.placement for n in nodes}
    found = Counter(n.op_type.split(" ")[0] for n in nodes if n.placement == "gpu")
    assert found["MatMul"] + found["Gemm"] == before
