"""Loops that compute linear attention, however they are written, are one operator; others stay loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import pyruntime as ort
from tests.models import compare, text_model
from tests.oracle import OPTIONS

H, K, V, B = 3, 8, 5, 2


def scan(
    body: str, state: str = f"{H}, {K}, {V}", row: str = f"{H}, {V}", before: str = "", batch: str = "", keys: str = ""
) -> str:
    """A Scan over query, key, value, decay and beta of heads, with this body."""
    k, v, h, d = f"{batch}{H}, {K}", f"{batch}{H}, {V}", f"{batch}{H}", keys or f"{batch}{H}"
    return f"""
agraph (float[{state}] s0, float[n, {k}] q, float[n, {k}] k, float[n, {v}] v, float[n, {d}] g, float[n, {h}] b)
    => (s, y) {{
  {before}
  s, y = Scan <num_scan_inputs = 5, body = step (float[{state}] s1, float[{k}] qt, float[{k}] kt, float[{v}] vt,
      float[{d}] gt, float[{h}] bt) => (float[{state}] s2, float[{row}] yt) {{
    a1 = Constant <value_ints = [1]> ()
    a2 = Constant <value_ints = [2]> ()
    a12 = Constant <value_ints = [1, 2]> ()
    m1 = Constant <value_ints = [-1]> ()
    m2 = Constant <value_ints = [-2]> ()
    {body}
  }}> (s0, q, k, v, {"e" if before else "g"}, b)
}}"""


DECAYED = "e0 = Exp (gt)  e1 = Unsqueeze (e0, a12)  sd = Mul (s1, e1)"
UPDATED = "ku = Unsqueeze (kt, a2)  du = Unsqueeze (d, a1)  kd = Mul (ku, du)  s2 = Add (sd, kd)"
READ = "qu = Unsqueeze (qt, a2)  qs = Mul (qu, s2)  yt = ReduceSum <keepdims = 0> (qs, a1)"
CORRECTED = """ku0 = Unsqueeze (kt, a2)  sk = Mul (ku0, sd)  r = ReduceSum <keepdims = 0> (sk, a1)
    vr = Sub (vt, r)  bu = Unsqueeze (bt, a1)  d = Mul (vr, bu)"""

FORMS = {
    "products and sums": scan("  ".join((DECAYED, CORRECTED, UPDATED, READ))),
    "matrix products": scan(f"""{DECAYED}
      kr = Unsqueeze (kt, a1)  r0 = MatMul (kr, sd)  vr0 = Unsqueeze (vt, a1)  df = Sub (vr0, r0)
      bu = Unsqueeze (bt, a12)  d0 = Mul (df, bu)  kc = Transpose <perm = [0, 2, 1]> (kr)  kd = MatMul (kc, d0)
      s2 = Add (kd, sd)  qr = Unsqueeze (qt, m2)  y0 = MatMul (qr, s2)  yt = Squeeze (y0, a1)"""),
    "equations": scan(f"""{DECAYED}
      r = Einsum <equation = "hkv,hk->hv"> (sd, kt)  df = Sub (vt, r)  d = Einsum <equation = "hv,h->hv"> (df, bt)
      kd = Einsum <equation = "hk,hv->hkv"> (kt, d)  s2 = Add (sd, kd)
      yt = Einsum <equation = "hkv,hk->hv"> (s2, qt)"""),
    "values first": scan(
        f"""{DECAYED}
      r = Einsum <equation = "hvk,hk->hv"> (sd, kt)  df = Sub (r, vt)  nd = Einsum <equation = "hv,h->hv"> (df, bt)
      kd = Einsum <equation = "hk,hv->hvk"> (kt, nd)  s2 = Sub (sd, kd)
      half = Constant <value_float = 0.5> ()  y0 = Einsum <equation = "hvk,hk->hv"> (s2, qt)  yt = Mul (y0, half)""",
        f"{H}, {V}, {K}",
    ),
    "the old state corrects": scan(
        f"""{DECAYED}  r = Einsum <equation = "hkv,hk,h->hv"> (s1, kt, e0)  df = Sub (vt, r)
      d = Einsum <equation = "hv,h->hv"> (df, bt)  {UPDATED}  {READ}"""
    ),
    "without correction": scan(f"{DECAYED}  d = Identity (vt)  {UPDATED}  {READ}"),
    "without decay": scan(f"sd = Identity (s1)  {CORRECTED}  {UPDATED}  {READ}"),
    "neither": scan(f"sd = Identity (s1)  d = Identity (vt)  {UPDATED}  {READ}"),
    "a decay for each key": scan(
        f"e0 = Exp (gt)  e1 = Unsqueeze (e0, m1)  sd = Mul (s1, e1)  {CORRECTED}  {UPDATED}  {READ}",
        keys=f"{H}, {K}",
    ),
    "a decay of the other sign": scan(
        f"gn = Neg (gt)  e0 = Exp (gn)  e1 = Unsqueeze (e0, a12)  sd = Mul (s1, e1)  {CORRECTED}  {UPDATED}  {READ}"
    ),
    "a decay from before": scan(
        f"e1 = Unsqueeze (gt, a12)  sd = Mul (s1, e1)  {CORRECTED}  {UPDATED}  {READ}", before="e = Sigmoid (g)"
    ),
    "batch": scan(
        """e0 = Exp (gt)  e1 = Unsqueeze (e0, m1)  e2 = Unsqueeze (e1, m1)  sd = Mul (s1, e2)
      r = Einsum <equation = "bhkv,bhk->bhv"> (sd, kt)  df = Sub (vt, r)  bu = Unsqueeze (bt, m1)  d = Mul (df, bu)
      kd = Einsum <equation = "bhk,bhv->bhkv"> (kt, d)  s2 = Add (sd, kd)
      yt = Einsum <equation = "bhkv,bhk->bhv"> (s2, qt)""",
        f"{B}, {H}, {K}, {V}",
        f"{B}, {H}, {V}",
        batch=f"{B}, ",
    ),
}

OTHERS = {
    "the old state is read": scan(
        f"""{DECAYED}  {CORRECTED}  {UPDATED}
      qu = Unsqueeze (qt, a2)  qs = Mul (qu, s1)  yt = ReduceSum <keepdims = 0> (qs, a1)"""
    ),
    "the state is not decayed for the correction": scan(
        f"""{DECAYED}  ku0 = Unsqueeze (kt, a2)  sk = Mul (ku0, s1)  r = ReduceSum <keepdims = 0> (sk, a1)
      vr = Sub (vt, r)  bu = Unsqueeze (bt, a1)  d = Mul (vr, bu)  {UPDATED}  {READ}"""
    ),
    "another function": scan(
        f"{DECAYED}  {CORRECTED}  ku = Unsqueeze (kt, a2)  du = Unsqueeze (d, a1)  "
        f"kd0 = Mul (ku, du)  kd = Tanh (kd0)  s2 = Add (sd, kd)  {READ}"
    ),
    "a decay of any sign": scan(f"e1 = Unsqueeze (gt, a12)  sd = Mul (s1, e1)  {CORRECTED}  {UPDATED}  {READ}"),
}


def feeds(text: str, tokens: int) -> dict[str, Any]:
    random = np.random.default_rng(tokens)
    found = {}
    for value in text_model(text).graph.input:
        shape = [d.dim_value or tokens for d in value.type.tensor_type.shape.dim]
        found[value.name] = (random.standard_normal(shape) * 0.5).astype(np.float32)
    found["g"] = -np.abs(found["g"])
    return found


def checked(text: str, lengths: tuple[int, ...]) -> set[str]:
    """The operators that run, after comparing with onnxruntime."""
    model = text_model(text).SerializeToString()
    session, oracle = ort.InferenceSession(model), onnxruntime.InferenceSession(model, OPTIONS)
    for length in lengths:
        given = feeds(text, length)
        for mine, theirs in zip(session.run(None, given), oracle.run(None, given), strict=True):
            compare(mine, theirs, 1e-4, 1e-5)
    assert "host" not in {n.placement for n in session.explain().nodes}
    return {n.op_type for n in session.explain().nodes}


@pytest.mark.parametrize("name", FORMS)
def test_loop__that_is_linear_attention__is_one_operator(name: str, desktop_gpu: None) -> None:
    found = checked(FORMS[name], (6, 9, 4, 1))
    assert "LinearAttention" in found and "Scan" not in found


@pytest.mark.parametrize("name", OTHERS)
def test_loop__that_is_nearly_linear_attention__stays_a_loop(name: str, desktop_gpu: None) -> None:
    found = checked(OTHERS[name], (6, 9, 4))
    assert "Scan" in found and "LinearAttention" not in found
