"""GroupQueryAttention on the GPU: rows made ready and set into the caches, then the attention over the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.ir import Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, constant, gather_map, inp, out, scratch, strided_copy
from pyruntime.kernels.attention import attend, attend_fresh
from pyruntime.kernels.attention_append import Append, Lengths, Quantised, Turn, append
from pyruntime.kernels.attention_form import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.kernels.attention_fresh import FreshRow
from pyruntime.kernels.attention_prepare import Fresh, prepare
from pyruntime.kernels.indexing import contiguous
from pyruntime.ops.contrib._scores import output_scores

if TYPE_CHECKING:
    from pyruntime.ops.contrib.group_query_attention import GroupQueryAttention, GroupQuerySizes

__all__ = ["lower_group_query"]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node to lower, its inputs as operands."""

    op: GroupQueryAttention
    target: Target
    sizes: GroupQuerySizes
    given: list[Operand | None]
    outs: tuple[TensorType, ...]


def lower_group_query(
    op: GroupQueryAttention,
    target: Target,
    s: GroupQuerySizes,
    inputs: list[TensorType | None],
    outs: tuple[TensorType, ...],
) -> tuple[Dispatch, ...]:
    """The dispatches of a GroupQueryAttention node."""
    given = [None if x is None else inp(i, x) for i, x in enumerate(inputs)]
    node = _Node(op, target, s, given, outs)
    query, lengths, total = given[0], given[5], given[6]
    assert query is not None and lengths is not None and total is not None
    made: list[Dispatch] = []
    rows = Lengths(lengths=lengths, lacking=1, prompt=total, queries=s.queries)
    views, bound = _fresh(node)
    turn = None
    if op.do_rotary:
        assert given[7] is not None and given[8] is not None
        turn = Turn(given[7], given[8], given[9], bool(op.rotary_interleaved))
    norms = [None if w is None else (w, op.qk_norm_epsilon) for w in given[14:16]]

    if (fused := _fresh_in_attention(node, views, bound, turn)) is not None:
        return fused
    ready_all = _prepared(node, views, bound, rows, turn)
    if ready_all is not None:
        made, q, caches = ready_all
        if not op.wants(0) and not op.wants(3):
            return tuple(made)
        qkv = (q, caches[0], caches[1])
        return (*made, *_attention(node, qkv, HeadView.of(q)))
    caches = []
    for i, kind in enumerate((op.k_quant_type, op.v_quant_type)):
        past, present, scale = given[3 + i], outs[1 + i], given[12 + i]
        y = out(1 + i, present) if op.wants(1 + i) else scratch(present.dtype, *present.shape)
        bits = None if scale is None or not op.is_quantised else Quantised(scale, op.bits, kind == "PER_CHANNEL")
        if s.new:
            norm = norms[1] if i == 0 else None
            into = bool(op.overwrites)
            kept = None if into else past
            ready = Append(
                True, kept, lengths=rows, turn=turn if i == 0 else None, norm=norm, quantised=bits, into=into
            )
            x, view = bound[1 + i], views[1 + i]
            made += append(target, y, x, view, s.new, s.size, ready)
        elif past is not None and op.wants(1 + i):
            made.append(strided_copy(target, "attention_kept", y, past, 0, contiguous(present.shape)))
        elif past is not None:
            y = past
        if bits is not None:
            whole = scratch(DType.FLOAT, s.batch, op.kv_num_heads, s.present, s.size)
            made.append(_whole(target, whole, y, bits))
            y = whole
        caches.append(y)
    if not op.wants(0) and not op.wants(3):
        return tuple(made)
    q, q_view = query, views[0]
    if turn is not None or norms[0] is not None:
        q = scratch(DType.FLOAT, s.batch, op.num_heads, s.queries, s.size)
        q_view = HeadView.of(q)
        ready = Append(lengths=rows, turn=turn, norm=norms[0])
        made += append(target, q, query, views[0], s.queries, s.size, ready)
    return (*made, *_attention(node, (q, caches[0], caches[1]), q_view))


def _prepared(
    node: _Node, views: list[HeadView], bound: list[Operand], rows: Lengths, turn: Turn | None
) -> tuple[list[Dispatch], Operand, list[Operand]] | None:
    """Dispatches, queries and caches where few dispatches make all ready; None where rows need more than that."""
    op, s = node.op, node.sizes
    norms = node.given[14:16]
    if (
        op.is_quantised
        or not s.new
        or (turn is None and norms[0] is None)
        or not node.target.allows("attention_prepare")
    ):
        return None
    ys = [out(i, node.outs[i]) if op.wants(i) else scratch(node.outs[i].dtype, *node.outs[i].shape) for i in (1, 2)]
    q = scratch(DType.FLOAT, s.batch, op.num_heads, s.queries, s.size)
    fresh = [
        Fresh(bound[0], views[0], q, None, norms[0]),
        Fresh(bound[1], views[1], ys[0], node.given[3], norms[1]),
        Fresh(bound[2], views[2], ys[1], node.given[4]),
    ]
    into = bool(op.overwrites)
    one = prepare(node.target, fresh, s.new, rows, turn, op.qk_norm_epsilon, into)
    if one is not None:
        return [one], q, ys
    two = prepare(node.target, fresh[:2], s.new, rows, turn, op.qk_norm_epsilon, into)
    if two is None:
        return None
    placed = Append(True, None if into else node.given[4], lengths=rows, into=into)
    return [two, *append(node.target, ys[1], bound[2], views[2], s.new, s.size, placed)], q, ys


