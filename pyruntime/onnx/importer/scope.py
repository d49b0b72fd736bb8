"""Unique names of values during import.

A *frame* maps names: the main graph, a function call, or a subgraph inside either. A *target* is the graph that nodes
are added to: a function call shares its caller's, a subgraph has a separate one. A node that reads a value that its
target does not define captures it from an enclosing target; see `pyruntime.ops.control.body`.

Source: ONNX IR specification, "Names Within a Graph", "Functions".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyruntime.errors import Fail
from pyruntime.ir import Graph
from pyruntime.onnx.records import AttributeRecord

__all__ = ["LONGEST_NAME", "Argument", "Frame", "FunctionKey", "Target"]

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name and overload of a function."""

_MAX_DEPTH = 64
LONGEST_NAME = 160  # nested calls concatenate names; bounds the memory for them


@dataclass(eq=False, slots=True)
class Target:
    """A graph under construction: the names it defines, the enclosing target, and the values it captures from there."""

    graph: Graph
    around: Target | None
    defined: set[str] = field(default_factory=set)
    captures: dict[str, None] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def define(self, wanted: str) -> str:
        """Define and return a unique name: `wanted`, with a number if this graph or an enclosing one has the name."""
        name = wanted
        while self._taken(name):
            number = self._numbers[wanted] = self._numbers.get(wanted, 1) + 1
            name = f"{wanted}_{number}"
        self.defined.add(name)
        return name

    def _taken(self, name: str) -> bool:
        target: Target | None = self
        while target is not None:
            if name in target.defined:
                return True
            target = target.around
        return False

    def read(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return `names`; those that this graph does not define are captured."""
        names = tuple(names)
        for name in names:
            if name and name not in self.defined:
                self.captures[name] = None
        return names


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """An attribute of a node, and the frame for the names in its subgraph."""

    record: AttributeRecord
    frame: Frame


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """A scope of names.

    Attributes:
        names: the target's name of each of the model's names. outer: the frame around a subgraph.
        opsets: version by domain.
        arguments: the attributes of a function call; None outside functions.
        prefix: prefix for names of a function's nodes and values.
        calls: the functions being inlined, outermost first.
    """

    target: Target
    names: dict[str, str]
    outer: Frame | None
    opsets: Mapping[str, int]
    arguments: Mapping[str, Argument] | None = None
    prefix: str = ""
    calls: tuple[FunctionKey, ...] = ()
    depth: int = 0

    def look_up(self, name: str) -> str | None:
        """Return the target's name of a value; '' for an omitted function input, None if undefined."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return None

    def name_of(self, text: str) -> str:
        """Return the name in the target for the model's name `text`."""
        return self.prefix + text[-LONGEST_NAME:] if self.prefix else text

    def within(self, target: Target) -> Frame:
        """Return a frame for a subgraph that is added to `target`. Raises Fail: nested too deep."""
        return Frame(target, {}, self, self.opsets, self.arguments, self.prefix, self.calls, self._deeper())

    def call(self, key: FunctionKey, label: str, opsets: Mapping[str, int], arguments: Mapping[str, Argument]) -> Frame:
        """Return a frame for the body of a function. Raises Fail: nested too deep."""
        prefix = f"{self.prefix}{label}"[-LONGEST_NAME:] + "/"
        return Frame(self.target, {}, None, opsets, arguments, prefix, (*self.calls, key), self._deeper())

    def _deeper(self) -> int:
        if self.depth >= _MAX_DEPTH:
            raise Fail(f"functions and subgraphs are nested more than {_MAX_DEPTH} deep")
        return self.depth + 1
