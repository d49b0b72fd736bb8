"""Inputs that a model declares as scalars: runs bring them in shape [1], too, as exporters' scripts do.

A plan is for shapes, and shape [1] can change those of outputs. So both are planned; where the plans are the same but
for the shape of these inputs, a plan file has one for both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyruntime.compiler.compile import Request
from pyruntime.compiler.saved import SavedProgram
from pyruntime.compiler.saved_plan import Sections
from pyruntime.ir import DeclaredTensor, Graph, HostTensor, RawSource, TensorType
from pyruntime.session.run.stages import Stage

__all__ = ["in_shape_1", "is_in_shape_1", "joined", "scalar_inputs"]


def scalar_inputs(graph: Graph, shapes: Mapping[str, object]) -> list[str]:
    """Return the names of inputs that are declared as scalars and have no stated shape."""
    return [
        v.name
        for v in graph.inputs
        if isinstance(v.type, DeclaredTensor) and v.type.shape == () and v.name not in shapes
    ]


def in_shape_1(one: Request, scalars: Sequence[str]) -> Request:
    """Return the run that brings `scalars` in shape [1]."""
    types, values = dict(one.arrived), dict(one.values)
    for name in scalars:
        kind, value = types[name], values.get(name)
        assert isinstance(kind, TensorType)
        types[name] = kind.with_shape(1)
        if isinstance(value, HostTensor):
            values[name] = HostTensor.of(value.array().reshape(1), kind.dtype)
    return replace(one, arrived=types, values=values)


def is_in_shape_1(stage: Stage, scalars: Sequence[str]) -> bool:
    """Return whether a stage is for runs that bring `scalars` in shape [1]."""
    types = dict(stage.signature[0])
    return any(isinstance(kind := types[name], TensorType) and kind.rank for name in scalars)


def joined(programs: Sequence[SavedProgram], scalars: Sequence[str], files: Sequence[RawSource]) -> list[SavedProgram]:
    """Return the programs without those for shape [1] that are the same as one for scalars, which then states these.

    Args:
        programs: those for shape [1] before the others.
        files: the model's, which have its constants.
    """
    sections = Sections(files)
    known: dict[str, SavedProgram] = {}
    found: list[SavedProgram] = []
    for program in reversed(programs):
        data = program.data(sections)
        given = [t for t in (*data["plan"]["uploads"], *data["plan"]["unread"]) if t["name"] in scalars]
        in_shape = bool(given) and all(t["dims"] == [1] for t in given)
        for transfer in given:
            transfer.update(dims=[], scaled=[])
        text = json.dumps(data, sort_keys=True)
        if in_shape and text in known:
            known[text].scalars = [t["name"] for t in given]
        else:
            known[text] = program
            found.append(program)
    return found[::-1]
