"""Operators that keep caches in memory: what `passes/decoding/grow_in_place.py` asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import Op

__all__ = ["CacheOp", "Rewritten", "overwritten"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Rows of an input that an output has others of.

    Attributes:
        input: its number. axis: along which there are rows.
        first: number of the input whose least element, plus a number, is the first row written; no input: -1.
        end: number of the input whose largest element, plus a number, says how many rows count then; None: the readers
            of the output say it (`CacheOp.rows_read`).
        known: first and end where these inputs are not fed.
    """

    input: int
    axis: int
    first: tuple[int, Any]
    end: tuple[int, Any] | None = None
    known: tuple[Any, Any] | None = None


class CacheOp(Op):
    """An operator with outputs that can stay in the memory of an input, or that can read rows of a larger tensor."""

    def appends(self, *inputs: Any) -> Mapping[int, tuple[int, int]]:
        """Outputs that are an input followed by new rows: (input, axis) by output. See `in_room`."""
        return {}

    def in_room(self, *inputs: Any) -> Op:
        """This operator where the inputs of `appends` have room for more rows and its outputs are their memory.

        Args:
            inputs: the types it has now.
        """
        raise NotImplementedError(f"{self.op_type}.in_room")

    def over_room(self, index: int, kind: TensorType, axis: int, rows: Any) -> Op | None:
        """This operator where input `index` has `rows` along `axis` in memory, the first of which are those of `kind`.

        None where it reads them only from a tensor that has no others.
        """
        return None

    def rewrites(self, *inputs: Any) -> Mapping[int, Rewritten]:
        """Outputs that are an input of the same shape with some rows written over. See `in_place`."""
        return {}

    def in_place(self, *inputs: Any) -> Op:
        """This operator where the outputs of `rewrites` are the memory of their inputs.

        Args:
            inputs: the types it has now.
        """
        raise NotImplementedError(f"{self.op_type}.in_place")

    def rows_read(self, index: int, *inputs: Any) -> tuple[int, int] | None:
        """The input whose elements, plus a number, say how many rows of input `index` are read; None: all may be."""
        return None

    @property
    def overwrites(self) -> Mapping[int, int]:
        """Outputs that are the very memory of an input, of which dispatches overwrite a part: input by output."""
        return {}


def overwritten(op: object) -> Mapping[int, int]:
    """`CacheOp.overwrites` of an operator, whichever it is: input by output."""
    return op.overwrites if isinstance(op, CacheOp) else {}
