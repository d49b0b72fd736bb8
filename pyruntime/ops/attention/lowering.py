"""Lower attention to one fused kernel, or, where the scores are an output, to matmul, softmax and matmul."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import (
    Dispatch,
    Operand,
    Source,
    Target,
    elementwise,
    gather_map,
    out,
    scratch,
    strided_copy,
)
from pyruntime.kernels.attention.append import Append, Lengths, append
from pyruntime.kernels.attention.attention import attend, fits
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.kernels.ir.epilogue import linear
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.kernels.products.matmul import Product, matmul
from pyruntime.kernels.rows.rows import Rows, softmax_rows

__all__ = ["AttentionInputs", "Heads", "lower_attention"]

T = TypeVar("T")


class AttentionInputs(NamedTuple, Generic[T]):
    """Types, arrays or operands in input order; None for an absent input."""

    q: T
    k: T
    v: T
    attn_mask: T | None = None
    past_key: T | None = None
    past_value: T | None = None
    nonpad_kv_seqlen: T | None = None


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of an attention: `size` components of queries and keys, `v_size` of values; `flat`: rank-3 inputs."""

    batch: int
    q_heads: int
    kv_heads: int
    queries: int
    keys: int
    past: int
    size: int
    v_size: int
    flat: bool

    @property
    def total(self) -> int:
        """Number of keys including the past."""
        return self.past + self.keys

    @property
    def group(self) -> int:
        """Number of query heads for each key head."""
        return self.q_heads // self.kv_heads

    @property
    def k_shape(self) -> tuple[int, ...]:
        """Required shape of k."""
        return self._shape(self.kv_heads, self.keys, self.size)

    @property
    def v_shape(self) -> tuple[int, ...]:
        """Required shape of v."""
        return self._shape(self.kv_heads, self.keys, self.v_size)

    def _shape(self, heads: int, positions: int, size: int) -> tuple[int, ...]:
        return (self.batch, positions, heads * size) if self.flat else (self.batch, heads, positions, size)

    def split(self, x: Array, heads: int) -> Array:
        """Return x as [B, heads, positions, size]."""
        return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).swapaxes(1, 2) if self.flat else x

    def view(self, heads: int, positions: int, size: int) -> HeadView:
        """Where (batch, head, position, component) is in an input or the output."""
        return HeadView.flat(positions, heads, size) if self.flat else HeadView.dense(heads, positions, size)


_View: TypeAlias = tuple[Operand, HeadView]


