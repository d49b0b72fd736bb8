"""Elementwise operators: y[i] = f(a[i], b[i], ...) with NumPy broadcasting.

An operator defines f for types (`dtypes`, `result`), NumPy (`compute`) and WGSL (`expression`). Operators without
attributes are table rows, from which `define` makes classes:

    globals().update(define(__name__, (
        Unary("Abs", 6, NUMBERS, np.abs, f32="abs(x)", i32="abs(x)", u32="x", i64="i64_abs(x)", u64="x"),
    )))

float16 is computed in float32 and rounded once, on the GPU and the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Target, elementwise, inp, out
from pyruntime.kernels.ir.indexing import broadcast_shapes
from pyruntime.ops.base import LATEST, Op, Unsupported, attributes, register
from pyruntime.ops.elementwise.conversions import convert

__all__ = [
    "BOOL",
    "FLOATS",
    "FLOATS_8",
    "INTEGERS",
    "NUMBERS",
    "SIGNED",
    "Binary",
    "Elementwise",
    "Expression",
    "Unary",
    "classes",
    "compute_class",
    "define",
]

FLOATS = frozenset((DType.FLOAT, DType.FLOAT16, DType.BFLOAT16, DType.DOUBLE))
FLOATS_8 = frozenset((DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ))
SIGNED = frozenset((DType.INT8, DType.INT16, DType.INT32, DType.INT64))
INTEGERS = SIGNED | {DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64}
NUMBERS = FLOATS | INTEGERS
BOOL = frozenset((DType.BOOL,))

Classes = Mapping[str, str]
"""WGSL expression by compute class: "f32", "i32", "u32", "bool", "i64", "u64"."""


def classes(**codes: str) -> Classes:
    """Make a read-only mapping of compute classes to WGSL, without empty entries."""
    return MappingProxyType({name: code for name, code in codes.items() if code})


def compute_class(dtype: DType) -> str:
    """Return the WGSL compute type of `dtype`, with "i64" and "u64" for 64-bit integers and "" for float64."""
    wide = {DType.INT64: "i64", DType.UINT64: "u64", DType.DOUBLE: ""}
    return wide.get(dtype, dtype.compute)


@dataclass(frozen=True, slots=True)
class Expression:
    """WGSL of one output element.

    Attributes:
        code: expression over `names` and `scalars`, of the output's compute type. If the output's type is narrower, the
            caller rounds or wraps the value, as a store does (`kernels.wgsl.storage.rounded`).
        names: the present inputs in order, each of its compute type.
        scalars: values of uniforms, f32 or (for Python ints) i32.
    """

    code: str
    names: tuple[str, ...]
    scalars: Mapping[str, float | int] = field(default_factory=dict)


class Elementwise(Op):
    """Base of elementwise operators.

    Class attributes:
        names: input names in WGSL.
        dtypes: allowed element types; all inputs have the same one.
        wgsl: expression by compute class. Types of other classes run on the host.
        scalars: attributes that the expression uses.
        predicate: the result is bool.
    """

    names: ClassVar[tuple[str, ...]] = ("x",)
    dtypes: ClassVar[frozenset[DType]] = FLOATS
    wgsl: ClassVar[Classes] = classes()
    scalars: ClassVar[tuple[str, ...]] = ()
    predicate: ClassVar[bool] = False

    def compute(self, *inputs: Any) -> Any:
        """Apply the function to NumPy arrays. float16 inputs arrive as float32; the caller casts the result."""
        raise NotImplementedError(self.op_type)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        """Return the function in WGSL for inputs of these types (None: absent), or None if there is no WGSL."""
        code = self.wgsl.get(compute_class(dtypes[0])) if dtypes[0] else None
        return Expression(code, self.names, {s: getattr(self, s) for s in self.scalars}) if code else None

    def broadcast(self, *inputs: TensorType) -> tuple[int, ...]:
        """Return the broadcast shape of the inputs. Raises InvalidGraph if there is none."""
        try:
            return broadcast_shapes(*(x.shape for x in inputs))
        except ValueError:
            self.fail("shapes that broadcast", " and ".join(str(list(x.shape)) for x in inputs))

    def check(self, x: TensorType, allowed: frozenset[DType]) -> None:
        """Raise InvalidGraph if the type of `x` is not in `allowed`."""
        if x.dtype not in allowed:
            self.fail(" or ".join(sorted(d.onnx_name for d in allowed)), x.dtype.type_string)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        present = sum(x is not None for x in inputs)
        if not len(inputs) == present == len(self.names):
            self.fail(f"{len(self.names)} inputs", present)
        return self.result(*inputs)

    def result(self, *inputs: Any) -> tuple[TensorType, ...]:
        """Return the output type for present inputs. Raises InvalidGraph if the inputs do not match."""
        dtype = self.same_dtype(*inputs)
        self.check(inputs[0], self.dtypes)
        return (TensorType(DType.BOOL if self.predicate else dtype, self.broadcast(*inputs)),)

    def evaluate(self, *inputs: Any) -> tuple[Array, ...]:
        dtype = inputs[0].dtype
        if dtype == np.float16:
            inputs = tuple(x.astype(np.float32) for x in inputs)
        with np.errstate(all="ignore"):
            result = np.asarray(self.compute(*inputs))
            return (convert(result, np.dtype(np.bool_) if self.predicate else dtype),)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        types = [None if x is None else x.dtype for x in inputs]
        expression = self.expression(*types)
        if expression is None:
            raise Unsupported(self.reason(*types))
        (y,) = self.infer(*inputs)
        present = [inp(i, x) for i, x in enumerate(inputs) if x is not None]
        operands = dict(zip(expression.names, present, strict=True))
        kernel = elementwise(target, self.op_type.lower(), operands, out(0, y), expression.code, expression.scalars)
        return (kernel,)

    def reason(self, *dtypes: DType | None) -> str:
        """Return why inputs of these types run on the host."""
        if DType.DOUBLE in dtypes:
            return "float64 is exact on the host"
        return f"{self.op_type} of {' and '.join(d.onnx_name for d in dtypes if d)} is exact on the host"


@dataclass(frozen=True, slots=True)
class Row:
    """An elementwise operator.

    Attributes:
        name: the ONNX name.
        since: first opset these semantics hold for; they hold up to the newest.
        dtypes: element types allowed.
        compute: the function on NumPy arrays and the values of the attributes.
        f32, i32, u32, i64, u64, boolean: WGSL by compute class.
        numbers: WGSL for f32, i32 and u32. ints: for all integers. wide: for both 64-bit integers.
        predicate: the result is bool.
        attributes: their defaults by name; expressions read them.
    """

    name: str
    since: int
    dtypes: frozenset[DType]
    compute: Callable[..., Any]
    f32: str = ""
    i32: str = ""
    u32: str = ""
    i64: str = ""
    u64: str = ""
    boolean: str = ""
    numbers: str = ""
    ints: str = ""
    wide: str = ""
    predicate: bool = False
    attributes: Mapping[str, float | int] = field(default_factory=dict)

    names: ClassVar[tuple[str, ...]] = ()

    def wgsl(self) -> Classes:
        """Return the expressions by compute class."""
        wide, narrow = self.wide or self.ints, self.numbers or self.ints
        return classes(
            f32=self.f32 or self.numbers,
            i32=self.i32 or narrow,
            u32=self.u32 or narrow,
            i64=self.i64 or wide,
            u64=self.u64 or wide,
            bool=self.boolean,
        )


class Unary(Row):
    """A function of one input, called `x` in WGSL."""

    names = ("x",)


class Binary(Row):
    """A function of two inputs, called `a` and `b` in WGSL."""

    names = ("a", "b")


def define(module: str, rows: Sequence[Row]) -> dict[str, type[Elementwise]]:
    """Create and register the operator classes of `rows`, as name -> class. `module` becomes their `__module__`."""
    made: dict[str, type[Elementwise]] = {}
    for row in rows:
        doc = f"y = {row.name.lower()}({', '.join(row.names)}), elementwise. Source: ONNX operator {row.name}."
        members = {
            "__module__": module,
            "__doc__": doc,
            "__annotations__": {name: type(value).__name__ for name, value in row.attributes.items()},
            "names": row.names,
            "dtypes": row.dtypes,
            "wgsl": row.wgsl(),
            "scalars": tuple(row.attributes),
            "predicate": row.predicate,
            "compute": _with_attributes(row),
            **row.attributes,
        }
        cls: type[Elementwise] = type(row.name, (Elementwise,), members)
        if row.attributes:  # else the frozen dataclass they inherit from is complete
            cls = attributes(cls)
        made[row.name] = register(cls, row.name, range(row.since, LATEST + 1))
    return made


def _with_attributes(row: Row) -> Callable[..., Any]:
    return lambda self, *inputs: row.compute(*inputs, *(getattr(self, name) for name in row.attributes))
