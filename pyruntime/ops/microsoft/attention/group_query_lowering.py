"""GPU lowering of GroupQueryAttention: prepare rows, store them in the caches, then attend over the caches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyruntime.ir import Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Source, Target, constant, gather_map, out, scratch, strided_copy
from pyruntime.kernels.attention.append import Append, Lengths, Quantised, Turn, append
from pyruntime.kernels.attention.attention import attend, attend_new_row
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView, Reach
from pyruntime.kernels.attention.new_row import NewRow
from pyruntime.kernels.attention.packed_cache import PackedCache, pack_cache
from pyruntime.kernels.attention.prepared_heads import WIDEST, Rows, Tables, prepare_heads
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.ops.base import Unsupported
from pyruntime.ops.microsoft.attention.group_query_form import GroupQueryForm, GroupQueryInputs, GroupQuerySizes
from pyruntime.ops.microsoft.attention.scores import output_scores
from pyruntime.ops.operands import bound

__all__ = ["lower_group_query"]


@dataclass(frozen=True, slots=True)
class _Node:
    """A node to lower.

    Attributes:
        inputs: inputs as operands.
        outs: output types.
        rows: position of a batch entry's first new row.
        turn: rotary embedding, or None.
        fresh: (tensor, view in it) of query, key and value.
    """

    op: GroupQueryForm
    target: Target
    sizes: GroupQuerySizes
    inputs: GroupQueryInputs[Operand]
    outs: tuple[TensorType, ...]
    rows: Lengths
    turn: Turn | None
    fresh: tuple[tuple[Operand, HeadView], ...]

    @property
    def writes_into_caches(self) -> bool:
        """Whether new rows are written into the memory of the input caches."""
        return bool(self.op.overwrites)

    @property
    def needs_scores(self) -> bool:
        """True if an output of the attention is wanted, not only the updated caches."""
        return self.op.wants(0) or self.op.wants(3)

    def present(self, index: int) -> Operand:
        """Return cache output `index`, or a scratch operand where the node does not name it."""
        kind = self.outs[index]
        return out(index, kind) if self.op.wants(index) else scratch(kind.dtype, *kind.shape)


def lower_group_query(
    op: GroupQueryForm,
    target: Target,
    s: GroupQuerySizes,
    inputs: GroupQueryInputs[TensorType],
    outs: tuple[TensorType, ...],
) -> tuple[Dispatch, ...]:
    """Return the dispatches of a GroupQueryAttention node. Raises Unsupported."""
    if inputs.query_seqlens is not None:
        raise Unsupported("right-padded chunks (query_seqlens) are stored into the caches on the host")
    given: GroupQueryInputs[Operand] = bound(GroupQueryInputs, inputs)
    turn = None
    if op.do_rotary:
        assert given.cos_cache is not None and given.sin_cache is not None
        turn = Turn(given.cos_cache, given.sin_cache, given.position_ids, bool(op.rotary_interleaved))
    rows = Lengths(lengths=given.seqlens_k, lacking=1, prompt=given.total_sequence_length, queries=s.queries)
    node = _Node(op, target, s, given, outs, rows, turn, _fresh(op, s, given))
    return _in_attention(node) or (_packed(node) if op.is_packed else _prepared(node) or _appended(node))


def _in_attention(node: _Node) -> tuple[Dispatch, ...] | None:
    """Return attention dispatches that also prepare the new row, or None.

    Requires one query, and caches that are updated in place.
    """
    op, s = node.op, node.sizes
    readable = op.is_packed or not op.is_quantized
    one = s.queries == 1 and s.new == 1 and node.writes_into_caches and readable and op.has_one_epsilon
    if not one or not op.wants(0) or op.wants(3) or not (op.wants(1) and op.wants(2)):
        return None
    (query, q_view), (key, k_view), (value, v_view) = node.fresh
    form, tensors = _attention_of(node, (query, node.present(1), node.present(2)), q_view)
    weights = node.inputs.q_norm_weight, node.inputs.k_norm_weight
    fresh = NewRow(key, k_view, value, v_view, node.turn, *weights, op.epsilons[0])
    return attend_new_row(node.target, form, tensors, fresh)


def _prepared(node: _Node) -> tuple[Dispatch, ...] | None:
    """Return dispatches that prepare all rows together, then attend; None if the device binds too few buffers."""
    op, s, given = node.op, node.sizes, node.inputs
    if op.is_quantized or not s.new:
        return None
    into = node.writes_into_caches
    keys, values = node.present(1), node.present(2)
    q = scratch(DType.FLOAT, s.batch, op.num_heads, s.queries, s.size)
    pasts = [
        past if past is not None and past.type.size and not into else None
        for past in (given.past_key, given.past_value)
    ]
    query, key, value = node.fresh
    angles = _angles(node)
    parts = (
        Rows(*query, q, s.new, weight=given.q_norm_weight, angles=angles),
        Rows(*key, keys, s.new, None, pasts[0], given.k_norm_weight, angles),
        Rows(*value, values, s.new, None, pasts[1]),
    )
    made = _together(node, parts, into)
    return None if made is None else (*made, *_attention(node, (q, keys, values), HeadView.of(q)))


def _angles(node: _Node) -> tuple[int, int, int, int] | None:
    """Return the strides of the rotary tables, or None without rotation."""
    return None if node.turn is None else (0, 0, 0, 1)


def _together(node: _Node, parts: tuple[Rows, ...], into: bool) -> tuple[Dispatch, ...] | None:
    """Return dispatches that prepare rows together; None if no preparation is needed or no kernel fits."""
    op, size, turn = node.op, node.sizes.size, node.turn
    nothing = turn is None and node.inputs.q_norm_weight is None
    if nothing or not op.has_one_epsilon or not node.target.allows("attention_prepare"):
        return None
    if size % 4 or size > WIDEST:
        return None
    tables: Tables | None = None
    if turn is not None:
        tables = Tables(turn.cosines, turn.sines, turn.cosines.type.shape[1], turn.interleaved, True, turn.positions)
    made = prepare_heads(node.target, parts, tables, op.epsilons[0], into, node.rows)
    return None if any(len(d.operands) > node.target.limits.storage_buffers for d in made) else made


def _packed(node: _Node) -> tuple[Dispatch, ...]:
    """Return dispatches that prepare queries and keys, pack new rows into the caches, and attend over these."""
    op, s, given = node.op, node.sizes, node.inputs
    pasts = given.past_key, given.past_value
    if s.new:
        into = node.writes_into_caches
        made, query, key = _queries_and_keys(node)
        caches = [node.present(1), node.present(2)]
        kept = [past if past is not None and past.type.size and not into else None for past in pasts]
        fresh = (key, node.fresh[2])
        keys, values = (PackedCache(*x, y, past) for x, y, past in zip(fresh, caches, kept, strict=True))
        made.append(pack_cache(node.target, (keys, values), s.new, s.size, op.bits, into, node.rows))
    else:
        made = [_kept(node, i, past) for i, past in enumerate(pasts, 1) if past is not None and op.wants(i)]
        caches = [node.present(i) if op.wants(i) or past is None else past for i, past in enumerate(pasts, 1)]
        more, query = _queries(node)
        made += more
    q, view = query
    return (*made, *_attention(node, (q, caches[0], caches[1]), view))


def _queries_and_keys(node: _Node) -> tuple[list[Dispatch], tuple[Operand, HeadView], tuple[Operand, HeadView]]:
    """Return dispatches that normalize and rotate queries and new keys, and the views of both."""
    op, s, given, angles = node.op, node.sizes, node.inputs, _angles(node)
    q = scratch(DType.FLOAT, s.batch, op.num_heads, s.queries, s.size)
    k = scratch(DType.FLOAT, s.batch, op.kv_num_heads, s.new, s.size)
    query, key, _ = node.fresh
    parts = (
        Rows(*query, q, s.queries, weight=given.q_norm_weight, angles=angles),
        Rows(*key, k, s.new, weight=given.k_norm_weight, angles=angles),
    )
    made = _together(node, parts, True)
    if made is not None:
        return [*made], (q, HeadView.of(q)), (k, HeadView.of(k))
    more, query = _queries(node)
    rest, key = _ready(node, 1, s.new, None if given.k_norm_weight is None else (given.k_norm_weight, op.epsilons[1]))
    return [*more, *rest], query, key


def _appended(node: _Node) -> tuple[Dispatch, ...]:
    """Return separate dispatches that append to each cache and rotate the queries, then attend."""
    op, given = node.op, node.inputs
    k_norm = None if given.k_norm_weight is None else (given.k_norm_weight, op.epsilons[1])
    scales = [
        None if scale is None or not op.is_quantized else Quantised(scale, op.bits, kind == "PER_CHANNEL")
        for scale, kind in ((given.k_scale, op.k_quant_type), (given.v_scale, op.v_quant_type))
    ]
    more, keys = _cache(node, 1, given.past_key, scales[0], node.turn, k_norm)
    made = [*more]
    more, values = _cache(node, 2, given.past_value, scales[1])
    made += more
    if not node.needs_scores:
        return tuple(made)
    more, (q, view) = _queries(node)
    return (*made, *more, *_attention(node, (q, keys, values), view))


def _cache(
    node: _Node,
    index: int,
    past: Operand | None,
    scale: Quantised | None,
    turn: Turn | None = None,
    norm: tuple[Operand, float] | None = None,
) -> tuple[list[Dispatch], Operand]:
    """Return dispatches that compute cache output `index`, and the cache as attention reads it."""
    op, s, target = node.op, node.sizes, node.target
    made: list[Dispatch] = []
    y = node.present(index)
    if s.new:
        into = node.writes_into_caches
        kept = None if into else past
        ready = Append(True, kept, lengths=node.rows, turn=turn, norm=norm, quantised=scale, into=into)
        made += append(target, y, *node.fresh[index], s.new, s.size, ready)
    elif past is not None and op.wants(index):
        made.append(_kept(node, index, past))
    elif past is not None:
        y = past
    if scale is not None:
        whole = scratch(DType.FLOAT, s.batch, op.kv_num_heads, s.present, s.size)
        made.append(_dequantized(target, whole, y, scale))
        y = whole
    return made, y


def _kept(node: _Node, index: int, past: Operand) -> Dispatch:
    """Return a copy of the past cache to output `index`."""
    strides = contiguous(node.outs[index].shape)
    return strided_copy(node.target, "attention_kept", node.present(index), past, 0, strides)


def _queries(node: _Node) -> tuple[list[Dispatch], tuple[Operand, HeadView]]:
    """Return dispatches that normalize and rotate the queries, and their view."""
    weight = node.inputs.q_norm_weight
    return _ready(node, 0, node.sizes.queries, None if weight is None else (weight, node.op.epsilons[0]))


def _ready(
    node: _Node, index: int, rows: int, norm: tuple[Operand, float] | None
) -> tuple[list[Dispatch], tuple[Operand, HeadView]]:
    """Return dispatches that normalize and rotate query (0) or key (1), and its view."""
    x, view = node.fresh[index]
    if node.turn is None and norm is None:
        return [], (x, view)
    heads = node.op.kv_num_heads if index else node.op.num_heads
    y = scratch(DType.FLOAT, node.sizes.batch, heads, rows, node.sizes.size)
    ready = Append(lengths=node.rows, turn=node.turn, norm=norm)
    return [*append(node.target, y, x, view, rows, node.sizes.size, ready)], (y, HeadView.of(y))


def _attention(node: _Node, qkv: tuple[Operand, Operand, Operand], q_view: HeadView) -> list[Dispatch]:
    """Return dispatches of the attention over the caches, and of the scores where they are an output."""
    if not node.needs_scores:
        return []
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
    op, s, given = node.op, node.sizes, node.inputs
    q, k, v = qkv
    sink = given.head_sink
    if sink is None and op.smooth_softmax == 1:
        sink = constant(Constant.from_array(np.zeros(op.num_heads, np.float32)))
    form = AttentionForm(
        (s.batch, op.num_heads, s.queries, s.present, s.size, s.size),
        q_view,
        HeadView.of(k),
        HeadView.of(v),
        HeadView.flat(s.queries, op.num_heads, s.size),
        op.factor(s.size),
        True,
        op.num_heads // op.kv_num_heads,
        op.cap,
        Reach(op.before, 0 if op.causal else -1, 0, 1),
    )
    lengths = given.seqlens_k, given.total_sequence_length
    bits = op.bits if op.is_packed else 0
    return form, AttentionTensors(q, k, v, out(0, node.outs[0]), given.attention_bias, *lengths, sink, bits)


def _fresh(
    op: GroupQueryForm, s: GroupQuerySizes, given: GroupQueryInputs[Operand]
) -> tuple[tuple[Operand, HeadView], ...]:
    """Return (tensor, view [B, heads, rows, D]) of query, key and value."""
    groups = op.kv_num_heads
    if given.key is None or given.value is None:
        width = (op.num_heads + 2 * groups) * s.size
        strides = (s.queries * width, s.size, width, 1)
        bases = (0, op.num_heads * s.size, (op.num_heads + groups) * s.size)
        return tuple((given.query, HeadView(base, strides)) for base in bases)
    tensors = ((given.query, op.num_heads, s.queries), (given.key, groups, s.new), (given.value, groups, s.new))
    return tuple((x, HeadView.flat(rows, heads, s.size)) for x, heads, rows in tensors)


def _dequantized(target: Target, y: Operand, x: Operand, made: Quantised) -> Dispatch:
    """Return the dispatch that dequantizes a cache x [B, G, C, D or D / 2] to y [B, G, T, D], C >= T."""
    _, heads, length, size = y.type.shape
    at = "(head % params.heads) * params.size_d + i % params.size_d" if made.channels else "0u"
    load = "f32(load_x(j))"
    if made.bits == 4:
        load = "(f32(extractBits(load_x(j / 2u), 4u * (j & 1u), 4u)) - 8.0)"
    code = f"""let head = i / params.run;
  let j = i + head * params.skipped;
  return {load} * load_scale({at});"""
    skipped = (x.type.shape[2] - length) * size
    values = {"run": length * size, "skipped": skipped, "heads": heads, "size_d": size}
    name = f"attention_cache_{made.bits}" + "_channels" * made.channels
    return gather_map(target, name, y, [Source("x", x), Source("scale", made.scale)], code, values)
