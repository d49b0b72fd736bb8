"""Operators of two inputs as they were before opset 7: z = f(a, b), where b meets the dimensions of a from `axis` on.

With `broadcast` the shape of b is followed by ones until it fits: axis 1 puts b: [C, H] against a: [N, C, H, W] as
[C, H, 1]. Without `axis` the last dimensions meet. From opset 7 on NumPy's rule holds and f is the same, so these
operators are today's over a reshaped b. Source: ONNX operators Add, And, Div, Equal, Greater, Less, Mul, Or, Pow,
PRelu, Sub, Xor at opsets 1 and 6.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.registry import op_class

__all__ = ["AxisBroadcast"]


class AxisBroadcast(Op):
    """Base: which shape b has in today's operator, and everything else left to that."""

    def stretched(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of b that broadcasts by NumPy's rule. Raises InvalidGraph."""
        raise NotImplementedError

    @property
    def today(self) -> Op:
        """The operator of opset 7 or later."""
        make: Any = op_class(self.op_type, "", LATEST)
        made: Op = make()
        return made

    def infer(self, a: TensorType, b: TensorType) -> tuple[Any, ...]:
        return self.today.infer(a, b.with_shape(*self.stretched(a.shape, b.shape)))

    def evaluate(self, a: Array, b: Array) -> tuple[Any, ...]:
        return self.today.evaluate(a, b.reshape(self.stretched(a.shape, b.shape)))

    def lower(self, target: Target, a: TensorType, b: TensorType) -> tuple[Dispatch, ...]:
        return self.today.lower(target, a, b.with_shape(*self.stretched(a.shape, b.shape)))


class _ByAttribute(AxisBroadcast):
    axis: int | None
    broadcast: int

    def stretched(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        if not self.broadcast:
            if a != b:
                self.fail("two inputs of one shape (broadcast is 0)", f"{list(a)} and {list(b)}")
            return b
        axis = len(a) - len(b) if self.axis is None else self.axis_of(self.axis, len(a))
        if axis < 0 or any(n not in (1, m) for n, m in zip(b, a[axis:], strict=False)) or axis + len(b) > len(a):
            self.fail(f"b to fit {list(a)} from axis {axis} on", list(b))
        return (*b, *(1,) * (len(a) - axis - len(b)))


class Row(NamedTuple):
    """An operator's ONNX name."""

    name: str

    def define(self) -> type[AxisBroadcast]:
        """The operator, registered for opsets 1 to 6."""
        doc = f"z = {self.name.lower()}(a, b), b from `axis` on."
        annotations = {"axis": "int | None", "broadcast": "int", "consumed_inputs": "tuple[int, ...] | None"}
        members = {"__module__": __name__, "__doc__": doc, "__annotations__": annotations}
        defaults: dict[str, Any] = {"axis": None, "broadcast": 0, "consumed_inputs": None}
        return op(self.name, opsets=range(1, 7))(type(f"{self.name}1", (_ByAttribute,), members | defaults))


ROWS = (
    Row("Add"),
    Row("And"),
    Row("Div"),
    Row("Equal"),
    Row("Greater"),
    Row("Less"),
    Row("Mul"),
    Row("Or"),
    Row("Pow"),
    Row("Sub"),
    Row("Xor"),
)

globals().update({f"{row.name}1": row.define() for row in ROWS})


@op("PRelu", opsets=range(1, 7))
class PRelu1(AxisBroadcast):
    """slope: one number, or one for each channel: dimension 1 of x."""

    consumed_inputs: tuple[int, ...] | None = None

    def stretched(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        if b in ((), (1,)):
            return b
        if len(b) != 1 or len(a) < 2 or b[0] != a[1]:
            self.fail(f"one slope, or one for each channel of {list(a)}", list(b))
        return (*b, *(1,) * (len(a) - 2))
