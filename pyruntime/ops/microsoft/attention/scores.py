"""Attention scores as an output, before or after the softmax."""

from __future__ import annotations

from pyruntime.ir import DType
from pyruntime.kernels import Dispatch, Operand, Source, Target, for_each, gather_map, scratch
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, flags_of, named, values_of

__all__ = ["output_scores"]

_STRIDES = ("q_strides", "k_strides", "mask_strides", "bases")
_READ = (*_STRIDES, "reach", "queries", "keys", "heads", "group", "scale", "cap")
"""Attention uniforms that the scores depend on."""

_KINDS = {"reach": "vec4<i32>"}


def output_scores(
    target: Target,
    form: AttentionForm,
    tensors: AttentionTensors,
    y: Operand,
    after: bool,
    hidden: float = 0.0,
) -> tuple[Dispatch, ...]:
    """Return dispatches for y [B, H, S, T] := cap(scale · q kᵀ) + mask. T may be less than the keys in `form`.

    Args:
        after: write the softmax of the scores instead.
        hidden: score of a key that the query does not see.
    """
    flags = flags_of(form, tensors)
    values = {n: v for n, v in values_of(form, tensors.mask).items() if n in _READ}
    values |= {"dim": form.sizes[4], "width": y.type.shape[3], "hidden": hidden}
    sources = [Source(n, x) for n, x in named(tensors).items() if n in ("q", "k", "mask", "lengths", "prompt")]
    if not after:
        name = "attention_scores_" + "_".join(n.lower() for n in flags)
        code = _score(flags, "params.hidden")
        return (gather_map(target, name, y, sources, code, values, flops=form.flops, kinds=_KINDS),)
    x = scratch(DType.FLOAT, *y.type.shape)
    name = "attention_masked_scores_" + "_".join(n.lower() for n in flags)
    nothing = "f32_bits(0xff800000u, params.keys)"
    made = gather_map(target, name, x, sources, _score(flags, nothing), values, flops=form.flops, kinds=_KINDS)
    return made, _softmax(target, form, tensors.sink, y, x)


def _score(flags: dict[str, int], hidden: str) -> str:
    lines = [
        "let j = i % params.width;",
        "let query = (i / params.width) % params.queries;",
        "let h = (i / (params.width * params.queries)) % params.heads;",
        "let b = i / (params.width * params.queries * params.heads);",
    ]
    if "RANGE" in flags:
        lines += ["var first = params.reach.x;", "var length = i32(params.keys);"]
        if "LENGTHS" in flags:
            lines += ["length = load_lengths(b) + params.reach.w;", "first = length - i32(params.queries);"]
        if "PROMPT" in flags:
            lines.append("if (load_prompt(0u) == i32(params.queries)) { first = 0; }")
        lines += [
            "let seen = keys_in_reach(first + i32(query), clamp(length, 0, i32(params.keys)), params.reach.yz);",
            f"if (j < seen.x || j >= seen.y) {{ return {hidden}; }}",
        ]
    lines += [
        "let at_q = params.bases.x + dot(vec3<u32>(b, h, query), params.q_strides.xyz);",
        "let at_k = params.bases.y + dot(vec3<u32>(b, h / params.group, j), params.k_strides.xyz);",
        "var sum = 0.0;",
        "for (var c = 0u; c < params.dim; c++) {",
        f"  sum += load_q(at_q + c * params.q_strides.w) * {_key(flags)};",
        "}",
        "var s = sum * params.scale;",
    ]
    if "CAP" in flags:
        lines.append("s = capped(s, params.cap);")
    if "MASK" in flags:
        lines.append("s += f32(load_mask(dot(vec4<u32>(b, h, query, j), params.mask_strides)));")
    lines.append("return s;")
    return "\n  ".join(lines)


def _key(flags: dict[str, int]) -> str:
    """Return WGSL of component c of a key."""
    if "PACKED_ROWS" not in flags:
        return "load_k(at_k + c * params.k_strides.w)"
    code = "load_k(at_k + c)" if "NIBBLES" not in flags else "((load_k(at_k + c / 2u) >> (4u * (c & 1u))) & 15u)"
    word = "at_k / 4u + params.dim / " + ("8u" if "NIBBLES" in flags else "4u")
    return f"row_values(vec4<f32>(f32({code})), k[{word}]).x"


def _softmax(target: Target, form: AttentionForm, sink: Operand | None, y: Operand, x: Operand) -> Dispatch:
    """Return the dispatch of y := softmax of x along rows, with a sink in the divisor."""
    reads = {"x": x, **({"sink": sink} if sink is not None else {})}
    sunk = sink is not None
    code = f"""let base = i * params.width;
  var top = {"load_sink((i / params.queries) % params.heads)" if sunk else "-3.4028234663852886e38"};
  {"let given = top;" if sunk else ""}
  for (var j = 0u; j < params.width; j++) {{ top = max(top, load_x(base + j)); }}
  var sum = {"exp(given - top)" if sunk else "0.0"};
  for (var j = 0u; j < params.width; j++) {{ sum += exp(load_x(base + j) - top); }}
  let share = select(1.0 / sum, 0.0, sum == 0.0);
  for (var j = 0u; j < params.width; j++) {{ store_y(base + j, exp(load_x(base + j) - top) * share); }}"""
    values = {"width": y.type.shape[3], "queries": form.sizes[2], "heads": form.sizes[1]}
    name = "attention_probabilities" + "_sink" * sunk
    return for_each(target, name, form.rows, reads, {"y": y}, code, values)
