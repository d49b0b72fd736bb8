"""Binary operators before opset 7: z = f(a, b), where the dimensions of b align with those of a from `axis` on.

With `broadcast`, b: [C, H] and axis 1 broadcast to a: [N, C, H, W] as [C, H, 1]. Without `axis`, the last dimensions
align. The operators expand to a reshape of b and the current operator, which follows NumPy's rule. Source: ONNX
operators Add, And, Div, Equal, Greater, Less, Mul, Or, Pow, PRelu, Sub, Xor at opsets 1 and 6.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion

NAMES = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")


class _AxisBroadcast(Decomposed):
    """Base of the binary operators with the attributes `axis` and `broadcast`."""

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
    """Return b with `ones` dimensions of size 1 appended."""
    return body("Unsqueeze", b, body.ints(*range(b.rank, b.rank + ones))) if ones else b


def _define(name: str) -> type[_AxisBroadcast]:
    """Create the operator class `name` and register it for opsets 1 to 6."""
    annotations = {"axis": "int | None", "broadcast": "int", "consumed_inputs": "tuple[int, ...] | None"}
    doc = f"z = {name.lower()}(a, b), where the dimensions of b align with those of a from `axis` on."
    members: dict[str, Any] = {"__module__": __name__, "__doc__": doc, "__annotations__": annotations}
    defaults = {"axis": None, "broadcast": 0, "consumed_inputs": None}
    return op(name, opsets=range(1, 7))(type(f"{name}1", (_AxisBroadcast,), members | defaults))


globals().update({f"{name}1": _define(name) for name in NAMES})


@op("PRelu", opsets=range(1, 7))
class PRelu1(Decomposed):
    """slope: one number, or one for each channel (dimension 1 of x)."""

    consumed_inputs: tuple[int, ...] | None = None

    def expand(self, body: Expansion, x: TensorType, slope: TensorType) -> tuple[TensorType | None, ...]:
        if slope.shape not in ((), (1,)):
            if x.rank < 2 or slope.shape != x.shape[1:2]:
                self.fail(f"one slope, or one for each channel of {x}", slope)
            slope = _followed(body, slope, x.rank - 2)
        return (body("PRelu", x, slope),)
