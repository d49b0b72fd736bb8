"""The config entries `pyruntime.precision` and `pyruntime.float32_nodes`: models of float32 that compute in float16."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pyruntime.errors import InvalidArgument
from pyruntime.ir import Graph, Node
from pyruntime.ops.control.body import BodyOp
from pyruntime.passes.quantization.float32_nodes import named
from pyruntime.target import HalfPrecision

__all__ = ["FLOAT32_NODES", "PRECISION", "half_precision"]

PRECISION = "pyruntime.precision"
"""The config entry: 'float16', or 'float32' for the types of the model."""

FLOAT32_NODES = "pyruntime.float32_nodes"
"""The config entry: a JSON list of names of nodes that compute in float32 all the same."""


def half_precision(graph: Graph, precision: str, float32_nodes: str) -> HalfPrecision | None:
    """Read both entries; None where nodes compute in the types of the model.

    Raises:
        InvalidArgument: another precision; no list of names; a name that no node has, or names without 'float16'.
    """
    if precision not in ("", "float16", "float32"):
        raise InvalidArgument(f"{PRECISION}: expected 'float16' or 'float32', got {precision!r}")
    names = _names(float32_nodes)
    if precision != "float16":
        if names:
            raise InvalidArgument(f"{FLOAT32_NODES}: nodes are named, and {PRECISION} is not 'float16': set it, too")
        return None
    outer = {named(node) for node in graph.nodes}
    inner = {named(node) for body in _bodies(graph.nodes) for node in body.nodes}
    unknown = [name for name in names if name not in outer | inner]
    if unknown:
        raise InvalidArgument(
            f"{FLOAT32_NODES}: the model has no node {unknown[0]!r}; `python -m pyruntime plan MODEL` lists its nodes"
        )
    return HalfPrecision(tuple(n for n in names if n in outer), tuple(n for n in names if n in inner))


def _names(entry: str) -> list[str]:
    """The names of a JSON list, sorted."""
    try:
        names = json.loads(entry or "[]")
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidArgument(f'{FLOAT32_NODES}: expected a JSON list of names such as ["/norm/Pow"], got {entry!r}')
    return sorted(set(names))


def _bodies(nodes: list[Node]) -> Iterator[Graph]:
    """The bodies of all control flow."""
    for node in nodes:
        for body in node.op.bodies() if isinstance(node.op, BodyOp) else ():
            yield body
            yield from _bodies(body.nodes)
