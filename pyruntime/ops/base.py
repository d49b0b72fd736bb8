"""The base class of operators, and their registration.

An operator is a frozen value: its fields are the ONNX attributes, so equal operators compare equal and hash equal
(common subexpressions and kernel caches use that). Its methods say everything the runtime knows about it:

    @op("Softmax", opsets=range(13, LATEST + 1))
    class Softmax(Op):
        axis: int = -1

        def infer(self, x): ...             # types in -> types out
        def evaluate(self, x): ...          # NumPy arrays in -> out: folding, host steps, the CPU provider
        def lower(self, target, x): ...     # types in -> GPU dispatches; absent: the operator runs on the host

Absent optional inputs are `None` in all three. Fields are typed `int`, `float`, `str`, `bytes`, `tuple[int, ...]`,
`tuple[float, ...]`, `tuple[str, ...]`, where there may be thousands of elements `Ints`, `Floats`, `Strings[str]`,
`Constant`, `Graph`, or any of these `| None` for an attribute that has no default; a field without default is a
required attribute. `Annotated[str, "a", "b"]` allows these values alone. `present` (which outputs the node names) is
filled in by the importer.
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
"""Newest ai.onnx opset known here; models of a newer one run with this one's operators where they exist."""

LATEST_ML = 5
"""Newest ai.onnx.ml opset known here."""


UNFIT = TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError
"""What an operator's own code raises on attributes or inputs that it does not expect, besides OrtError."""


class Value:
    """An object that is equal to others of its class by its fields, and cannot be changed."""

    attribute_values: ClassVar[Callable[[Any], Any]]
    """The value of the one field, or those of all in a tuple."""

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
    """Make the annotations of a class of operators, or of a base of such classes, fields that cannot be assigned.

    Unlike in a dataclass, its methods are those of `Value`: hundreds of classes with five more functions each would
    be a tenth of what a page fetches.
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
    """Base of every operator.

    Class attributes:
        op_type, domain: ONNX names. opsets: the versions of the domain this class implements.
        compatible: these, and later versions in which a node of this class means the same: they only add attributes.
        data_dependent: the output type depends on input values, so all inputs are needed on the host
            before the rest can be planned (NonZero, Unique, sequence operators).
        pure: same inputs, same outputs. False for random generators: never folded or shared.
        is_custom: users wrote it: nothing is known of the indices in its kernels.
        operands: a named tuple of the inputs (`operands.named`); None: the parameters of `infer` name them.
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
        """Output types from input types. Reads `x.value()` where the output type depends on it.

        Raises:
            InvalidGraph: the inputs do not fit the operator (use `self.fail`).
        """
        raise NotImplementedError(f"{self.op_type}.infer")

    def evaluate(self, *inputs: Any) -> tuple[Any, ...]:
        """Outputs from NumPy inputs, in carrier dtypes. Must not write to its inputs; may return views of them."""
        raise NotImplementedError(f"{self.op_type}.evaluate")

    def evaluate_typed(self, types: tuple[ValueType | None, ...], *inputs: Any) -> tuple[Any, ...]:
        """`evaluate` with the input types at hand, for the few operators that must tell float8 from float32."""
        return self.evaluate(*inputs)

    def lower(self, target: Target, *inputs: Any) -> tuple[Dispatch, ...]:
        """GPU dispatches that compute the outputs. Operators that do not override this run on the host.

        Raises:
            Unsupported: not for these types or on this device.
        """
        raise Unsupported(f"{self.op_type} has no GPU kernel")

    def follows_from_types(self, *inputs: Any) -> bool:
        """True where `infer` gives the output values from the input types alone (Shape, Size)."""
        return False

    def alias(self, *inputs: Any) -> int | None:
        """The input whose bytes output 0 is (Reshape and similar), or None. Such a node costs nothing on the GPU."""
        return None

    def bounds(self, *inputs: Any) -> Sequence[Bound]:
        """The integers of its inputs that kernels clamp, and `evaluate` refuses, where these are outside.

        Of the inputs only `dtype` and `shape` are read; an absent one has no bound.
        """
        return ()

    def check_bounds(self, *inputs: Any) -> None:
        """Raise RuntimeException where an array is outside its bound."""
        for bound in self.bounds(*inputs):
            bound.check(inputs[bound.input])

    @property
    def title(self) -> str:
        """What reports call it: the operator's name, or those of the operators that it fuses."""
        return self.op_type

    def wants(self, output: int) -> bool:
        """True where the node names this output."""
        return output < len(self.present) and self.present[output]

    @classmethod
    def has_kernel(cls) -> bool:
        """True where the operator can run on the GPU at all."""
        return cls.lower is not Op.lower or cls.alias is not Op.alias

    def fail(self, expected: str, got: object) -> NoReturn:
        """Raise InvalidGraph: the planner adds the node's name."""
        raise InvalidGraph(f"{self.op_type}: expected {expected}, got {got}")

    def same_dtype(self, *inputs: TensorType | None) -> DType:
        """The one element type all present inputs share. Raises InvalidGraph where they differ."""
        dtypes = [x.dtype for x in inputs if x is not None]
        if any(d is not dtypes[0] for d in dtypes):
            self.fail("inputs of one type", " and ".join(d.type_string for d in dtypes))
        return dtypes[0]

    def axis_of(self, axis: int, rank: int) -> int:
        """`axis` from the front; a scalar counts as one dimension. Raises InvalidGraph outside [-rank, rank)."""
        if not -max(rank, 1) <= axis < max(rank, 1):
            self.fail(f"an axis in [{-rank}, {rank - 1}]", axis)
        return axis % rank if rank else 0


