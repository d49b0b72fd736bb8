"""Node attributes as fields of the operator class, checked against the fields' types."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Floats, Ints, Strings
from pyruntime.onnx.importer.declared import Constants, declared_type
from pyruntime.onnx.records import AttributeRecord, AttributeType, GraphRecord
from pyruntime.ops.base import Op
from pyruntime.ops.control.body import BodyOp
from pyruntime.ops.decomposed import Decomposed

__all__ = ["Signature", "needed_inputs", "operator_fields", "signature"]

KINDS = {
    "int": AttributeType.INT,
    "float": AttributeType.FLOAT,
    "str": AttributeType.STRING,
    "bytes": AttributeType.STRING,
    "Constant": AttributeType.TENSOR,
    "Graph": AttributeType.GRAPH,
    "DeclaredType": AttributeType.TYPE_PROTO,
    "tuple[int,...]": AttributeType.INTS,
    "tuple[float,...]": AttributeType.FLOATS,
    "tuple[str,...]": AttributeType.STRINGS,
    "tuple[bytes,...]": AttributeType.STRINGS,
    "Ints": AttributeType.INTS,
    "Floats": AttributeType.FLOATS,
    "Strings[str]": AttributeType.STRINGS,
    "tuple[Constant,...]": AttributeType.TENSORS,
    "tuple[Graph,...]": AttributeType.GRAPHS,
    "tuple[DeclaredType,...]": AttributeType.TYPE_PROTOS,
}

_DENSE = {AttributeType.SPARSE_TENSOR: AttributeType.TENSOR, AttributeType.SPARSE_TENSORS: AttributeType.TENSORS}
_ARRAYS = {"Ints": Ints, "Floats": Floats}


@dataclass(frozen=True, slots=True)
class Signature:
    """Attributes and number of inputs that an operator accepts.

    Attributes:
        annotations: types of each field, by attribute name, without `None`. required: fields without a default.
        least, most: number of inputs; `most` is None where it is unlimited.
    """

    annotations: Mapping[str, tuple[str, ...]]
    required: frozenset[str]
    least: int
    most: int | None


_signatures: dict[type[Op], Signature] = {}


_needed: dict[type[Op], frozenset[int]] = {}


def needed_inputs(cls: type[Op]) -> frozenset[int]:
    """Return the indices of required inputs: those whose annotation in `operands`, or in `infer`, excludes None."""
    if cls not in _needed and cls.operands is not None:
        kinds = cls.operands.__annotations__.values()
        _needed[cls] = frozenset(at for at, kind in enumerate(kinds) if "None" not in str(kind))
    elif cls not in _needed:
        _needed[cls] = frozenset(
            at
            for at, parameter in enumerate(_parameters(cls))
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
            and parameter.default is parameter.empty
            and str(parameter.annotation) not in ("Any", "typing.Any")
            and "None" not in str(parameter.annotation)
        )
    return _needed[cls]


def _alternatives(annotation: Any) -> tuple[str, ...]:
    """Return the alternatives of an annotation, without None: `tuple[int, ...] | None` gives ('tuple[int,...]',)."""
    text = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    text = re.sub(r"Annotated\[(\w+),.*?\]", r"\1", text)
    plain = re.sub(r"[A-Za-z_]\w*\.(?=[A-Za-z_])|\s", "", text)
    return tuple(part for part in plain.split("|") if part != "None")


def signature(cls: type[Op]) -> Signature:
    """Return the signature of an operator, from its dataclass fields and its `operands` or parameters of `infer`."""
    if cls not in _signatures:
        _signatures[cls] = _signature(cls)
    return _signatures[cls]


def _signature(cls: type[Op]) -> Signature:
    own = [f for f in fields(cls) if f.name != "present"]
    annotations = {f.name: _alternatives(f.type) for f in own}
    required = frozenset(f.name for f in own if f.default is MISSING and f.default_factory is MISSING)
    return Signature(annotations, required, *_arity(cls))


def _parameters(cls: type[Op]) -> list[inspect.Parameter]:
    """Return the parameters of `infer`, or of `expand`, that are inputs."""
    if issubclass(cls, Decomposed):
        return list(inspect.signature(cls.expand).parameters.values())[2:]
    return list(inspect.signature(cls.infer).parameters.values())[1:]


def _arity(cls: type[Op]) -> tuple[int, int | None]:
    """Return the smallest and the largest number of inputs; None: unlimited."""
    if issubclass(cls, BodyOp):
        return cls.arity
    if cls.operands is not None:
        most = len(cls.operands._fields)
        return most - len(cls.operands._field_defaults), most
    parameters = _parameters(cls)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in positional)
    bounded = not any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return least, len(positional) if bounded else None


def operator_fields(
    cls: type[Op],
    attributes: Iterable[AttributeRecord],
    body: Callable[[str, GraphRecord], Any],
    constants: Constants,
) -> dict[str, Any]:
    """Return the fields of `cls` for a node's attributes; `body` imports the graph of the named attribute.

    Raises:
        InvalidGraph: an attribute that is unknown, missing, given twice or of another type.
    """
    known = signature(cls)
    values: dict[str, Any] = {}
    for attribute in attributes:
        name = attribute.name
        if name not in known.annotations:
            have = ", ".join(map(repr, known.annotations)) or "none"
            raise InvalidGraph(f"{cls.op_type} has no attribute {name!r}; it has {have}")
        if name in values:
            raise InvalidGraph(f"attribute {name!r} appears more than once")
        values[name] = _converted(attribute, known.annotations[name], body, constants)
    missing = known.required - values.keys()
    if missing:
        raise InvalidGraph(f"the required attribute {min(missing)!r} is missing")
    return values


def _converted(
    attribute: AttributeRecord,
    annotations: tuple[str, ...],
    body: Callable[[str, GraphRecord], Any],
    constants: Constants,
) -> Any:
    kind: AttributeType = attribute.type
    value: Any = attribute.value
    wanted = _DENSE.get(kind, kind)
    annotation = next((a for a in annotations if KINDS.get(a) == wanted), None)
    if annotation is None:
        expected = " or ".join(KINDS[a].name for a in annotations if a in KINDS)
        raise InvalidGraph(f"attribute {attribute.name!r}: expected {expected}, got {kind.name}")
    if kind in (AttributeType.INT, AttributeType.FLOAT):
        return value
    if kind in (AttributeType.INTS, AttributeType.FLOATS):
        return _ARRAYS.get(annotation, tuple)(value)
    what = f"attribute {attribute.name!r}"

    def one(item: Any) -> Any:
        if "str" in annotation:
            try:
                return item.decode()
            except UnicodeDecodeError as error:
                raise InvalidGraph(f"{what} is text that is not UTF-8: {error.reason}") from error
        if "Graph" in annotation:
            return body(attribute.name, item)
        if "Constant" in annotation:
            return constants.of(item)
        if "DeclaredType" in annotation:
            return declared_type(item, what)
        return item

    if annotation == "Strings[str]" or isinstance(value, Strings):
        stored = Strings.of(value)
        texts = Strings(tuple(map(one, stored.distinct)), stored.codes)
        return texts if annotation == "Strings[str]" else tuple(texts)
    return tuple(map(one, value)) if isinstance(value, tuple) else one(value)