class _Lowering:
    """Builder of the dispatches of one attention."""

    def __init__(
        self, op: Any, target: Target, heads: Heads, inputs: AttentionInputs[Operand], outs: tuple[TensorType, ...]
    ) -> None:
        self.op = op
        self.target = target
        self.heads = heads
        self.inputs = inputs
        self.outs = outs
        self.made: list[Dispatch] = []

    def in_heads(self, view: _View, heads: int, positions: int, size: int) -> Operand:
        """Return the view as a contiguous [B, heads, positions, size], copied if needed."""
        shape = (self.heads.batch, heads, positions, size)
        x, strides = view[0], view[1].strides
        if strides == contiguous(shape):
            return x
        y = scratch(x.type.dtype, *shape)
        self.made.append(strided_copy(self.target, "attention_heads", y, x, 0, strides))
        return y

    def cache(self, x: Operand, before: Operand | None, present: int, size: int) -> _View:
        """Append keys or values `x` to the past ones, `before`, into output `present` if the node has it."""
        h, wanted = self.heads, self.op.wants(present)
        view = h.view(h.kv_heads, h.keys, size)
        if before is None and not wanted:
            return x, view
        y = out(present, self.outs[present]) if wanted else scratch(x.type.dtype, *self.outs[present].shape)
        into = bool(self.op.overwrites)
        placed = Append(True, None if into else before, lengths=Lengths(h.past), into=into)
        self.made += append(self.target, y, x, view, h.keys, size, placed)
        return y, HeadView.of(y)

    def mask(self) -> Operand | None:
        """Return the mask that the fused kernel takes: bool, or numbers with a last dimension of all T keys."""
        given = self.inputs.attn_mask
        if given is None or (given.type.dtype is not DType.BOOL and given.type.shape[-1] == self.heads.total):
            return given
        return self.bias(mask_only=True)

    def bias(self, mask_only: bool = False) -> Operand | None:
        """Return the float32 bias of the scores, [B or 1, Hq or 1, M, T], or None for zero.

        Args:
            mask_only: include only attn_mask, not the keys hidden by their position.
        """
        h, mask = self.heads, self.inputs.attn_mask
        nonpad = None if mask_only else self.inputs.nonpad_kv_seqlen
        left, right = (-1, -1) if mask_only else self.op.windows
        causal = bool(self.op.is_causal) and not mask_only
        if mask is None and nonpad is None and not causal and left < 0 and right < 0:
            return None
        shape: tuple[int, ...] = (1,) * 4
        if mask is not None:
            shape = (1,) * (4 - mask.type.rank) + mask.type.shape
        batch = h.batch if nonpad is not None or shape[0] > 1 else 1
        heads = h.q_heads if shape[1] > 1 else 1
        y = scratch(DType.FLOAT, batch, heads, h.queries, h.total)
        own = contiguous(shape)
        values: dict[str, Any] = {
            "strides": [0 if d == 1 else s for d, s in zip(shape[:3], own, strict=False)] + [0],
            "total": h.total,
            "queries": h.queries,
            "heads": heads,
            "width": shape[3],
            "past": h.past,
            "left": left,
            "right": right,
        }
        sources = [Source(n, x) for n, x in (("mask", mask), ("nonpad", nonpad)) if x is not None]
        element = _bias_code(mask, nonpad, causal, left, right)
        name = "attention_bias" + "_causal" * causal + "_left" * (left >= 0) + "_right" * (right >= 0)
        self.made.append(gather_map(self.target, name, y, sources, element, values, kinds=_SIGNED))
        return y

    def reach(self) -> Reach:
        """Return the key positions that a query can see."""
        left, right = self.op.windows
        after = 0 if self.op.is_causal else right
        return Reach(left, after, self.heads.past)

    def form(self, q: _View, k: _View, v: _View, y: _View) -> AttentionForm:
        """Return the description of the attention that its kernels take."""
        h = self.heads
        sizes = (h.batch, h.q_heads, h.queries, h.total, h.size, h.v_size)
        q_view, k_view, v_view, y_view = (view for _, view in (q, k, v, y))
        scale, cap = self.op.scale_of(h), max(0.0, float(self.op.softcap))
        return AttentionForm(sizes, q_view, k_view, v_view, y_view, scale, True, h.group, cap, self.reach())

    def composed(self, q: Operand, k: Operand, v: Operand, bias: Operand | None) -> None:
        """Compute scores, softcap and bias, softmax, and the product with the values in separate kernels."""
        h, mode = self.heads, self.op.qk_matmul_output_mode
        batch = (h.batch * h.kv_heads, h.group)
        full = (h.batch, h.q_heads, h.queries, h.total)
        wanted = self.op.wants(3)
        scores = scratch(DType.FLOAT, *full)
        a_strides = (h.group * h.queries * h.size, h.queries * h.size)
        product = Product(h.queries, h.total, h.size, batch, a_strides, (h.total * h.size, 0), trans_b=True)
        scaled = linear(None, h.total, self.op.scale_of(h), 1.0, 0, 0)
        self.made += matmul(
            self.target,
            scores,
            q,
            k,
            product,
            scaled,
        )
        if wanted and mode == 0:
            self.copy(scores, "x")
        cap = float(self.op.softcap)
        capped = "cap * hyperbolic_tangent(x / cap)" if cap > 0 else "x"
        scalars = {"cap": cap} if cap > 0 else None
        if wanted and mode == 1:
            self.copy(scores, capped, scalars)
        biased = scores
        if bias is not None or cap > 0:
            biased = scratch(DType.FLOAT, *full)
            operands = {"x": scores, **({"bias": bias} if bias is not None else {})}
            code = (
                f"return {capped};" if bias is None else f"if (is_inf(bias)) {{ return bias; }} return {capped} + bias;"
            )
            self.made.append(elementwise(self.target, "attention_scores", operands, biased, code, scalars))
        if wanted and mode == 2:
            self.copy(biased, "x")
        weights = scratch(DType.FLOAT, *full)
        rows = Rows(h.batch * h.q_heads * h.queries, h.total, 1)
        self.made.append(softmax_rows(self.target, weights, biased, rows, masked=True))
        if wanted and mode == 3:
            self.copy(weights, "x")
        y = out(0, self.outs[0])
        result = scratch(y.type.dtype, h.batch, h.q_heads, h.queries, h.v_size) if h.flat else y
        a_strides = (h.group * h.queries * h.total, h.queries * h.total)
        product = Product(h.queries, h.v_size, h.total, batch, a_strides, (h.total * h.v_size, 0))
        self.made += matmul(self.target, result, weights, v, product)
        if h.flat:
            self.packed(y, result)

    def copy(self, x: Operand, expr: str, scalars: dict[str, float] | None = None) -> None:
        """Write expr(x) to the output for scores."""
        self.made.append(elementwise(self.target, "attention_output", {"x": x}, out(3, self.outs[3]), expr, scalars))

    def packed(self, y: Operand, x: Operand) -> None:
        """Transpose x to the flat layout: y[b, m, h * E + e] := x[b, h, m, e]."""
        h = self.heads
        heads = TensorType(y.type.dtype, (h.batch, h.queries, h.q_heads, h.v_size))
        rows = h.queries * h.v_size
        strides = (h.q_heads * rows, h.v_size, rows, 1)
        self.made.append(strided_copy(self.target, "attention_pack", replace(y, type=heads), x, 0, strides))


