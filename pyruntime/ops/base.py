"""The base class of operators, and their registration.

An operator is an immutable value: its fields are the ONNX attributes, so operators with equal attributes compare and
hash equal (common-subexpression elimination and kernel caches rely on it). Its methods define its semantics:

    @op("Softmax", opsets=range(13, LATEST + 1))
    class Softmax(Op):
        axis: int = -1

        def infer(self, x): ...             # input types -> output types
        def evaluate(self, x): ...          # NumPy arrays -> NumPy arrays: folding, host steps, the CPU provider
        def lower(self, target, x): ...     # input types -> GPU dispatches; absent: the operator runs on the host

Absent optional inputs are `None` in all three. A field has type `int`, `float`, `str`, `bytes`, `tuple[int, ...]`,
`tuple[float, ...]`, `tuple[str, ...]`, `Constant` or `Graph`; lists of possibly thousands of elements have type `Ints`,
`Floats` or `Strings[str]`. `| None` marks an optional attribute without a default, and a field without a default is a
required attribute. `Annotated[str, "a", "b"]` allows these values alone. The importer sets `present`, which says which
outputs the node names.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Bound, DType, TensorType, Unsupported, ValueType

if TYPE_CHECKING:
    from pyruntime.kernels.ir.dispatch import Dispatch
    from pyruntime.target import Target

__all__ = [
    "LATEST",
    "LATEST_ML",
    "UNFIT",
    "Op",
    "Unsupported",
    "Value",
    "attributes",
    "attributes_of",
    "broadcasts_to",
    "op",
    "refuse_float64",
    "register",
    "registered",
]

LATEST = 28
"""Newest supported ai.onnx opset. A model of a newer opset gets the operators of this one."""

LATEST_ML = 5
"""Newest supported ai.onnx.ml opset."""


UNFIT = TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError
"""Exceptions, besides OrtError, that operator code raises for invalid attributes or inputs."""


class Value:
    """Base of immutable objects that compare and hash by their fields."""

    attribute_values: ClassVar[Callable[[Any], Any]]
    """Returns the value of the only field, or a tuple of the values of all fields."""

    choices: ClassVar[Mapping[str, Sequence[Any]]]
    """What the fields may be that name their values, None aside."""

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{n}={v!r}' for n, v in attributes_of(self).items())})"

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        return type(other) is cls and cls.attribute_values(self) == cls.attribute_values(other)

    def __hash__(self) -> int:
        return hash(type(self).attribute_values(self))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be assigned: operators do not change")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be deleted: operators do not change")


ValueClass = TypeVar("ValueClass", bound=type[Value])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def attributes(cls: ValueClass) -> ValueClass:
    """Turn the annotations of a subclass of `Value` into keyword-only, read-only fields.

    Unlike a plain dataclass, the class inherits `__eq__`, `__hash__`, `__repr__` and `__setattr__` from `Value`:
    generated for each of hundreds of classes, these methods would be a tenth of the bytes that a page downloads.
    """
    dataclass(frozen=True, kw_only=True, repr=False, eq=False)(cls)
    del cls.__setattr__, cls.__delattr__
    known = fields(cast(Any, cls))
    cls.attribute_values = attrgetter(*(f.name for f in known))
    named = {f.name: re.search(r"Annotated\[\w+, (.*?)\]", str(f.type)) for f in known}
    cls.choices = {name: literal_eval(f"[{found[1]}]") for name, found in named.items() if found}
    return cls


@attributes
class Op(Value):
    """Base class of all operators.

    Class attributes:
        op_type, domain: ONNX names.
        opsets: versions of the domain that this class implements.
        compatible: `opsets`, and later versions in which a node of this class has the same meaning because they only
            add attributes.
        data_dependent: the output type depends on input values, so the host needs all inputs before it plans the
            consumers (NonZero, Unique, sequence operators).
        pure: equal inputs give equal outputs. False for random generators, which are never folded or merged.
        is_custom: the operator is user-defined, so nothing is known about the indices that its kernels access.
        operands: named tuple of the inputs (`operands.named`). None: the parameters of `infer` name the inputs.
    """

    op_type: ClassVar[str] = ""
    domain: ClassVar[str] = ""
    opsets: ClassVar[range] = range(0)
    compatible: ClassVar[range] = range(0)
    data_dependent: ClassVar[bool] = False
    pure: ClassVar[bool] = True
    is_custom: ClassVar[bool] = False
    operands: ClassVar[Any] = None

    present: tuple[bool, ...] = (True,)

    def __post_init__(self) -> None:
        """Raise InvalidGraph where an attribute has none of the values allowed."""
        for name, allowed in self.choices.items():
            value = getattr(self, name)
            if value not in allowed and value is not None:
                self.fail(f"{name} {', '.join(map(str, allowed[:-1]))} or {allowed[-1]}", value)

    def infer(self, *inputs: Any) -> tuple[ValueType, ...]:
        """Return the output types for input types. Reads `x.value()` where an output type depends on a value.

        Raises:
            InvalidGraph: the inputs do not fit the operator (raise it with `self.fail`).
        """
        raise NotImplementedError(f"{self.op_type}.infer")

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """Compute the outputs of NumPy inputs, all in carrier dtypes.

        Never writes to the inputs; may return views of them.
        """
        raise NotImplementedError(f"{self.op_type}.evaluate")

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        """Like `evaluate`, with the input types, for operators that must distinguish float8 from float32."""
        return self.evaluate(*inputs)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        """Return the GPU dispatches that compute the outputs. Operators without an override run on the host.

        Raises:
            Unsupported: no kernel exists for these types or on this device.
        """
        raise Unsupported(f"{self.op_type} has no GPU kernel")

    def follows_from_types(self, *inputs: Any) -> bool:
        """Whether `infer` computes the output values from the input types alone (Shape, Size)."""
        return False

    def alias(self, *inputs: Any) -> int | None:
        """Return the index of the input whose bytes are output 0 (Reshape and similar), or None.

        An alias takes no time on the GPU.
        """
        return None

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        """Return the allowed ranges of integer inputs. Kernels clamp values outside them, and `evaluate` raises.

        Only `dtype` and `shape` of the inputs are read. Absent inputs have no range.
        """
        return ()

    def check_bounds(self, *inputs: Any) -> None:
        """Raise RuntimeException if an element of an input array is outside its range (`bounds`)."""
        for bound in self.bounds(*inputs):
            bound.check(inputs[bound.input])

    @property
    def title(self) -> str:
        """Name for reports: the operator type, or the types of the operators that this one fuses."""
        return self.op_type

    def wants(self, output: int) -> bool:
        """Return whether the node has output number `output`."""
        return output < len(self.present) and self.present[output]

    @classmethod
    def has_kernel(cls) -> bool:
        """Whether the operator can run on the GPU for some inputs."""
        return cls.lower is not Op.lower or cls.alias is not Op.alias

    def fail(self, expected: str, got: object) -> NoReturn:
        """Raise InvalidGraph with `expected` and `got`. The planner adds the node's name."""
        raise InvalidGraph(f"{self.op_type}: expected {expected}, got {got}")

    def same_dtype(self, *inputs: TensorType | None) -> DType:
        """Return the element type of all present inputs. Raises InvalidGraph if they differ."""
        dtypes = [x.dtype for x in inputs if x is not None]
        if any(d is not dtypes[0] for d in dtypes):
            self.fail("inputs of one type", " and ".join(d.type_string for d in dtypes))
        return dtypes[0]

    def floating(self, *inputs: TensorType | None) -> DType:
        """Return the floating-point type of all present inputs. Raises InvalidGraph: they differ, or have another.

        For operators that ONNX defines for floating-point numbers alone: their formulas round integers to nonsense.
        """
        dtype = self.same_dtype(*inputs)
        if not dtype.is_float:
            self.fail("floating-point numbers", dtype.type_string)
        return dtype

    def axis_of(self, axis: int, rank: int) -> int:
        """Return `axis` as a non-negative index; scalars count as rank 1. Raises InvalidGraph outside [-rank, rank)."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            self.fail(f"an axis in [{-rank}, {rank - 1}]", axis)
        return axis % rank if rank else 0


def broadcasts_to(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of shape `shape` broadcasts to shape `to` by NumPy's rules."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def refuse_float64(*inputs: TensorType | None) -> None:
    """Raise Unsupported if an input is float64, a type that WGSL lacks."""
    if any(x is not None and x.dtype is DType.DOUBLE for x in inputs):
        raise Unsupported("float64 is exact on the host")


OpClass = TypeVar("OpClass", bound=type[Op])

registered: dict[tuple[str, str], list[type[Op]]] = {}
"""(domain, op_type) -> the classes that implement it, with disjoint opset ranges. Use `registry` to read it."""


def attributes_of(op: Any) -> dict[str, Any]:
    """Return the fields of an operator by name, for example to construct a subclass with further fields."""
    return {f.name: getattr(op, f.name) for f in fields(op)}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def op(
    name: str, opsets: range, domain: str = "", earlier: Mapping[range, str] = MappingProxyType({})
) -> Callable[[OpClass], OpClass]:
    """Register a class as operator `name` of `domain` for a range of opsets, and make it an immutable dataclass.

    Args:
        earlier: earlier opset ranges -> the space-separated names of the attributes that do not exist there. In these
            opsets the attributes have their default values.

    Raises:
        ValueError: a range overlaps one that is already registered.
    """

    def decorate(cls: OpClass) -> OpClass:
        for before, lacking in earlier.items():
            older = register(_without(cls, lacking.split(), f"{cls.__name__}{before.start}"), name, before, domain)
            older.compatible = range(before.start, opsets.stop)
        attributes(cls)
        return register(cls, name, opsets, domain)

    return decorate


def _without(cls: OpClass, lacking: Sequence[str], name: str) -> OpClass:
    """Derive from `cls`, before it becomes a dataclass, a dataclass without the fields `lacking`."""
    own = {n: kind for n, kind in cls.__annotations__.items() if n not in lacking}
    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__annotations__": own}
    return cast(OpClass, attributes(type(name, (cls,), members)))


def register(cls: OpClass, name: str, opsets: range, domain: str = "") -> OpClass:
    """Register `cls`, made by `attributes`, as operator `name` of `domain` for a range of opsets; return `cls`.

    Raises:
        ValueError: the range overlaps one that is already registered.
    """
    cls.op_type, cls.domain, cls.opsets, cls.compatible = name, domain, opsets, opsets
    versions = registered.setdefault((domain, name), [])
    own = cls.__module__, cls.__qualname__
    others = [v for v in versions if (v.__module__, v.__qualname__) != own]
    for other in others:
        if set(other.opsets) & set(opsets):
            raise ValueError(f"{name}: opsets {opsets} overlap those of {other.__module__}.{other.__name__}")
    versions[:] = [*others, cls]
    return cls
