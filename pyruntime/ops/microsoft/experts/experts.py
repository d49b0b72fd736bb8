"""Mixture of experts: routing, activations and their kernels, shared by MoE and QMoE."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Array
from pyruntime.kernels import Dispatch, Operand, Source, Target, gather_map
from pyruntime.kernels.products.nbits import Experts

__all__ = ["ACTIVATIONS", "Activation", "activate", "chosen_experts", "combine", "expert_matmul", "route", "routing"]

_GELU = "0.5 * x * (1.0 + hyperbolic_tangent(0.7978845608028654 * (x + 0.044715 * x * x * x)))"

ACTIVATIONS = {
    "relu": "max(x, 0.0)",
    "gelu": _GELU,
    "silu": "x / (1.0 + exponential(-x))",
    "identity": "x",
}
"""WGSL of the activations of f32 `x`; swiglu, with two inputs, is not included."""


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation between the first and the second product of an expert.

    Attributes:
        kind: 'relu', 'gelu' (tanh approximation), 'silu', 'identity' or 'swiglu': g · sigmoid(alpha · g) · (l + beta).
        fusion: layout of g and l of swiglu: 1: alternating columns, 2: two halves, 0: two products.
        limit: upper bound of g, and bounds ±limit of l; None: unbounded.
        after: `limit` bounds g · sigmoid(alpha · g) instead of g.
    """

    kind: str
    alpha: float
    beta: float
    fusion: int
    limit: float | None
    after: bool = False


def routing(logits: Array, k: int, normalize: bool, weights: Array | None) -> tuple[Array, Array]:
    """Return the indices [t, k] of the k largest logits, and the float32 weights of these experts.

    The weights come from `weights`, or from a softmax over all logits. With `normalize` they are scaled to sum to 1.
    """
    scores = logits.astype(np.float32)
    chosen = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    if weights is None:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        shares = powers / powers.sum(-1, keepdims=True)
    else:
        shares = weights.astype(np.float32)
    found = np.take_along_axis(shares, chosen, -1)
    return chosen, found / found.sum(-1, keepdims=True) if normalize else found


def activate(form: Activation, first: Array, third: Array | None) -> Array:
    """Return the input of the second product, given the outputs of the first and the third."""
    with np.errstate(all="ignore"):
        if form.kind == "swiglu":
            if third is not None:
                gate, linear = first, third
            elif form.fusion == 1:
                gate, linear = first[..., 0::2], first[..., 1::2]
            else:
                gate, linear = np.split(first, 2, -1)
            limit = np.float32(np.inf if form.limit is None else form.limit)
            gate = gate if form.after else np.minimum(gate, limit)
            gate = gate / (1 + np.exp(-np.float32(form.alpha) * gate))
            gate = np.minimum(gate, limit) if form.after else gate
            made: Array = gate * (np.clip(linear, -limit, limit) + np.float32(form.beta))
            return made
        if form.kind == "relu":
            made = np.maximum(first, 0)
        elif form.kind == "silu":
            made = first / (1 + np.exp(-first))
        elif form.kind == "gelu":
            inner = np.float32(0.7978845608028654) * (first + np.float32(0.044715) * first**3)
            made = np.float32(0.5) * first * (1 + np.tanh(inner))
        else:
            made = first
    return made if third is None else made * third


def chosen_experts(target: Target, chosen: Operand, logits: Operand, experts: int, k: int) -> Dispatch:
    """Return the dispatch of chosen[t, s] := index of the s-th largest logit of token t; ties are ordered by index."""
    element = """let token = i / params.k;
  let rank = i - token * params.k;
  let row = token * params.experts;
  var found = 0u;
  for (var e = 0u; e < params.experts; e++) {
    let mine = load_logits(row + e);
    var before = 0u;
    for (var o = 0u; o < params.experts; o++) {
      let other = load_logits(row + o);
      before += u32(other > mine || (other == mine && o < e));
    }
    if (before == rank) { found = e; }
  }
  return found;"""
    return gather_map(
        target, "choose_experts", chosen, [Source("logits", logits)], element, {"experts": experts, "k": k}
    )


def route(
    target: Target,
    shares: Operand,
    chosen: Operand,
    scores: Operand,
    experts: int,
    k: int,
    softmax: bool,
    normalize: bool,
) -> Dispatch:
    """Return the dispatch of shares[t, s] := weight of the s-th expert of token t, as in `routing`.

    Args:
        softmax: `scores` are logits, not weights.
    """
    over_all = softmax and not normalize
    value = "exponential(load_scores(row + {e}) - top)" if softmax else "load_scores(row + {e})"
    lines = ["let token = i / params.k;", "let row = token * params.experts;"]
    if softmax:
        lines.append("let top = load_scores(row + load_chosen(token * params.k));")
    # chosen[t, 0] has the largest logit.
    lines.append(f"let mine = {value.format(e='load_chosen(i)')};")
    if softmax or normalize:
        count = "params.experts" if over_all else "params.k"
        at = "e" if over_all else "load_chosen(token * params.k + e)"
        lines.append("var total = 0.0;")
        lines.append(f"for (var e = 0u; e < {count}; e++) {{ total += {value.format(e=at)}; }}")
        lines.append("return mine / total;")
    else:
        lines.append("return mine;")
    name = f"route_{'all' if over_all else 'chosen'}{'' if softmax else '_given'}{'_whole' if normalize else ''}"
    sources = [Source("chosen", chosen), Source("scores", scores)]
    return gather_map(target, name, shares, sources, "\n  ".join(lines), {"experts": experts, "k": k})