_SIGNED = {"left": "i32", "right": "i32"}


def _bias_code(mask: Operand | None, nonpad: Operand | None, causal: bool, left: int, right: int) -> str:
    """Return the WGSL body that computes one element of the bias."""
    lines = [
        "let j = i % params.total;",
        "let m = (i / params.total) % params.queries;",
        "let h = (i / (params.total * params.queries)) % params.heads;",
        "let b = i / (params.total * params.queries * params.heads);",
        "let hidden = f32_bits(0xff800000u, params.total);",
        "var offset = i32(params.past);",
    ]
    if nonpad is not None:
        lines += [
            "let length = i64_low(load_nonpad(b));",
            "offset = length - i32(params.queries);",
            "if (i32(j) >= length) { return hidden; }",
        ]
    lines.append("let distance = i32(j) - (i32(m) + offset);")
    if causal:
        lines.append("if (distance > 0) { return hidden; }")
    if left >= 0:
        lines.append("if (-distance > params.left) { return hidden; }")
    if right >= 0:
        lines.append("if (distance > params.right) { return hidden; }")
    if mask is None:
        lines.append("return 0.0;")
    else:
        lines += [
            "if (j >= params.width) { return hidden; }",
            "let at = b * params.strides.x + h * params.strides.y + m * params.strides.z + j;",
            "if (!load_mask(at)) { return hidden; }\n  return 0.0;"
            if mask.type.dtype is DType.BOOL
            else "return f32(load_mask(at));",
        ]
    return "\n  ".join(lines)


def lower_attention(
    op: Any, target: Target, heads: Heads, inputs: AttentionInputs[Operand], outs: tuple[TensorType, ...]
) -> tuple[Dispatch, ...]:
    """Return the dispatches of an Attention node."""
    made = _Lowering(op, target, heads, inputs, outs)
    h = heads
    queries = inputs.q, h.view(h.q_heads, h.queries, h.size)
    k = made.cache(inputs.k, inputs.past_key, 1, h.size)
    v = made.cache(inputs.v, inputs.past_value, 2, h.v_size)
    if not op.wants(0) and not op.wants(3):
        return tuple(made.made)
    y = out(0, outs[0]), h.view(h.q_heads, h.queries, h.v_size)
    form = made.form(queries, k, v, y)
    types = {x.type.dtype for x, _ in (queries, k, v)}
    parts = op.wants(3) or not fits(target, form) or len(types) > 1 or not (h.total and h.size)
    if parts or not target.allows("attention_flash"):
        made.composed(
            made.in_heads(queries, h.q_heads, h.queries, h.size),
            made.in_heads(k, h.kv_heads, h.total, h.size),
            made.in_heads(v, h.kv_heads, h.total, h.v_size),
            made.bias(),
        )
    else:
        bound = (queries[0], k[0], v[0], y[0], made.mask(), inputs.nonpad_kv_seqlen)
        made.made += attend(target, form, AttentionTensors(*bound))
    return tuple(made.made)