def broadcasts_to(shape: Sequence[int], to: Sequence[int]) -> bool:
    """True where a tensor of `shape` has shape `to` once it is broadcast to it, by NumPy's rule."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))


def refuse_float64(*inputs: TensorType | None) -> None:
    """Raise Unsupported where an input is float64: WGSL has no such type."""
    if any(x is not None and x.dtype is DType.DOUBLE for x in inputs):
        raise Unsupported("float64 is exact on the host")


OpClass = TypeVar("OpClass", bound=type[Op])

registered: dict[tuple[str, str], list[type[Op]]] = {}
"""(domain, op_type) to the classes that implement it, of disjoint opset ranges. Read it through `registry`."""


def attributes_of(op: Any) -> dict[str, Any]:
    """The fields of an operator, for one of a class that adds to its own."""
    return {f.name: getattr(op, f.name) for f in fields(op)}


@dataclass_transform(frozen_default=True, kw_only_default=True)
def op(
    name: str, opsets: range, domain: str = "", earlier: Mapping[range, str] = MappingProxyType({})
) -> Callable[[OpClass], OpClass]:
    """Register a class as operator `name` of `domain` for a range of opsets, and make it a frozen dataclass.

    Args:
        earlier: ranges of opsets before, and the attributes of the class that its versions there lack, by a space
            between them; these have the values of their defaults.

    Raises:
        ValueError: a range overlaps one already registered.
    """

    def decorate(cls: OpClass) -> OpClass:
        for before, lacking in earlier.items():
            older = register(_without(cls, lacking.split(), f"{cls.__name__}{before.start}"), name, before, domain)
            older.compatible = range(before.start, opsets.stop)
        attributes(cls)
        return register(cls, name, opsets, domain)

    return decorate


def _without(cls: OpClass, lacking: Sequence[str], name: str) -> OpClass:
    """A frozen dataclass that derives from `cls`, which is none yet, and has its fields but those of `lacking`."""
    own = {n: kind for n, kind in cls.__annotations__.items() if n not in lacking}
    members = {"__module__": cls.__module__, "__doc__": cls.__doc__, "__annotations__": own}
    return cast(OpClass, attributes(type(name, (cls,), members)))


def register(cls: OpClass, name: str, opsets: range, domain: str = "") -> OpClass:
    """Make `cls`, a frozen dataclass, operator `name` of `domain` for a range of opsets, and return it.

    Raises:
        ValueError: the range overlaps one already registered.
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
