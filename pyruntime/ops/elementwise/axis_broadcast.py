"""Operators of two inputs as they were before opset 7: z = f(a, b), where b meets the dimensions of a from `axis` on.

With `broadcast` the shape of b is followed by ones until it fits: axis 1 puts b: [C, H] against a: [N, C, H, W] as
[C, H, 1]. Without `axis` the last dimensions meet. From opset 7 on NumPy's rule holds and f is the same, so these
operators are today's over a reshaped b. Source: ONNX operators Add, And, Div, Equal, Greater, Less, Mul, Or, Pow,
PRelu, Sub, Xor at opsets 1 and 6.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion

NAMES = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")


class _AxisBroadcast(Decomposed):
    axis: int | None
    broadcast: int

    def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
        if not self.broadcast and a.shape != b.shape:
            self.fail("two inputs of one shape (broadcast is 0)", f"{a} and {b}")
        axis = a.rank - b.rank if self.axis is None or not self.broadcast else self.axis_of(self.axis, a.rank)
        fits = all(n in (1, m) for n, m in zip(b.shape, a.shape[axis:], strict=False))
        if axis < 0 or not fits or axis + b.rank > a.rank:
            self.fail(f"b to fit {a} from axis {axis} on", b)
        return (body(self.op_type, a, _followed(body, b, a.rank - axis - b.rank)),)


def _followed(body: Expansion, b: TensorType, ones: int) -> TensorType:
    """b with `ones` further dimensions of size 1 at its end."""
    return body("Unsqueeze", b, body.ints(*range(b.rank, b.rank + ones))) if ones else b


def _define(name: str) -> type[_AxisBroadcast]:
    """The operator, registered for opsets 1 to 6."""
    annotations = {"axis": "int | None", "broadcast": "int", "consumed_inputs": "tuple[int, ...] | None"}
    doc = f"z = {name.lower()}(a, b), b from `axis` on."
    members: dict[str, Any] = {"__module__": __name__, "__doc__": doc, "__annotations__": annotations}
    defaults = {"axis": None, "broadcast": 0, "consumed_inputs": None}
    return op(name, opsets=range(1, 7))(type(f"{name}1", (_AxisBroadcast,), members | defaults))


globals().update({f"{name}1": _define(name) for name in NAMES})


@op("PRelu", opsets=range(1, 7))
class PRelu1(Decomposed):
    """slope: one number, or one for each channel: dimension 1 of x."""

    consumed_inputs: tuple[int, ...] | None = None

    def expand(self, body: Expansion, x: TensorType, slope: TensorType) -> tuple[TensorType | None, ...]:
        if slope.shape not in ((), (1,)):
            if x.rank < 2 or slope.shape != x.shape[1:2]:
                self.fail(f"one slope, or one for each channel of {x}", slope)
            slope = _followed(body, slope, x.rank - 2)
        return (body("PRelu", x, slope),)