def _fresh_in_attention(
    node: _Node, views: list[HeadView], bound: list[Operand], turn: Turn | None
) -> tuple[Dispatch, ...] | None:
    """One query with caches that hold all other rows: the attention makes ready what is new; None for all else."""
    op, s = node.op, node.sizes
    one = s.queries == 1 and s.new == 1 and op.overwrites and not op.is_quantised
    if not one or not op.wants(0) or op.wants(3) or not (op.wants(1) and op.wants(2)):
        return None
    form, tensors = _attention_of(node, (bound[0], out(1, node.outs[1]), out(2, node.outs[2])), views[0])
    fresh = FreshRow(bound[1], views[1], bound[2], views[2], turn, node.given[14], node.given[15], op.qk_norm_epsilon)
    return attend_fresh(node.target, form, tensors, fresh)


def _attention(node: _Node, qkv: tuple[Operand, Operand, Operand], q_view: HeadView) -> list[Dispatch]:
    form, tensors = _attention_of(node, qkv, q_view)
    made: list[Dispatch] = []
    if node.op.wants(0):
        made += attend(node.target, form, tensors)
    if node.op.wants(3):
        made += output_scores(node.target, form, tensors, out(3, node.outs[3]), node.op.qk_output == 2)
    return made


def _attention_of(
    node: _Node, qkv: tuple[Operand, Operand, Operand], q_view: HeadView
) -> tuple[AttentionForm, AttentionTensors]:
    op, s = node.op, node.sizes
    q, k, v = qkv
    width = op.num_heads * s.size
    y_view = HeadView(0, (s.queries * width, s.size, width, 1))
    sink = node.given[11]
    if sink is None and op.smooth_softmax == 1:
        sink = constant(Constant.from_array(np.zeros(op.num_heads, np.float32)))
    form = AttentionForm(
        (s.batch, op.num_heads, s.queries, s.present, s.size, s.size),
        q_view,
        HeadView.of(k),
        HeadView.of(v),
        y_view,
        op.factor(s.size),
        True,
        op.num_heads // op.kv_num_heads,
        op.cap,
        Reach(op.before, 0 if op.causal else -1, 0, 1),
    )
    return form, AttentionTensors(q, k, v, out(0, node.outs[0]), node.given[10], node.given[5], node.given[6], sink)


def _fresh(node: _Node) -> tuple[list[HeadView], list[Operand]]:
    """Query, key and value as [B, heads, rows, D], and the tensors they are in."""
    op, s = node.op, node.sizes
    query, key, value = node.given[:3]
    assert query is not None
    groups = op.kv_num_heads
    if key is None or value is None:
        width = (op.num_heads + 2 * groups) * s.size
        strides = (s.queries * width, s.size, width, 1)
        bases = (0, op.num_heads * s.size, (op.num_heads + groups) * s.size)
        return [HeadView(b, strides) for b in bases], [query] * 3
    views = [
        HeadView(0, (rows * heads * s.size, s.size, heads * s.size, 1))
        for heads, rows in ((op.num_heads, s.queries), (groups, s.new), (groups, s.new))
    ]
    return views, [query, key, value]


def _whole(target: Target, y: Operand, x: Operand, made: Quantised) -> Dispatch:
    """y [B, G, T, D] := the numbers a quantised cache stands for; x: [B, G, C, D or D / 2], C >= T."""
    _, heads, length, size = y.type.shape
    at = "(head % params.heads) * params.size_d + i % params.size_d" if made.channels else "0u"
    load = "f32(load_x(j))"
    if made.bits == 4:
        load = "(f32(extractBits(load_x(j / 2u), 4u * (j & 1u), 4u)) - 8.0)"
    code = f"""let head = i / params.run;
  let j = i + head * params.behind;
  return {load} * load_scale({at});"""
    fields = (("run", "u32"), ("behind", "u32"), ("heads", "u32"), ("size_d", "u32"))
    behind = (x.type.shape[2] - length) * size
    values = {"run": length * size, "behind": behind, "heads": heads, "size_d": size}
    name = f"attention_cache_{made.bits}" + "_channels" * made.channels
    return gather_map(target, name, y, [Source("x", x), Source("scale", made.scale)], code, fields, values)
