"""Caches of models with local attention: rows that no later token attends to are dropped.

Where each attention is a GroupQueryAttention with `local_window_size` w and internal rotary embeddings, a token attends
to the last w rows including its own. Before a run on 2 w or more rows, all but the last w - 1 are dropped: d rows.
Rotary embeddings are relative, so the remaining keys are rotated back by d,

    k R(-d),  R(p): the rotation by the angles of position p,

and rows are counted from 0 again. Results are those of the whole text, up to rounding where keys are rotated (at most
twice for each row); caches have fewer than 2 w rows plus those of a run, and positions never exceed the table of
angles, however long the text is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.ir.constant import Constant
from pyruntime.ir.graph import Graph, Node
from pyruntime.onnx.writer import ModelWriter

__all__ = ["LocalCaches", "local_caches", "turning_model", "window_caches"]

_PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN, _POSITIONS, _BIAS = 3, 4, 5, 6, 7, 8, 9, 10


@dataclass(frozen=True)
class _Turn:
    """Rotary tables of an attention: constants [positions, r / 2], and whether pairs are interleaved."""

    cos: Constant
    sin: Constant
    interleaved: bool


@dataclass(frozen=True)
class LocalCaches:
    """Caches of a model in which every attention is local.

    Attributes:
        window: tokens that the widest attention reads, including the query's.
        positions: rows of the shortest rotary table.
        turns: rotary tables by the name of a key cache.
    """

    window: int
    positions: int
    turns: Mapping[str, _Turn]

    @property
    def kept(self) -> int:
        """Rows that later tokens attend to."""
        return max(1, self.window - 1)

    @property
    def chunk(self) -> int:
        """Number of tokens that can be computed in one run after `kept` rows."""
        return max(1, self.positions - self.kept)

    def steps(self, most: int) -> tuple[int, int]:
        """Return (d, c): the unit of dropped rows, and the maximum number of tokens computed together, at most `most`.

        For callers that only drop multiples of d, as soon as there are `kept` + d rows: keys are then rotated by
        multiples of one angle for each pair, and `kept` + d - 1 + c rows have positions.
        """
        chunk = min(most, max(1, (self.positions - self.kept) // 2))
        return min(self.window + 1, self.positions - self.kept - chunk + 1), chunk

    def dropped(self, rows: int, new: int) -> int:
        """Return the number of rows to drop from a cache before a run of `new` tokens."""
        full = rows >= 2 * self.window or rows + new > self.positions
        return max(0, rows - self.kept) if full else 0

    def rotation(self, name: str, by: int, size: int) -> Array:
        """Return R(-by) for the keys of this cache, to multiply from the right: float32 [size, size]."""
        turn = self.turns[name]
        c, s = (np.asarray(t.numpy()[by], np.float64) for t in (turn.cos, turn.sin))
        length = np.hypot(c, s)  # tables may be scaled
        half = len(c)
        first = 2 * np.arange(half) if turn.interleaved else np.arange(half)
        second = first + (1 if turn.interleaved else half)
        made = np.eye(size)
        made[first, first] = made[second, second] = c / length
        made[second, first], made[first, second] = s / length, -s / length
        return made.astype(np.float32)


def local_caches(graph: Graph, caches: Mapping[str, str], mask: str, positions: str) -> LocalCaches | None:
    """Find the local caches of a model; None where a node may attend further back or reads the text's length.

    Args:
        caches: past inputs and their present outputs.
        mask, positions: names of these inputs. A model without mask passes lengths in another way.
    """
    readers = graph.consumers()
    attentions = dict.fromkeys(n for n in graph.nodes if n.op.op_type == "GroupQueryAttention")
    read = [(name, node) for name in caches for node in readers.get(name, [])]
    if not read or any(node not in attentions for _, node in read) or mask not in readers:
        return None
    given = {v.name for v in graph.inputs}
    if any(n.op.op_type not in ("ReduceSum", "Shape", "Cast") for n in readers[mask]) or (
        positions in given and any(not _is_slot(n, positions, _POSITIONS) for n in readers.get(positions, []))
    ):
        return None
    turns = {}
    for node in attentions:
        found = _turn(node, graph, positions if positions in given else "")
        if found is None or not {node.inputs[_PAST_KEY], node.inputs[_PAST_VALUE]} <= set(caches):
            return None
        turns[node.inputs[_PAST_KEY]] = found
    ops: list[Any] = [n.op for n in attentions]
    rows = min(t.cos.type.shape[0] for t in turns.values())
    window = max(op.local_window_size for op in ops)
    fits = min(op.local_window_size for op in ops) > 0 and rows > window
    return LocalCaches(window, rows, turns) if fits else None


def window_caches(graph: Graph) -> dict[str, int]:
    """Return the minimum of rows of each cache that only holds a window's rows (`sliding_window_cache`), by input."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        op: Any = node.op
        if op.op_type == "GroupQueryAttention" and op.sliding_window_cache:
            found |= dict.fromkeys(node.inputs[_PAST_KEY : _PAST_VALUE + 1], op.local_window_size)
    return found


def _is_slot(node: Node, name: str, slot: int) -> bool:
    return node.op.op_type == "GroupQueryAttention" and [i for i, n in enumerate(node.inputs) if n == name] == [slot]


def _turn(node: Node, graph: Graph, positions: str) -> _Turn | None:
    """Return the rotary tables of an attention that is local and derives positions from its cache's rows alone."""
    op: Any = node.op
    inputs = [*node.inputs, *[""] * (_BIAS + 1 - len(node.inputs))]
    plain = op.causal and op.do_rotary and not op.is_quantized and not op.sliding_window_cache and not op.qk_output
    cos, sin = (graph.constants.get(inputs[i]) for i in (_COS, _SIN))
    if not plain or inputs[_BIAS] or inputs[_POSITIONS] not in ("", positions) or cos is None or sin is None:
        return None
    return _Turn(cos, sin, bool(op.rotary_interleaved))


def turning_model(dtype: DType) -> bytes:
    """Build a model of y = x[:, :, first:] · turn, with x [batch, heads, rows, size] and turn float32 [size, size]."""
    writer = ModelWriter("turn_back")
    writer.input("x", dtype, ("batch", "heads", "rows", "size"))
    writer.input("first", DType.INT64, (1,))
    writer.input("turn", DType.FLOAT, ("size", "size"))
    ends, axes = writer.constant([1 << 40], np.int64), writer.constant([2], np.int64)
    kept = writer.node("Slice", "x", "first", ends, axes)
    if dtype is DType.FLOAT:
        writer.node("MatMul", kept, "turn", name="y")
    else:
        turned = writer.node("MatMul", writer.cast(kept, DType.FLOAT), "turn")
        writer.node("Cast", turned, to=dtype.code, name="y")
    writer.output("y", dtype, ("batch", "heads", "kept", "size"))
    return writer.model()
