"""The interface of operators that update caches in place, which `passes/decoding/grow_in_place.py` uses."""

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
        input: index of the input. axis: the axis that rows are counted along.
        first: (index of an input, a number): the least element plus the number is the first row written. Index -1: no
            input, the number alone.
        end: likewise of the largest element: how many rows are valid then. None: the consumers of the output say it
            (`CacheOp.rows_read`).
        known: first and end where a run does not feed these inputs.
    """

    input: int
    axis: int
    first: tuple[int, Any]
    end: tuple[int, Any] | None = None
    known: tuple[Any, Any] | None = None


class CacheOp(Op):
    """An operator that can write outputs into the memory of an input, or read the first rows of a larger tensor."""

    def appends(self, *inputs: Any) -> Mapping[int, tuple[int, int]]:
        """Outputs that are an input followed by new rows: output to (input, axis). See `append_in_place`."""
        return {}

    def append_in_place(self, *inputs: Any) -> Op:
        """This operator for inputs of `appends` with capacity for more rows, into whose memory it writes its outputs.

        Args:
            inputs: the types before the change.
        """
        raise NotImplementedError(f"{self.op_type}.append_in_place")

    def read_in_place(self, index: int, kind: TensorType, axis: int, rows: Any) -> Op | None:
        """This operator where input `index`, now of `kind`, is the first rows of a tensor with `rows` along `axis`.

        None where the operator needs a tensor without further rows.
        """
        return None

    def rewrites(self, *inputs: Any) -> Mapping[int, Rewritten]:
        """Outputs that are an input of the same shape with some rows replaced. See `rewrite_in_place`."""
        return {}

    def rewrite_in_place(self, *inputs: Any) -> Op:
        """This operator where it writes the outputs of `rewrites` into the memory of their inputs.

        Args:
            inputs: the types before the change.
        """
        raise NotImplementedError(f"{self.op_type}.rewrite_in_place")

    def rows_read(self, index: int, *inputs: Any) -> tuple[int, int] | None:
        """(An input, a number): the elements plus the number say how many rows of input `index` are read; None: all."""
        return None

    @property
    def overwrites(self) -> Mapping[int, int]:
        """Outputs that share the memory of an input, of which dispatches overwrite a part: output to input."""
        return {}


def overwritten(op: object) -> Mapping[int, int]:
    """`CacheOp.overwrites` of any operator: output to input."""
    return op.overwrites if isinstance(op, CacheOp) else {}
