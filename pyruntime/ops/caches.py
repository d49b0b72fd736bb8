"""Interface of operators that update a cache in place, such as a KV cache; used by passes/decoding/grow_in_place.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import Op

__all__ = ["CacheOp", "Rewritten", "overwritten"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The rows of an input that an output replaces.

    Attributes:
        input: index of the input.
        axis: axis of the rows.
        first: (input index, offset). The first row written is the smallest element of that input plus the offset. With
            index -1 it is the offset alone.
        end: (input index, offset). The number of rows valid afterwards is the largest element of that input plus the
            offset. None: the consumers of the output determine it (`CacheOp.rows_read`).
        known: values of `first` and `end` where these inputs are constants of the run.
    """

    input: int
    axis: int
    first: tuple[int, Any]
    end: tuple[int, Any] | None = None
    known: tuple[Any, Any] | None = None


class CacheOp(Op):
    """Base of operators that can write outputs into the memory of an input, or read a prefix of a larger tensor."""

    def appends(self, *inputs: Any) -> Mapping[int, tuple[int, int]]:
        """Return the outputs that are an input with rows appended, as output -> (input, axis); see append_in_place."""
        return {}

    def append_in_place(self, *inputs: Any) -> Op:
        """Return a variant of this operator that appends to the inputs listed by `appends` in their memory.

        These inputs then have capacity for further rows.

        Args:
            inputs: input types before the change.
        """
        raise NotImplementedError(f"{self.op_type}.append_in_place")

    def read_in_place(self, index: int, kind: TensorType, axis: int, rows: Any) -> Op | None:
        """Return a variant of this operator that reads only the first rows of input `index`.

        Args:
            kind: type of the input with its valid rows only.
            axis, rows: the tensor in memory has `rows` rows along `axis`.

        Returns:
            None if the operator cannot read an input with unused rows.
        """
        return None

    def rewrites(self, *inputs: Any) -> Mapping[int, Rewritten]:
        """Return the outputs that equal an input of the same shape except for some rows; see rewrite_in_place."""
        return {}

    def rewrite_in_place(self, *inputs: Any) -> Op:
        """Return a variant of this operator that writes the outputs listed by `rewrites` over their inputs.

        Args:
            inputs: input types before the change.
        """
        raise NotImplementedError(f"{self.op_type}.rewrite_in_place")

    def rows_read(self, index: int, *inputs: Any) -> tuple[int, int] | None:
        """Return the rows read of input `index`: as many as elements of input `i`, plus `offset`, as (i, offset).

        Returns None if all rows are read.
        """
        return None

    @property
    def overwrites(self) -> Mapping[int, int]:
        """Outputs that share the memory of an input, of which dispatches write only a part, as output -> input."""
        return {}


def overwritten(op: object) -> Mapping[int, int]:
    """Return `CacheOp.overwrites` of any operator, as output -> input; empty for operators that are no CacheOp."""
    return op.overwrites if isinstance(op, CacheOp) else {}
