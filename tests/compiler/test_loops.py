"""Scan and Loop of known trips: bodies that the GPU repeats, on the software adapter; onnxruntime is the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime as ort
from tests.desktop import on_desktop
from tests.models import compare, text_model
from tests.oracle import OPTIONS

F16, F32 = np.float16, np.float32


def floats(*shape: int, dtype: type = F32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


STATES = """
agraph (float[3] a, float[3] b, float[n, 3] x, float[n, 2] z) => (p, q, u, v) {
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

GROWING = """
agraph (float[n, 3] x) => (p) {
  trips = Constant <value = int64 {3}> ()
  p = Loop (trips, , x) <body = step (int64 i, bool c, float[m, 3] s) => (bool c2, float[k, 3] s2) {
    c2 = Identity (c)
    s2 = Concat <axis = 0> (s, x)
  }>
}"""

UNTIL = """
agraph (float[3] a) => (p) {
  p = Loop ( , , a) <body = step (int64 i, bool c, float[3] s) => (bool c2, float[3] s2) {
    two = Constant <value_float = 2.0> ()
    s2 = Mul (s, two)
    sum = ReduceSum <keepdims = 0> (s2)
    most = Constant <value_float = 100.0> ()
    c2 = Less (sum, most)
  }>
}"""

UNARY: dict[str, tuple[str, Any]] = {
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


def check(session: ort.InferenceSession, text: str, feeds: dict[str, Any]) -> None:
    """Compare a run with onnxruntime's."""
    oracle = onnxruntime.InferenceSession(
        text_model(text).SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
    )
    for mine, theirs in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
        rtol, atol = (2e-3, 1e-3) if theirs.dtype == F16 else (1e-5, 1e-6)
        compare(mine, theirs, rtol, atol)


def opened(text: str) -> ort.InferenceSession:
    return ort.InferenceSession(text_model(text).SerializeToString())


def placements(session: ort.InferenceSession, *kinds: str) -> Sequence[str]:
    return [node.placement for node in session.explain().nodes if node.op_type in kinds]


@pytest.mark.parametrize("lengths", [(5, 9, 3, 5), (9, 5, 12), (1, 4, 1, 7)], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_loops__of_any_length__as_onnxruntime_without_a_host_step(
    name: str, lengths: Sequence[int], desktop_gpu: None
) -> None:
    text, feeds = UNARY[name]
    session = opened(text)
    for length in lengths:
        check(session, text, feeds(length))
    assert set(placements(session, "Scan", "Loop")) <= {"gpu"}
    assert "host" not in {node.placement for node in session.explain().nodes}


@pytest.mark.parametrize("name", UNARY)
def test_loops__on_the_host__as_onnxruntime(name: str) -> None:
    text, feeds = UNARY[name]
    session = opened(text)
    for length in (4, 1):
        check(session, text, feeds(length))


@pytest.mark.parametrize("name", UNARY)
def test_loops__of_no_trip__leave_the_states_and_give_no_rows(name: str, desktop_gpu: None) -> None:
    text, feeds = UNARY[name]
    session = opened(text)
    for length in (4, 0, 2, 0):  # onnxruntime 1.32 refuses Scan without steps
        given = feeds(length)
        results = session.run(None, given)
        if length == 0:
            states = [given[k] for k in ("a", "b") if k in given]
            for mine, state in zip(results, states, strict=False):
                np.testing.assert_array_equal(mine, state)
            assert all(0 in y.shape for y in results[len(states) :])


@pytest.mark.parametrize("name", UNARY)
def test_loops__in_memory_of_their_own__give_the_same_bits(name: str, desktop_gpu: None) -> None:
    text, feeds = UNARY[name]
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.sanitize", "1")
    session = ort.InferenceSession(text_model(text).SerializeToString(), options)
    check(session, text, feeds(3))


@pytest.mark.parametrize("text", [GROWING, UNTIL], ids=["growing", "until"])
def test_loops__that_grow_or_ask_a_run__stay_on_the_host(text: str, desktop_gpu: None) -> None:
    feeds = {"x": floats(2, 3)} if text is GROWING else {"a": np.array([1, 2, 3], F32)}
    session = opened(text)
    check(session, text, feeds)
    assert placements(session, "Loop") == ["host"]


def test_loop__profiled__counts_each_dispatch_once(desktop_gpu: None) -> None:
    text, feeds = UNARY["states"]
    session = opened(text)
    session.run(None, feeds(5))
    plan = session.explain()
    assert plan.dispatches < 25
    assert len(session.profile(feeds(5)).rows) > 0


def test_loop__of_many_trips__is_planned_once() -> None:
    with on_desktop():
        text, feeds = UNARY["states"]
        session = opened(text)
        counts = []
        for length in (3, 300):
            session.run(None, feeds(length))
            counts.append(session.explain().dispatches)
        assert counts[0] == counts[1]
