"""One query and the newest row of keys and values, made ready by the attention that reads them.

The kernel for few queries turns and normalises them itself (`parts/attention/attention_new_quad.wgsl`) and sets the
new row into caches that hold all others, without a dispatch of `kernels.attention.prepared_heads`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyruntime.ir import DType
from pyruntime.kernels.attention.append import Turn
from pyruntime.kernels.attention.description import AttentionForm, AttentionTensors, HeadView
from pyruntime.kernels.ir.dispatch import Operand

__all__ = ["NewRow"]


@dataclass(frozen=True, slots=True)
class NewRow:
    """What becomes the newest row of the caches, and how it and the query are made ready.

    Attributes:
        key, value: tensors that hold the row, perhaps the one of the query. key_view, value_view: where.
        q_norm, k_norm: weights of norms over the components of a head, or none. epsilon: of both.
    """

    key: Operand
    key_view: HeadView
    value: Operand
    value_view: HeadView
    turn: Turn | None
    q_norm: Operand | None
    k_norm: Operand | None
    epsilon: float

    def fits(self, form: AttentionForm, tensors: AttentionTensors) -> bool:
        """Whether the kernel takes it: rows of whole vec4s, one query, lengths, caches of floats or packed rows."""
        whole = form.is_quads and self.key_view.is_quads and self.value_view.is_quads
        floats = tensors.k.type.dtype is tensors.v.type.dtype in (DType.FLOAT, DType.FLOAT16)
        caches = floats or tensors.cache_bits > 0
        packed = {self.key == tensors.q, self.value == tensors.q}
        one = form.sizes[2] == 1 and tensors.lengths is not None
        return one and whole and caches and len(packed) == 1 and self._turns_in_quads

    @property
    def _turns_in_quads(self) -> bool:
        turn = self.turn
        return turn is None or turn.cosines.type.shape[1] % (2 if turn.interleaved else 4) == 0

    def operands(self, tensors: AttentionTensors) -> dict[str, Operand | None]:
        """Further tensors by the names the shader has for them."""
        packed, turn = self.key == tensors.q, self.turn
        return {
            "own_key": None if packed else self.key,
            "own_value": None if packed else self.value,
            "cosines": turn.cosines if turn is not None else None,
            "sines": turn.sines if turn is not None else None,
            "positions": turn.positions if turn is not None else None,
            "q_weight": self.q_norm,
            "k_weight": self.k_norm,
        }

    def flags(self, tensors: AttentionTensors) -> dict[str, object]:
        """Conditions (`//#if`) of the shader."""
        turn = self.turn
        return {
            "NEW_ROW": True,
            "PACKED": self.key == tensors.q,
            "TURN": turn,
            "PAIRS": turn is not None and turn.interleaved,
            "POSITIONS": turn is not None and turn.positions is not None,
            "NORM": self.q_norm,
            "CUT": tensors.k.type.dtype is DType.FLOAT16,
        }

    @property
    def values(self) -> dict[str, float | int | list[int]]:
        """Fields of the shader's `Params`."""
        rows, half = self.turn.cosines.type.shape if self.turn is not None else (0, 0)
        return {
            "new_row_strides": [*self.key_view.strides[:2], *self.value_view.strides[:2]],
            "key_base": self.key_view.base,
            "value_base": self.value_view.base,
            "half": half,
            "angle_rows": rows,
            "epsilon": self.epsilon,
        }
