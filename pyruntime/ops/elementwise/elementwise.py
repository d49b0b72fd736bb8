"""Elementwise operators: y[i] = f(a[i], b[i], ...) with NumPy broadcasting.

An operator states its function three times: types (`dtypes`, `result`), NumPy (`compute`) and WGSL (`expression`).
Operators without attributes are rows of a table; `define` makes classes of rows:

    globals().update(define(__name__, (
        Unary("Abs", 6, NUMBERS, np.abs, f32="abs(x)", i32="abs(x)", u32="x", i64="i64_abs(x)", u64="x"),
    )))

Results are rounded once: float16 is computed in float32 on either side.
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
"""WGSL by compute class: "f32", "i32", "u32", "bool", "i64", "u64"."""


def classes(**codes: str) -> Classes:
    """WGSL by compute class, read-only; classes without code are left out."""
    return MappingProxyType({name: code for name, code in codes.items() if code})


def compute_class(dtype: DType) -> str:
    """How WGSL computes with a type: its compute type, where 64-bit integers have a sign; "" for float64."""
    wide = {DType.INT64: "i64", DType.UINT64: "u64", DType.DOUBLE: ""}
    return wide.get(dtype, dtype.compute)


@dataclass(frozen=True, slots=True)
class Expression:
    """WGSL for one output element.

    Attributes:
        code: one expression over `names` and `scalars`, of the output's compute type. Where the output's type is
            narrower than its compute type the value still has to be rounded or wrapped to it, as a store does
            (`kernels.wgsl.storage.rounded`).
        names: the present inputs, in order; each is a value of its compute type.
        scalars: uniform numbers: f32, or i32 where the value is an int.
    """

    code: str
    names: tuple[str, ...]
    scalars: Mapping[str, float | int] = field(default_factory=dict)


class Elementwise(Op):
    """Base of elementwise operators.

    Class attributes:
        names: the inputs as WGSL calls them.
        dtypes: element types allowed; all inputs share one.
        wgsl: expression by compute class; classes that are not there run on the host.
        scalars: attributes that the expression names.
        predicate: the result is bool.
    """

    names: ClassVar[tuple[str, ...]] = ("x",)
    dtypes: ClassVar[frozenset[DType]] = FLOATS
    wgsl: ClassVar[Classes] = classes()
    scalars: ClassVar[tuple[str, ...]] = ()
    predicate: ClassVar[bool] = False

    def compute(self, *inputs: Any) -> Any:
        """The function on NumPy arrays; float16 arrives as float32. The caller casts what comes back."""
        raise NotImplementedError(self.op_type)

    def expression(self, *dtypes: DType | None) -> Expression | None:
        """The function in WGSL for inputs of these types (None: absent), or None where only the host has it."""
        code = self.wgsl.get(compute_class(dtypes[0])) if dtypes[0] else None
        return Expression(code, self.names, {s: getattr(self, s) for s in self.scalars}) if code else None

    def broadcast(self, *inputs: TensorType) -> tuple[int, ...]:
        """NumPy's broadcast of the shapes. Raises InvalidGraph."""
        try:
            return broadcast_shapes(*(x.shape for x in inputs))
        except ValueError:
            self.fail("shapes that broadcast", " and ".join(str(list(x.shape)) for x in inputs))

    def check(self, x: TensorType, allowed: frozenset[DType]) -> None:
        """Raise InvalidGraph where the type of `x` is not in `allowed`."""
        if x.dtype not in allowed:
            self.fail(" or ".join(sorted(d.onnx_name for d in allowed)), x.dtype.type_string)

    def infer(self, *inputs: Any) -> tuple[TensorType, ...]:
        present = sum(x is not None for x in inputs)
        if not len(inputs) == present == len(self.names):
            self.fail(f"{len(self.names)} inputs", present)
        return self.result(*inputs)

    def result(self, *inputs: Any) -> tuple[TensorType, ...]:
        """The output's type for inputs that are all there. Raises InvalidGraph: they do not fit each other."""
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
        """Why these types run on the host."""
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
        numbers, ints, wide: WGSL of f32, i32 and u32 alike; of all integers; of both 64-bit ones.
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
        """Expressions by compute class."""
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
    """A function of one input, `x` in its expressions."""

    names = ("x",)


class Binary(Row):
    """A function of two inputs, `a` and `b` in its expressions."""

    names = ("a", "b")


def define(module: str, rows: Sequence[Row]) -> dict[str, type[Elementwise]]:
    """The operator classes of `rows`, registered, by name; `module` is where they live."""
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
