"""Plans that cast a constant read it in parts: what it is cast from need not be on the GPU at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyruntime.compiler.plan import Command, GpuSegment, Plan, Region, Space
from pyruntime.ir import Constant, TensorType, TypedGraph, ValueType

__all__ = ["PART", "cast_in_parts"]

PART = 4 << 20
"""Bytes of a constant in one part, at most; each part is a dispatch."""


def cast_in_parts(graph: TypedGraph, plan: Plan, build: Callable[[TypedGraph], Plan]) -> Plan:
    """Split the only command of a plan that casts one large constant: a command for each part of its elements.

    Args:
        graph: what `plan` is the plan of. build: makes the plan of a graph of some elements.

    Returns:
        The plan with these commands, each of which reads a constant of its own; `plan` where it does anything else.
    """
    node, constant = graph.nodes[0], graph.constants.get(graph.nodes[0].inputs[0])
    if len(graph.nodes) != 1 or node.op.op_type != "Cast" or constant is None or constant.nbytes <= PART:
        return plan
    source, result = constant.type, graph.tensor(node.outputs[0]).dtype
    if source.dtype.bits % 8 or result.bits % 8 or len(plan.commands) != 1:
        return plan
    most = PART * 8 // source.dtype.bits
    made = replace(plan, steps=[segment := GpuSegment()], constants=[], params=b"", shaders=[], views={})
    plans: dict[int, tuple[Plan, int]] = {}
    for first in range(0, source.size, most):
        kind = TensorType(source.dtype, (min(most, source.size - first),))
        part = Constant(kind, constant.source, constant.offset + first * source.dtype.bits // 8)
        if kind.size not in plans:
            types: dict[str, ValueType] = {node.inputs[0]: kind, node.outputs[0]: TensorType(result, kind.shape)}
            static = {node.inputs[0]}
            one = build(TypedGraph([node], types, [], graph.outputs, {node.inputs[0]: part}, static))
            plans[kind.size] = one, len(made.params)
            made.params += one.params
            made.shaders += [s for s in one.shaders if s not in made.shaders]
        elements = f"[{first}:{first + kind.size}]"
        segment.commands.append(_moved(*plans[kind.size], made, first * result.bits // 8, elements))
        made.constants.append(part)
    return made


def _moved(plan: Plan, params: int, into: Plan, offset: int, elements: str) -> Command:
    """The command of `plan` in the plan `into`, where it reads the next constant and writes from `offset` on.

    Args:
        params: where `into` has the parameters of `plan`.
        elements: what is appended to the names of values: the parts are views of these.
    """
    (command,) = plan.commands
    into.views.update({access.value + elements: access.value for access in command.accesses})

    def region(old: Region) -> Region:
        if old.space is Space.EXTERNAL:
            return replace(old, offset=old.offset + offset)
        return replace(old, index=len(into.constants))

    placed = command.params and (command.params[0] + params, command.params[1])
    shader = into.shaders.index(plan.shaders[command.shader])
    accesses = tuple(replace(access, value=access.value + elements) for access in command.accesses)
    regions = tuple(map(region, command.regions))
    return replace(command, shader=shader, regions=regions, params=placed, accesses=accesses)
