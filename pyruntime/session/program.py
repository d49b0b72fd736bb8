"""A model on a device: stages planned when their shapes are known, kept for the next run of the same shapes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyruntime.device.base import Device
from pyruntime.device.executable import Executable, HostValue, Weights, run_on_host
from pyruntime.device.sanitizer import SanitizedExecutable
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError
from pyruntime.ir import Graph, HostTensor, TensorType, TypedGraph, ValueType, known
from pyruntime.passes import optimize
from pyruntime.plan.build import build_plan
from pyruntime.plan.constants import part, split_static
from pyruntime.plan.plan import Plan
from pyruntime.plan.typing import Boundary, Guards, Typing
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.profiling import Recorder
from pyruntime.session.refusals import KNOWN_LIMIT, TooEarly, refuse_guesses, refuse_host
from pyruntime.session.stages import AnyValue, Run, Stage, forget_oldest, planned_bytes, recall, stage_graph

__all__ = ["AnyValue", "Program", "Run", "Stage"]


class Program:
    """Runs a graph on a device for any input shapes.

    Args:
        graph: the imported model.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).
        disabled: names of passes and kernel variants to leave out.
        limits: `gpu_bytes` and `cached_plans` hold here.
        sanitize: compare every dispatch with itself in memory of its own (`device.sanitizer`); slow.
    """

    def __init__(
        self,
        graph: Graph,
        device: Device,
        refuse_host: bool = False,
        disabled: frozenset[str] = frozenset(),
        optimize: bool = True,
        limits: ResourceLimits | None = None,
        sanitize: bool = False,
    ) -> None:
        self.graph = graph
        self.device = device
        self.target = replace(device.target, disabled=disabled)
        self.refuse_host = refuse_host
        self.optimize = optimize
        self.limits = limits or ResourceLimits()
        self.sanitize = sanitize
        self.weights = Weights(device)
        self.roots: list[Stage] = []
        self._planning = asyncio.Lock()
        self._staged = asyncio.Lock()

    async def run(
        self,
        feeds: Mapping[str, AnyValue],
        outputs: Sequence[str],
        check: Callable[[], None] = lambda: None,
        keep: Mapping[str, DeviceTensor | None] | None = None,
        recorder: Recorder | None = None,
    ) -> dict[str, AnyValue]:
        """The values of `outputs`; `check` is called between stages and may raise.

        Args:
            keep: outputs that stay on the device, with the tensor they are written to where there is one.
            recorder: gets the time of every dispatch and host step; the run as a whole is slower.

        Raises:
            BindingError: a tensor of `keep` has another type than the output, or is on another device.
        """
        with ExitStack() as lent:
            given = {n: lent.enter_context(v.lent()) for n, v in feeds.items() if isinstance(v, DeviceTensor)}
            values = {n: v for n, v in feeds.items() if not isinstance(v, DeviceTensor)}
            run = Run(values, await self._tensors(given), outputs, keep or {}, lent, check, recorder)
            stage = await self._run(run, list(feeds))
            return {name: await self._output(name, stage, run, feeds) for name in outputs}

    async def _run(self, run: Run, fed: Sequence[str]) -> Stage:
        """Run all stages; returns the last."""
        on_device = run.on_device
        stage = await self._find(self.roots, run, fed, None, on_device)
        root = stage
        root.users += 1
        try:
            if stage.boundary is None:
                await self._run_stage(stage, run)
            else:
                async with self._staged:
                    stage = await self._run_stages(stage, run, on_device)
        finally:
            root.users -= 1
            while len(self.roots) > self.limits.cached_plans and forget_oldest(self.roots):
                pass
        return stage

    def replayable(self, feeds: Mapping[str, HostValue], outputs: Sequence[str]) -> Executable | None:
        """The executable that runs such feeds whatever their values are, where one segment does all; else None."""
        signature = tuple((n, _type(v, n)) for n, v in feeds.items()), tuple(outputs), frozenset[str]()
        for stage in self.roots:
            if stage.signature == signature and stage.boundary is None and not stage.guards.read:
                replay = stage.executable.replay()
                if replay and {n for n, _, _ in replay.downloads} == set(outputs):
                    return stage.executable
        return None

    async def _tensors(self, given: dict[str, DeviceTensor]) -> dict[str, DeviceTensor]:
        """Tensors on this device, each buffer once: a dispatch may not bind one twice."""
        seen: set[int] = set()
        for name, tensor in given.items():
            if tensor.device is not self.device:
                given[name] = tensor = await DeviceTensor.upload(await tensor.download(), self.device)
            if tensor.buffer in seen:
                given[name] = tensor = await tensor.clone()
            seen.add(tensor.buffer)
        return given

    async def _run_stages(self, stage: Stage, run: Run, on_device: frozenset[str]) -> Stage:
        """Run from `stage` to the end, planning what has not been planned; returns the last stage."""
        await self._run_stage(stage, run)
        while stage.boundary is not None:
            run.check()
            arrived = self._cross(stage, stage.boundary, run)
            stage = await self._find(stage.next, run, arrived, stage, on_device)
            await self._run_stage(stage, run)
        return stage

    async def _run_stage(self, stage: Stage, run: Run) -> None:
        """Run one stage; outputs that stay get a tensor of their own, those given are exchanged for it at the end.

        A tensor given is written itself where no run has it, this one or one that overlaps.
        """
        executable = stage.executable
        made = [t for t in executable.plan.external if t.name in executable.bound and t.name not in run.tensors]
        for transfer in made:
            given = run.keep.get(transfer.name)
            if given is not None and (given.type != transfer.type or given.device is not self.device):
                raise BindingError(
                    f"output '{transfer.name}' is {transfer.type} here, and the OrtValue bound to it is {given.type}"
                )
        in_use = {t.buffer for t in run.tensors.values()}
        direct = {}
        for transfer in made:
            given = run.keep.get(transfer.name)
            if given is not None and given.buffer not in in_use and not given.in_use:
                direct[transfer.name] = run.lent.enter_context(given.lent())
                in_use.add(given.buffer)
        rest = [t for t in made if t.name not in direct]
        fresh = await DeviceTensor.allocate([t.type for t in rest], self.device)
        run.tensors.update(direct)
        run.tensors.update(zip((t.name for t in rest), fresh, strict=True))
        buffers = {t.name: run.tensors[t.name].buffer for t in executable.plan.external if t.name in executable.bound}
        await executable.run(run.values, buffers, run.recorder.step if run.recorder else None)

    async def prepare(self, feeds: Mapping[str, TensorType], outputs: Sequence[str]) -> Stage | None:
        """Plan and compile the first stage for inputs of these types, before any value is there.

        Returns:
            The stage, or None where a kernel may hang on a value: the first run knows more, and plans.
        """
        async with self._planning:
            try:
                return await self._plan(self.roots, {}, dict(feeds), None, outputs, frozenset())
            except TooEarly:
                return None

    def _cross(self, stage: Stage, boundary: Boundary, run: Run) -> list[str]:
        """Run the boundary's node, if it has one; returns the names of the values the next stage begins with."""
        values = run.values
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
        began = time.perf_counter()
        run_on_host(node, inputs, values)
        if run.recorder is not None:
            kinds = [_type(values[n], n) if n in values else None for n in node.outputs]
            run.recorder.node(node, kinds, time.perf_counter() - began)
        return [n for n in node.outputs if n]

    async def _find(
        self, stages: list[Stage], run: Run, arrived: Sequence[str], before: Stage | None, on_device: frozenset[str]
    ) -> Stage:
        types = {n: _type(run.values.get(n, run.tensors.get(n)), n) for n in arrived}
        signature = tuple((n, replace(t, source=None)) for n, t in types.items()), tuple(run.outputs), on_device
        sources = _sources(run.values)
        stage = recall(stages, signature, sources)
        if stage is not None:
            return stage
        async with self._planning:
            stage = recall(stages, signature, sources)
            if stage is not None:
                return stage
            return await self._plan(stages, run.values, types, before, run.outputs, on_device)

    async def _plan(
        self,
        stages: list[Stage],
        values: Mapping[str, HostValue],
        arrived: Mapping[str, ValueType],
        before: Stage | None,
        outputs: Sequence[str],
        on_device: frozenset[str],
    ) -> Stage:
        guards = Guards(_sources(values))
        constants = dict(before.constants if before else self.graph.constants)
        types: dict[str, ValueType] = (
            dict(before.types)
            if before
            else {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
        )
        static = set(before.static) if before else set(constants)
        self._arrive(arrived, values, before, guards, types)
        if before is None:
            static -= arrived.keys()
            constants = {n: c for n, c in constants.items() if n not in arrived}
        typing = Typing(types, static, guards)
        rest, boundary = typing.run(before.rest if before else self.graph.nodes)
        carried = before.executable.resident if before else {}
        bound = before.executable.bound if before else frozenset(n for n in arrived if n in on_device)
        on_host = list(dict.fromkeys([*values, *arrived]))
        there = {*carried, *bound}
        graph, resident = stage_graph(typing, rest, boundary, on_host, there, constants, outputs, on_device)
        if self.optimize:
            optimize(graph, self.target)
        computed = await self._constants(graph)
        try:
            plan = build_plan(graph, self.target, resident)
            if before is None and not values:
                refuse_guesses(plan.host_steps, boundary, arrived)
            if self.refuse_host:
                refuse_host(plan.assignments, boundary)
            bound |= on_device & set(resident)
            for step in plan.host_steps:
                sizes = [t.nbytes for t in step.outputs if isinstance(t, TensorType)]
                self.limits.check_host(step.node.label, sum(sizes))
            nbytes = planned_bytes(plan, {*carried, *computed, *bound})
            self._make_room(stages, nbytes + self.weights.missing(plan.constants), before)
            executable = self._executable(graph, plan, resident, self.weights, {**carried, **computed}, bound)
            await executable.prepare()
        except BaseException:
            self.device.free(list(computed.values()))
            raise
        executable.own(computed.values())
        signature = tuple((n, replace(t, source=None)) for n, t in arrived.items()), tuple(outputs), on_device
        nbytes += sum(t.type.nbytes for t in plan.external if t.name in computed)
        stage = Stage(signature, guards, executable, boundary, rest, types, static, graph.constants, nbytes)
        stages.append(stage)
        return stage

    def _make_room(self, stages: list[Stage], needed: int, before: Stage | None) -> None:
        """Free plans not used for longest, so that one of `needed` bytes more fits the limits and goes into `stages`.

        Raises:
            OutOfMemory: it does not fit, with all that can go gone.
        """
        most = self.limits.cached_plans if before is None else max(1, self.limits.cached_plans // 4)
        while len(stages) >= most and forget_oldest(stages):
            pass
        while needed + self.held > self.limits.gpu_bytes and forget_oldest(self.roots):
            pass
        self.limits.check_gpu(needed, self.held)

    @property
    def held(self) -> int:
        """Bytes on the GPU: weights and plans."""
        return self.weights.nbytes + sum(stage.held() for stage in self.roots)

    @staticmethod
    def _arrive(
        arrived: Mapping[str, ValueType],
        values: Mapping[str, HostValue],
        before: Stage | None,
        guards: Guards,
        types: dict[str, ValueType],
    ) -> None:
        """Add the types of what a stage begins with; those that may be looked at know their value."""
        for name, kind in arrived.items():
            boundary = before.boundary if before else None
            asked = boundary is not None and boundary.node is None
            small = isinstance(kind, TensorType) and kind.size <= KNOWN_LIMIT
            source = guards.source(name) if name in values and (small or asked) else None
            types[name] = replace(kind, source=source, name=name)

    async def _constants(self, graph: TypedGraph) -> dict[str, int]:
        """Compute the heavy static values of `graph` on the GPU; their buffers by name."""
        first = split_static(graph, self.target)
        buffers: dict[str, int] = {}
        try:
            for name in first.outputs if first else ():
                assert first is not None
                buffers |= await self._constant(part(first, name))
        except BaseException:
            self.device.free(list(buffers.values()))
            raise
        return buffers

    async def _constant(self, graph: TypedGraph) -> dict[str, int]:
        """Run a graph of constants once; what its value is made from leaves the GPU again."""
        weights = Weights(self.device)
        plan = build_plan(graph, self.target, graph.outputs)
        self.limits.check_gpu(planned_bytes(plan, ()) + weights.missing(plan.constants), self.held)
        executable = self._executable(graph, plan, graph.outputs, weights, {}, ())
        try:
            await executable.prepare()
            await executable.run({})
            return executable.keep_resident()
        finally:
            executable.release()
            weights.release()

    def _executable(
        self,
        graph: TypedGraph,
        plan: Plan,
        stay: Sequence[str],
        weights: Weights,
        resident: Mapping[str, int],
        bound: Iterable[str],
    ) -> Executable:
        if not self.sanitize:
            return Executable(plan, self.device, weights, resident, bound)
        alone = build_plan(graph, self.target, stay, isolated=True)
        return SanitizedExecutable(plan, alone, self.device, weights, resident, bound)

    async def _output(self, name: str, stage: Stage, run: Run, feeds: Mapping[str, AnyValue]) -> AnyValue:
        if name in run.tensors:
            return await self._kept(name, run, name in feeds)
        value = run.values.get(name)
        if value is None:
            kind = stage.types[name]
            value = HostTensor(kind, None, kind.value()) if isinstance(kind, TensorType) else known(kind, kind.value())
        if name not in run.keep or not isinstance(value, HostTensor):
            return value
        given = run.keep[name]
        if given is None:
            return await DeviceTensor.upload(value, self.device)
        if given.type != value.type:
            raise BindingError(f"output '{name}' is {value.type} here, and the OrtValue bound to it is {given.type}")
        if given.in_use:
            given.exchange(await DeviceTensor.upload(value, self.device))
        else:
            given.write(value.bytes())
        return given

    async def _kept(self, name: str, run: Run, is_input: bool) -> AnyValue:
        """An output that is on the device: where the caller wants it."""
        tensor, given = run.tensors[name], run.keep.get(name)
        if name not in run.keep:
            return await tensor.download()
        if is_input:
            tensor = await tensor.clone()
        if given is None:
            return tensor
        if given.buffer != tensor.buffer:
            given.exchange(tensor)
        return given

    def release(self) -> None:
        """Free everything on the device."""
        for stage in self.roots:
            stage.release()
        self.roots = []
        self.weights.release()


def _type(value: AnyValue | None, name: str) -> ValueType:
    assert value is not None, name
    if isinstance(value, HostTensor | DeviceTensor):
        return replace(value.type, name=name)
    return replace(value, source=None, name=name)


def _sources(values: Mapping[str, HostValue]) -> dict[str, Callable[[], object]]:
    return {n: (v.array if isinstance(v, HostTensor) else v.value) for n, v in values.items()}
