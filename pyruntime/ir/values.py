"""Values with their types: on the host a value is a `ValueType` that knows it.

    x = known(TensorType(DType.FLOAT, (2,)), array)      x.value() is array
    xs = known(SequenceType(DType.BFLOAT16), [a, b])     a and b are float32 carriers of any shape
    nothing = known(OptionalType(DType.INT64), None)

An omitted optional input is None, which is not a value; an empty optional is a value whose `value()` is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime.ir.dtype import DType
from pyruntime.ir.graph import DeclaredTensor, HostKind
from pyruntime.ir.symbolic.dims import expression, is_dim
from pyruntime.ir.symbolic.reals import is_real
from pyruntime.ir.symbolic.sizes import evaluate
from pyruntime.ir.types import MapType, OptionalType, SequenceType, TensorType

if TYPE_CHECKING:
    from pyruntime.ir.graph import DeclaredType
    from pyruntime.ir.types import Array, Element, ValueType

__all__ = ["at_sizes", "conform", "declared_element", "element_of", "known", "of_element"]


def known(type: ValueType, value: Any, name: str | None = None) -> ValueType:
    """Attach a value, in its carrier, to a type; `name` replaces the type's name."""
    called = type.name if name is None else name
    if isinstance(type, TensorType):  # the same as `replace`, several times faster
        return TensorType(type.dtype, type.shape, lambda: value, called)
    return replace(type, source=lambda: value, name=called)


def element_of(type: ValueType) -> Element:
    """Return the element type of a container of values of `type`."""
    return type.dtype if isinstance(type, TensorType) else replace(type, source=None, name="")


def of_element(element: Element, value: Any) -> ValueType:
    """Attach its type to a value taken from a container with these elements."""
    if isinstance(element, DType):
        return known(TensorType(element, tuple(value.shape)), value)
    return known(element, value)


def at_sizes(element: Element, value: Any, sizes: Sequence[int]) -> Any:
    """A value in which dynamic dimensions are the numbers that they are for these sizes of the plan."""
    if isinstance(element, SequenceType):
        return [at_sizes(element.element, item, sizes) for item in value]
    if isinstance(element, OptionalType):
        return None if value is None else at_sizes(element.element, value, sizes)
    if isinstance(element, MapType) or element is DType.STRING or value.dtype != object:
        return value
    numbers = [_number(item, sizes) for item in value.reshape(-1)]
    return np.array(numbers, element.numpy).reshape(value.shape)


def _number(item: Any, sizes: Sequence[int]) -> Any:
    if is_real(item):
        return _number(item.over, sizes) / item.under
    return evaluate(expression(item), sizes) if is_dim(item) else item


def declared_element(declared: DeclaredType | None) -> Element | None:
    """Return the element type of a container declared to hold `declared`; None where the declaration leaves it open."""
    if isinstance(declared, DeclaredTensor):
        return declared.dtype
    if not isinstance(declared, HostKind):
        return None
    inner = declared_element(declared.element)
    if inner is None or declared.kind not in ("seq", "optional", "map"):
        return None
    if declared.kind == "map":
        return MapType(declared.key or DType.INT64, inner)
    return SequenceType(inner) if declared.kind == "seq" else OptionalType(inner)


def conform(type: ValueType, value: Any) -> Any:
    """Convert a value to the carrier of `type`, rounding numbers to values of the element type.

    Idempotent: infinities and NaN of 8-bit floats are unchanged.

    Raises:
        TypeError: a value of another kind (an array instead of a list).
        ValueError: an array of another shape.
    """
    if isinstance(type, TensorType):
        shape = getattr(value, "shape", None)
        if shape is None:
            raise TypeError(f"expected {type}, got a {value.__class__.__name__}")
        if tuple(shape) != type.shape:
            raise ValueError(f"expected {type}, got an array of shape {list(shape)}")
    return _conform(element_of(type), value)


def _conform(element: Element, value: Any) -> Any:
    if isinstance(element, DType):
        return _tensor(element, value)
    if isinstance(element, OptionalType):
        return None if value is None else _conform(element.element, value)
    kind = Mapping if isinstance(element, MapType) else list
    if not isinstance(value, kind):
        raise TypeError(f"expected {element}, got a {value.__class__.__name__}")
    return value if isinstance(element, MapType) else [_conform(element.element, item) for item in value]


def _tensor(dtype: DType, value: Any) -> Array:
    import numpy as np

    from pyruntime.ir.encoding import round_to

    array = np.asarray(value)
    if array.dtype == object and dtype.numpy.kind in "iu":  # Dims
        return array
    if array.dtype == object and dtype.is_float:
        if any(map(is_real, array.reshape(-1))):
            return array
        array = array.astype(np.float64)
    return array.astype(object, copy=False) if dtype is DType.STRING else round_to(array, dtype, saturate=False)
