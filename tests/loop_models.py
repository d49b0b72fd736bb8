"""Models with Scan and Loop whose trips are known before a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.open_models import Writer

__all__ = ["HALF", "LOOPS", "floats", "gated_delta"]

F16, F32 = np.float16, np.float32


def floats(*shape: int, dtype: type = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


STATES = """
agraph (float[3] a, float[3] b, float[n, 3] x, float[n, 2] z)
    => (float[3] p, float[3] q, float[n, 2] u, float[n, 3] v) {
  p, q, u, v = Scan <num_scan_inputs = 2, body = step (float[3] s, float[3] t, float[3] xi, float[2] zi)
      => (float[3] s2, float[3] t2, float[2] ui, float[3] vi) {
    s1 = Add (s, xi)
    s2 = Tanh (s1)
    t2 = Mul (t, s2)
    r = ReduceSum <keepdims = 1> (t2)
    ui = Mul (zi, r)
    vi = Sub (s, t2)
  }> (a, b, x, z)
}"""
"""Two states, two scan inputs, two scan outputs; one output needs a state that was overwritten."""

AXES = """
agraph (float[2] a, float[2, n] x, float[2, 5, n] z) => (p, u, v) {
  p, u, v = Scan <num_scan_inputs = 2, scan_input_axes = [1, -1], scan_input_directions = [1, 0],
      scan_output_axes = [1, 2], scan_output_directions = [0, 1],
      body = step (float[2] s, float[2] xi, float[2, 5] zi) => (float[2] s2, float[2] ui, float[2, 5] vi) {
    s2 = Add (s, xi)
    ui = Exp (xi)
    axes = Constant <value_ints = [1]> ()
    wide = Unsqueeze (s2, axes)
    vi = Mul (zi, wide)
  }> (a, x, z)
}"""

SAME = """
agraph (float[4] a, float[4] b, float[n, 4] x, float[4] w) => (p, q, u, v, e) {
  k = Exp (w)
  p, q, u, v, e = Scan <num_scan_inputs = 1, body = step (float[4] s, float[4] t, float[4] xi)
      => (float[4] s2, float[4] t2, float[4] s3, float[4] xo, float[4] wo) {
    s2 = Identity (s)
    m = Mul (k, w)
    t1 = Add (t, xi)
    t2 = Max (t1, m)
    s3 = Identity (t2)
    xo = Identity (xi)
    wo = Identity (w)
  }> (a, b, x)
}"""
"""A state that is passed through, outputs that are a state, a slice, a captured value; work that each trip repeats."""

SWAPPED = """
agraph (float[3] a, float[3] b, float[n, 3] x) => (p, q, u) {
  p, q, u = Scan <num_scan_inputs = 1, body = step (float[3] s, float[3] t, float[3] xi)
      => (float[3] t2, float[3] s2, float[3] ui) {
    t2 = Identity (t)
    s2 = Identity (s)
    ui = Add (s, xi)
  }> (a, b, x)
}"""

HALF = """
agraph (float16[3] a, float16[n, 3] x) => (p, u) {
  p, u = Scan <num_scan_inputs = 1, body = step (float16[3] s, float16[3] xi) => (float16[3] s2, float16[3] ui) {
    s2 = Add (s, xi)
    ui = Mul (s2, xi)
  }> (a, x)
}"""
"""Rows of 6 bytes, which are no whole words."""

INTEGERS = """
agraph (int64 a, int64[n] x, bool[n] c) => (p, u, d) {
  p, u, d = Scan <num_scan_inputs = 2, body = step (int64 s, int64 xi, bool ci) => (int64 s2, int64 ui, bool di) {
    y = Add (s, xi)
    s2 = Where (ci, y, s)
    ui = Identity (s2)
    di = Not (ci)
  }> (a, x, c)
}"""

NESTED = """
agraph (float[2] a, float[n, 4, 2] x) => (p, u) {
  p, u = Scan <num_scan_inputs = 1, body = outer (float[2] s, float[4, 2] xi) => (float[2] s2, float[4, 2] ui) {
    s2, ui = Scan <num_scan_inputs = 1, body = inner (float[2] t, float[2] xij) => (float[2] t2, float[2] uij) {
      t1 = Add (t, xij)
      t2 = Mul (t1, a)
      uij = Sub (t2, s)
    }> (s, xi)
  }> (a, x)
}"""

IN_IF = """
agraph (bool c, float[2] a, float[n, 2] x) => (p, u) {
  p, u = If (c) <
    then_branch = yes () => (float[2] p1, float[n, 2] u1) {
      p1, u1 = Scan <num_scan_inputs = 1, body = step (float[2] s, float[2] xi) => (float[2] s2, float[2] ui) {
        s2 = Add (s, xi)
        ui = Mul (s2, a)
      }> (a, x)
    },
    else_branch = no () => (float[2] p2, float[n, 2] u2) { p2 = Neg (a)  u2 = Neg (x) }
  >
}"""

LOOP = """
agraph (float[3] a, float[n, 3] x) => (p, u) {
  shape = Shape <end = 1> (x)
  trips = Squeeze (shape)
  yes = Constant <value = bool {1}> ()
  p, u = Loop (trips, yes, a) <body = step (int64 i, bool c, float[3] s) => (bool c2, float[3] s2, float[3] ui) {
    c2 = Identity (c)
    xi = Gather (x, i)
    s2 = Add (s, xi)
    f = Cast <to = 1> (i)
    ui = Mul (s2, f)
  }>
}"""

LOOPS: dict[str, tuple[str, Any]] = {
    "states": (STATES, lambda n: {"a": floats(3), "b": floats(3, seed=1), "x": floats(n, 3), "z": floats(n, 2)}),
    "axes": (AXES, lambda n: {"a": floats(2), "x": floats(2, n), "z": floats(2, 5, n)}),
    "same": (SAME, lambda n: {"a": floats(4), "b": floats(4, seed=1), "x": floats(n, 4), "w": floats(4, seed=2)}),
    "swapped": (SWAPPED, lambda n: {"a": floats(3), "b": floats(3, seed=1), "x": floats(n, 3)}),
    "half": (HALF, lambda n: {"a": floats(3, dtype=F16), "x": floats(n, 3, dtype=F16, seed=1)}),
    "integers": (
        INTEGERS,
        lambda n: {"a": np.array(-(1 << 40)), "x": np.arange(n) * (1 << 35), "c": np.arange(n) % 3 > 0},
    ),
    "nested": (NESTED, lambda n: {"a": floats(2), "x": floats(n, 4, 2)}),
    "in If": (IN_IF, lambda n: {"c": np.array(True), "a": floats(2), "x": floats(n, 2)}),
    "loop": (LOOP, lambda n: {"a": floats(3), "x": floats(n, 3)}),
}
"""Models and their feeds for n steps."""


def _delta_body(heads: int, size: int) -> onnx.GraphProto:
    """One token of the gated delta rule, of states [heads, size, size]."""

    def value(name: str, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    steps = (
        ("Exp", "g", "e0"),
        ("Unsqueeze", "e0 both", "e"),
        ("Mul", "s e", "decayed"),
        ("Unsqueeze", "k last", "column"),
        ("Mul", "decayed column", "recalls"),
        ("ReduceSum", "recalls first", "recalled"),
        ("Sub", "v recalled", "difference"),
        ("Unsqueeze", "b first", "rate"),
        ("Mul", "difference rate", "correction"),
        ("Unsqueeze", "correction first", "row"),
        ("Mul", "column row", "update"),
        ("Add", "decayed update", "next"),
        ("Unsqueeze", "q last", "query"),
        ("Mul", "next query", "reads"),
        ("ReduceSum", "reads first", "y"),
    )
    axes = {"both": [1, 2], "last": [2], "first": [1]}
    nodes = []
    for op_type, inputs, output in steps:
        first, _, rest = inputs.partition(" ")
        more: dict[str, Any] = {"keepdims": 0} if op_type == "ReduceSum" else {}
        nodes.append(helper.make_node(op_type, [first, *filter(None, [rest])], [output], **more))
    given = [value("s", heads, size, size), *(value(n, heads, size) for n in "qkv"), *(value(n, heads) for n in "gb")]
    made = [value("next", heads, size, size), value("y", heads, size)]
    constants = [numpy_helper.from_array(np.array(a, np.int64), n) for n, a in axes.items()]
    return helper.make_graph(nodes, "token", given, made, constants)


def gated_delta(layers: int, hidden: int, heads: int, size: int) -> bytes:
    """x: [length, hidden] -> y, through layers with random weights, each a Scan of the gated delta rule."""
    w = Writer(7)
    start, body = w.given(np.zeros((heads, size, size), np.float32)), _delta_body(heads, size)
    x = "x"
    for _ in range(layers):

        def projected(width: int, x: str = x) -> str:
            return w.add("MatMul", x, w.weight(hidden, width, scale=hidden**-0.5))

        q, k, v = (w.add("Reshape", projected(heads * size), w.ints(0, heads, size)) for _ in range(3))
        q, k = (w.add("LpNormalization", t, axis=-1, p=2) for t in (q, k))
        decay, rate = w.add("Neg", w.add("Softplus", projected(heads))), w.add("Sigmoid", projected(heads))
        y = f"y{len(w.nodes)}"
        given = [start, q, k, v, decay, rate]
        w.nodes.append(helper.make_node("Scan", given, [f"{y}.state", y], body=body, num_scan_inputs=5))
        flat = w.add("Reshape", y, w.ints(0, heads * size))
        x = w.add("Add", x, w.add("MatMul", flat, w.weight(heads * size, hidden, scale=hidden**-0.5)))
    w.add("Identity", x, out="y")
    return w.model({"x": (TensorProto.FLOAT, ["length", hidden])}, ["y"])
