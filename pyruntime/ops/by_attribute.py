"""Early operator versions whose attributes became inputs in a later version."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType, known
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.base import Op

__all__ = ["ByAttribute"]


class ByAttribute(Op):
    """Base of operators with one input whose later version takes some of the attributes as integer inputs.

    Class attributes:
        later: operator class of the later version. Attributes with the same name in both have the same meaning.
        moved: attributes that became inputs, in input order. One whose value is None becomes an absent input.
    """

    later: ClassVar[type[Op]]
    moved: ClassVar[tuple[str, ...]]

    def _as_later(self) -> tuple[Op, list[Any]]:
        """Return the equivalent operator of the later version, and the types (with values) of its additional inputs."""
        shared = {f.name: getattr(self, f.name) for f in fields(self.later) if hasattr(self, f.name)}
        numbers = [getattr(self, name) for name in self.moved]
        arrays = [None if n is None else np.array(n, np.int64).reshape(-1) for n in numbers]
        return self.later(**shared), [a if a is None else known(TensorType(DType.INT64, a.shape), a) for a in arrays]

    def infer(self, x: TensorType) -> tuple[Any, ...]:
        op, further = self._as_later()
        return op.infer(x, *further)

    def evaluate(self, x: Array) -> tuple[Any, ...]:
        op, further = self._as_later()
        return op.evaluate(x, *(None if t is None else t.value() for t in further))

    def alias(self, x: TensorType) -> int | None:
        op, further = self._as_later()
        return op.alias(x, *further)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        op, further = self._as_later()
        return op.lower(target, x, *further)
