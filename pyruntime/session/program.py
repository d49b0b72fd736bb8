"""A model on a device: stages planned when their shapes are known, kept for the next run of the same shapes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pyruntime.device.base import Device
from pyruntime.device.executable import Executable, HostValue, Weights, run_on_host
from pyruntime.errors import EPFail
from pyruntime.ir import Constant, Graph, HostTensor, Node, TensorType, TypedGraph, ValueType, known
from pyruntime.passes import optimize
from pyruntime.plan.build import build_plan
from pyruntime.plan.constants import split_static
from pyruntime.plan.plan import Assignment
from pyruntime.plan.typing import Boundary, Guards, Typing

__all__ = ["Program", "Stage"]

Signature: TypeAlias = tuple[tuple[tuple[str, ValueType], ...], tuple[str, ...]]

KNOWN_LIMIT = 1024
"""Elements: fed tensors up to this size may be looked at while planning."""


@dataclass(slots=True)
class Stage:
    """What runs between two points where planning must wait for values.

    Attributes:
        signature: types of the values that came with it, and the outputs wanted.
        guards: fed values the plan depends on.
        boundary: why it ends; None for the last stage.
        rest: nodes for later stages.
        types, static: what is known after it.
        next: stages planned so far for what followed.
    """

    signature: Signature
    guards: Guards
    executable: Executable
    boundary: Boundary | None
    rest: list[Node]
    types: dict[str, ValueType]
    static: set[str]
    constants: dict[str, Constant]
    next: list[Stage] = field(default_factory=list)


class Program:
    """Runs a graph on a device for any input shapes.

    Args:
        graph: the imported model.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).
        disabled: names of passes and kernel variants to leave out.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        refuse_host: bool = False,
        disabled: frozenset[str] = frozenset(),
        optimize: bool = True,
    ) -> None:
        self.graph = graph
        self.device = device
        self.target = replace(device.target, disabled=disabled)
        self.refuse_host = refuse_host
        self.optimize = optimize
        self.weights = Weights(device)
        self.roots: list[Stage] = []
        self._planning = asyncio.Lock()
        self._staged = asyncio.Lock()

    async def run(
        self, feeds: Mapping[str, HostValue], outputs: Sequence[str], check: Callable[[], None] = lambda: None
    ) -> dict[str, HostValue]:
        """The values of `outputs`; `check` is called between stages and may raise."""
        values: dict[str, HostValue] = dict(feeds)
        stage = await self._find(self.roots, values, list(feeds), None, outputs)
        if stage.boundary is None:
            await stage.executable.run(values)
        else:
            async with self._staged:
                stage = await self._run_stages(stage, values, outputs, check)
        return {name: self._output(name, stage, values) for name in outputs}

    async def _run_stages(
        self, stage: Stage, values: dict[str, HostValue], outputs: Sequence[str], check: Callable[[], None]
    ) -> Stage:
        """Run from `stage` to the end, planning what has not been planned; returns the last stage."""
        await stage.executable.run(values)
        while stage.boundary is not None:
            check()
            arrived = self._cross(stage, stage.boundary, values)
            stage = await self._find(stage.next, values, arrived, stage, outputs)
            await stage.executable.run(values)
        return stage

    async def prepare(self, feeds: Mapping[str, TensorType], outputs: Sequence[str]) -> Stage:
        """Plan and compile the first stage for inputs of these types, before any value is there."""
        return await self._plan(self.roots, {}, dict(feeds), None, outputs)

    def _cross(self, stage: Stage, boundary: Boundary, values: dict[str, HostValue]) -> list[str]:
        """Run the boundary's node, if it has one; returns the names of the values the next stage begins with."""
        if boundary.node is None:
            return [n for n in boundary.needed if n in values]
        node = boundary.node
        inputs: list[ValueType | None] = []
        for name in node.inputs:
            value = values.get(name)
            kind = (
                (value.known(name) if isinstance(value, HostTensor) else value)
                if value is not None
                else stage.types.get(name)
            )
            inputs.append(kind if name else None)
        run_on_host(node, inputs, values)
        return [n for n in node.outputs if n]

    async def _find(
        self,
        stages: list[Stage],
        values: Mapping[str, HostValue],
        arrived: Sequence[str],
        before: Stage | None,
        outputs: Sequence[str],
    ) -> Stage:
        signature = _signature(values, arrived, outputs)
        sources = _sources(values)
        for stage in stages:
            if stage.signature == signature and stage.guards.hold(sources):
                return stage
        async with self._planning:
            for stage in stages:
                if stage.signature == signature and stage.guards.hold(sources):
                    return stage
            types = {n: _type(values[n], n) for n in arrived}
            return await self._plan(stages, values, types, before, outputs)

    async def _plan(
        self,
        stages: list[Stage],
        values: Mapping[str, HostValue],
        arrived: Mapping[str, ValueType],
        before: Stage | None,
        outputs: Sequence[str],
    ) -> Stage:
        guards = Guards(_sources(values))
        constants = dict(before.constants if before else self.graph.constants)
        types: dict[str, ValueType] = (
            dict(before.types)
            if before
            else {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
        )
        static = set(before.static) if before else set(constants)
        for name, kind in arrived.items():
            boundary = before.boundary if before else None
            asked = boundary is not None and boundary.node is None
            small = isinstance(kind, TensorType) and kind.size <= KNOWN_LIMIT
            source = guards.source(name) if name in values and (small or asked) else None
            types[name] = replace(kind, source=source, name=name)
        typing = Typing(types, static, guards)
        rest, boundary = typing.run(before.rest if before else self.graph.nodes)
        carried = before.executable.resident if before else {}
        on_host = list(dict.fromkeys([*values, *arrived]))
        graph, resident = self._stage_graph(typing, rest, boundary, on_host, carried, constants, outputs)
        if self.optimize:
            optimize(graph, self.target)
        computed = await self._constants(graph)
        try:
            plan = build_plan(graph, self.target, resident)
            if self.refuse_host:
                _refuse(plan.assignments, boundary)
            executable = Executable(plan, self.device, self.weights, {**carried, **computed})
            await executable.prepare()
        except BaseException:
            self.device.free(list(computed.values()))
            raise
        executable.own(computed.values())
        signature = tuple((n, replace(t, source=None)) for n, t in arrived.items()), tuple(outputs)
        stage = Stage(signature, guards, executable, boundary, rest, types, static, graph.constants)
        stages.append(stage)
        return stage

    async def _constants(self, graph: TypedGraph) -> dict[str, int]:
        """Compute the heavy static values of `graph` on the GPU; their buffers by name."""
        first = split_static(graph, self.target)
        if first is None:
            return {}
        executable = Executable(build_plan(first, self.target, first.outputs), self.device, self.weights, {})
        await executable.prepare()
        await executable.run({})
        return executable.keep_resident()

    def _stage_graph(
        self,
        typing: Typing,
        rest: list[Node],
        boundary: Boundary | None,
        on_host: Sequence[str],
        carried: Mapping[str, int],
        constants: dict[str, Constant],
        outputs: Sequence[str],
    ) -> tuple[TypedGraph, list[str]]:
        """The graph of the stage, and which of its outputs stay on the GPU for later stages."""
        made = {n for node in typing.done for n in node.outputs if n and n not in typing.static}
        needed = [n for n in (boundary.needed if boundary else ()) if n in made or n in carried]
        wanted = [n for n in outputs if n in made]
        later = sorted(made & {n for node in rest for n in node.inputs})
        stay = [n for n in later if _dense(typing.types[n])]
        known_at_end = [n for n in outputs if n in typing.static and not rest]
        to_host = dict.fromkeys([*needed, *wanted, *(n for n in later if n not in stay)])
        graph = typing.graph(
            [*(n for n in on_host if n in typing.types and n not in carried), *carried],
            list(dict.fromkeys([*to_host, *known_at_end, *stay])),
            constants,
        )
        graph.resident = frozenset(carried)
        graph.static = set(graph.static)
        return graph, [n for n in stay if n not in to_host]

    def _output(self, name: str, stage: Stage, values: Mapping[str, HostValue]) -> HostValue:
        if name in values:
            return values[name]
        kind = stage.types[name]
        if isinstance(kind, TensorType):
            return HostTensor(kind, None, kind.value())
        return known(kind, kind.value())

    def release(self) -> None:
        """Free everything on the device."""
        pending = list(self.roots)
        while pending:
            stage = pending.pop()
            stage.executable.release()
            pending += stage.next
        self.roots = []
        self.weights.release()


def _dense(kind: ValueType) -> bool:
    return isinstance(kind, TensorType) and bool(kind.dtype.compute)


def _type(value: HostValue, name: str) -> ValueType:
    return replace(value.type, name=name) if isinstance(value, HostTensor) else replace(value, source=None, name=name)


def _signature(values: Mapping[str, HostValue], arrived: Sequence[str], outputs: Sequence[str]) -> Signature:
    return tuple((n, _type(values[n], n)) for n in arrived if n in values), tuple(outputs)


def _sources(values: Mapping[str, HostValue]) -> dict[str, Callable[[], object]]:
    return {n: (v.array if isinstance(v, HostTensor) else v.value) for n, v in values.items()}


def _refuse(assignments: Sequence[Assignment], boundary: Boundary | None) -> None:
    hosted = [a for a in assignments if a.placement == "host"]
    lines = [f"'{a.name}' ({a.op_type}): {a.reason}" for a in hosted]
    if boundary and boundary.node:
        lines.append(f"{boundary.node.label}: its output shape depends on values")
    if lines:
        raise EPFail(
            "session.disable_cpu_ep_fallback is set and these nodes would run on the host: "
            + "; ".join(lines[:10])
            + (f" and {len(lines) - 10} more" if len(lines) > 10 else "")
        )