def activation(
    target: Target,
    y: Operand,
    form: Activation,
    chosen: Operand,
    first: Operand,
    first_bias: Operand | None,
    third: Operand | None,
    third_bias: Operand | None,
) -> Dispatch:
    """Return the dispatch of y[p, i] := activation of the products of pair p with their biases added."""
    sources = [Source("chosen", chosen), Source("first", first)]
    width = first.type.shape[1]

    def load(name: str, bias: Operand | None, at: str) -> str:
        value = f"load_{name}(pair * params.width + {at})"
        if bias is None:
            return value
        return f"{value} + load_{name}_bias(expert * params.width + {at})"

    for name, operand in (("third", third), ("first_bias", first_bias), ("third_bias", third_bias)):
        if operand is not None:
            sources.append(Source(name, operand))
    lines = ["let pair = i / params.inner;", "let c = i - pair * params.inner;", "let expert = load_chosen(pair);"]
    if form.kind == "swiglu":
        if third is not None:
            gate, linear = load("first", first_bias, "c"), load("third", third_bias, "c")
        elif form.fusion == 1:
            gate, linear = (load("first", first_bias, at) for at in ("2u * c", "2u * c + 1u"))
        else:
            gate, linear = (load("first", first_bias, at) for at in ("c", "c + params.inner"))
        lines.append(f"let g = {gate};" if form.after else f"let g = min({gate}, params.limit);")
        lines.append(f"let l = clamp({linear}, -params.limit, params.limit);")
        gated = "g / (1.0 + exponential(-params.alpha * g))"
        gated = f"min({gated}, params.limit)" if form.after else gated
        lines.append(f"return {gated} * (l + params.beta);")
    else:
        lines.append(f"let x = {load('first', first_bias, 'c')};")
        times = f" * ({load('third', third_bias, 'c')})" if third is not None else ""
        lines.append(f"return ({ACTIVATIONS[form.kind]}){times};")
    name = f"expert_{form.kind}{form.fusion if form.kind == 'swiglu' else ''}{'_after' if form.after else ''}"
    values = {
        "inner": y.type.shape[1],
        "width": width,
        "alpha": form.alpha,
        "beta": form.beta,
        "limit": 3.4e38 if form.limit is None else form.limit,
    }
    return gather_map(target, name, y, sources, "\n  ".join(lines), values)


def combine(
    target: Target, y: Operand, chosen: Operand, shares: Operand, second: Operand, bias: Operand | None, k: int
) -> Dispatch:
    """Return the dispatch of y[t, h] := sum over experts of token t of share · (second[t, s, h] + bias[expert, h])."""
    add = " + load_bias(load_chosen(pair) * params.width + h)" if bias is not None else ""
    element = f"""let token = i / params.width;
  let h = i - token * params.width;
  var total = 0.0;
  for (var s = 0u; s < params.k; s++) {{
    let pair = token * params.k + s;
    total += load_shares(pair) * (load_second(pair * params.width + h){add});
  }}
  return total;"""
    sources = [Source("shares", shares), Source("second", second)]
    if bias is not None:
        sources += [Source("chosen", chosen), Source("bias", bias)]
    values = {"width": second.type.shape[1], "k": k}
    name = "combine_experts" + ("_bias" if bias is not None else "")
    return gather_map(target, name, y, sources, element, values)


def expert_matmul(target: Target, y: Operand, a: Operand, weights: Operand, experts: Experts) -> Dispatch:
    """Return the dispatch of y[p, n] := a[p // share] · weights[chosen[p], n], without tiling."""
    element = """let pair = i / params.n;
  let at = (load_chosen(pair) * params.n + i - pair * params.n) * params.length;
  let row = pair / params.share * params.length;
  var total = 0.0;
  for (var c = 0u; c < params.length; c++) { total += load_a(row + c) * load_weights(at + c); }
  return total;"""
    sources = [Source("a", a), Source("weights", weights), Source("chosen", experts.chosen)]
    n, length = y.type.shape[1], weights.type.shape[2]
    values = {"n": n, "length": length, "share": experts.share}
    flops = 2 * y.type.size * length
    return gather_map(target, "expert_matmul", y, sources, element, values, flops=flops)
