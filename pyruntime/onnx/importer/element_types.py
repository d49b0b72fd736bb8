"""Check of the element types of a model's nodes against the schemas of their operators.

Types of inputs and constants are declared, those of other values follow: from a type parameter that an input shares,
from an attribute, or because the schema allows one type alone. Other values, such as sequences, are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any, NoReturn

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DeclaredTensor, DType, Graph, Node
from pyruntime.ops.control.body import BodyOp
from pyruntime.ops.types import TYPES

__all__ = ["check_types"]

Types = dict[str, DType | None]
"""The element type of each value; None: not known, or not of a tensor."""

_LIKE = {"Bernoulli": 0, "DequantizeLinear": 1, "EyeLike": 0, "RandomNormalLike": 0, "RandomUniformLike": 0}
"""Operators whose attribute for the type of the output has a default: the type of this input."""


@dataclass(frozen=True, slots=True)
class _Parameter:
    """The name of a type parameter, or ''; and its types by code, as bits. 0: anything."""

    name: str
    mask: int

    def allows(self, dtype: DType) -> bool:
        return not self.mask or bool(self.mask >> dtype.code & 1)

    def types(self) -> list[DType]:
        return [dtype for dtype in DType if self.mask >> dtype.code & 1]


@dataclass(frozen=True, slots=True)
class _Schema:
    """Parameters of inputs and outputs; `repeated`: the last input may come more than once."""

    inputs: Sequence[_Parameter]
    outputs: Sequence[_Parameter]
    repeated: bool


def check_types(graph: Graph, outer: Mapping[str, DType | None] | None = None) -> Types:
    """Check all nodes of a graph, and of the bodies in it; return the types of its values.

    Args:
        outer: types of captured values.

    Raises:
        InvalidGraph: an input has a type that no version of its operator allows, or another than one that shares its
            type parameter.
    """
    types: Types = dict(outer or {})
    types |= {v.name: v.type.dtype for v in graph.inputs if isinstance(v.type, DeclaredTensor)}
    types |= {name: constant.type.dtype for name, constant in graph.constants.items()}
    for node in graph.nodes:
        types.update(zip(node.outputs, _results(node, types), strict=False))
        types.pop("", None)  # an absent output
    return types


def _results(node: Node, types: Types) -> Iterable[DType | None]:
    """Check the inputs of a node, and its bodies; return the types of its outputs, as far as they are known."""
    op: Any = node.op
    schema = None if op.is_custom else _schema(op.domain, op.op_type)
    if schema is None:
        return ()
    captures = op.captures() if isinstance(op, BodyOp) else []
    own = len(node.inputs) - len(captures)
    given = [types.get(name) for name in node.inputs]
    bound = _bound(node, schema, given[:own])
    if isinstance(op, BodyOp):
        return _results_of_bodies(op, dict(zip(captures, given[own:], strict=True)))
    return [bound.get(p.name) or _stated(op, given) or _only(p) for p in schema.outputs]


def _bound(node: Node, schema: _Schema, given: Sequence[DType | None]) -> dict[str, DType]:
    """Check the types of inputs; return those of the type parameters."""
    bound: dict[str, DType] = {}
    more = repeat(schema.inputs[-1]) if schema.repeated else ()
    for at, (dtype, parameter) in enumerate(zip(given, chain(schema.inputs, more), strict=False)):
        if dtype is None:
            continue
        if not parameter.allows(dtype):
            expected = " or ".join(d.type_string for d in parameter.types())
            _fail(node, f"input {at + 1} ('{node.inputs[at]}') of type {expected}", dtype.type_string)
        other = bound.setdefault(parameter.name, dtype) if parameter.name else dtype
        if other is not dtype:
            _fail(node, "inputs of one type", f"{other.type_string} and {dtype.type_string}")
    return bound


def _fail(node: Node, expected: str, got: str) -> NoReturn:
    raise InvalidGraph(f"node {node.label}: expected {expected}, got {got}")


def _results_of_bodies(op: BodyOp, outer: Types) -> Iterable[DType | None]:
    """Check the bodies of a node; return the types of its outputs, which are the last of each body's outputs."""
    ends = []
    for body in op.bodies():
        types = check_types(body, outer)
        ends.append([types.get(v.name) for v in body.outputs][1 if op.op_type == "Loop" else 0 :])
    return [made[0] if len(set(made)) == 1 else None for made in zip(*ends, strict=False)]


def _stated(op: Any, given: Sequence[DType | None]) -> DType | None:
    """Return the type that an attribute states for the output."""
    if op.op_type == "Constant":
        stated: DType = op.tensor()[0].dtype
        return stated
    if op.op_type == "ConstantOfShape":
        stated = op.element()[0]
        return stated
    for name in ("to", "dtype", "output_dtype", "output_datatype"):
        code = getattr(op, name, None)
        if code and code in range(1, len(DType) + 1):
            return DType.from_code(code)
    like = _LIKE.get(op.op_type)
    return None if like is None else given[like]


def _only(parameter: _Parameter) -> DType | None:
    """Return the type if there is one alone."""
    found = parameter.types()
    return found[0] if len(found) == 1 else None


@cache
def _schema(domain: str, name: str) -> _Schema | None:
    """Return what is known of an operator; None: nothing."""
    entry = TYPES.get(domain, {}).get(name)
    if entry is None:
        return None
    masks: dict[str, int] = {}

    def parameter(text: str) -> _Parameter:
        name, _, mask = text.partition(":")
        if mask:
            masks[name] = int(mask, 16)
        return _Parameter("" if name == "-" else name, masks.get(name, 0))

    inputs, _, outputs = entry.partition(">")
    return _Schema(
        [parameter(text) for text in inputs.split() if text != "+"],
        [parameter(text) for text in outputs.split()],
        "+" in inputs,
    )
