"""A model on a device: stages planned when their shapes are known, kept for the next run of the same shapes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from pyruntime.device.arenas import Arenas
from pyruntime.device.base import Device
from pyruntime.device.executable import Executable, HostValue, run_on_host, shares_arenas
from pyruntime.device.sanitizer import SanitizedExecutable
from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.weights import Weights
from pyruntime.errors import BindingError, DeviceLost
from pyruntime.ir import Graph, HostTensor, Sizes, TensorType, ValueType, known
from pyruntime.kernels.costs import Rates
from pyruntime.onnx.source import Awaited
from pyruntime.plan.plan import Plan
from pyruntime.plan.typing import Boundary
from pyruntime.plan.verify import PlanError
from pyruntime.session.compiler import Compiled, Computed, compile_stage, numbers_of, sources_of
from pyruntime.session.expected_runs import ExpectedRun
from pyruntime.session.housing import house
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.log import logger
from pyruntime.session.openings import Openings
from pyruntime.session.profiling import Recorder
from pyruntime.session.prologue import Prologue
from pyruntime.session.refusals import TooEarly, refuse_guesses, refuse_host
from pyruntime.session.stages import AnyValue, Run, Stage, forget_oldest, planned_bytes, recall

__all__ = ["AnyValue", "Program", "Run", "Stage"]


class Program:
    """Runs a graph on a device for any input shapes.

    Args:
        graph: the imported model.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).
        disabled: names of passes and kernel variants to leave out.
        limits: `gpu_bytes` and `cached_plans` hold here.
        rates: what kernels are chosen by instead of what was measured on the device.
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
        rates: Rates | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        self.target = replace(device.target, disabled=disabled, rates=rates or device.target.rates)
        self.refuse_host = refuse_host
        self.optimize = optimize
        self.limits = limits or ResourceLimits()
        self.sanitize = sanitize
        self.weights = Weights(device)
        self.arenas = Arenas(device)
        self.openings = Openings(graph)
        self.roots: list[Stage] = []
        self._order = {v.name: at for at, v in enumerate(graph.outputs)}
        self._prologue = Prologue(device, self.weights, self.limits, self._executable, lambda: self.held)
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
            run = Run(values, await self._tensors(given), self._ordered(outputs), keep or {}, lent, check, recorder)
            stage = await self._run(run, list(feeds))
            return {name: await self._output(name, stage, run, feeds) for name in outputs}

    async def _run(self, run: Run, fed: Sequence[str]) -> Stage:
        """Run all stages; returns the last."""
        on_device = run.on_device
        stage, sizes = await self._find(self.roots, run, fed, None, on_device)
        root = stage
        root.users += 1
        try:
            if stage.boundary is None:
                await self._run_stage(stage, run, sizes)
            else:
                async with self._staged:
                    stage = await self._run_stages(stage, run, on_device)
        finally:
            root.users -= 1
            while len(self.roots) > self.limits.cached_plans and forget_oldest(self.roots):
                pass
        return stage

    def replayable(self, feeds: Mapping[str, AnyValue], outputs: Sequence[str], stay: Collection[str]) -> Stage | None:
        """The stage that runs such feeds whatever their values are, where one segment does all; else None.

        Args:
            stay: outputs that stay on the device, in memory of its choice.
        """
        on_device = frozenset((*(n for n, v in feeds.items() if isinstance(v, DeviceTensor)), *stay))
        signature = tuple((n, _type(v, n)) for n, v in feeds.items()), tuple(self._ordered(outputs)), on_device
        sources = sources_of({n: v for n, v in feeds.items() if not isinstance(v, DeviceTensor)})
        found = recall([s for s in self.roots if not s.compiled.guards.read], signature, sources)
        if found is None or found[0].boundary is not None:
            return None
        replay = found[0].executable.replay(feeds)
        if replay is None:
            return None
        stays = [t.name for t in replay.outputs] + [k.name for k in replay.kept]
        return found[0] if {*stays, *(t.name for t, _ in replay.downloads)} == set(outputs) else None

    def _ordered(self, outputs: Sequence[str]) -> list[str]:
        """The outputs in the model's order: plans are the same in whatever order they are asked for."""
        return sorted(outputs, key=self._order.__getitem__)

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
            stage, _ = await self._find(stage.next, run, arrived, stage, on_device)
            await self._run_stage(stage, run)
        return stage

    async def _run_stage(self, stage: Stage, run: Run, sizes: Sequence[int] = ()) -> None:
        """Run one stage; outputs that stay get a tensor of their own, those given are exchanged for it at the end.

        A tensor given is written itself where no run has it, this one or one that overlaps.
        """
        executable = stage.executable
        numbers = executable.sized(sizes).numbers if sizes else ()
        external = executable.plan.external
        await house(stage, run, sizes, numbers)
        made = {t.name: t.sized(numbers) for t in external if t.name in executable.bound and t.name not in run.tensors}
        in_use = {t.buffer for t in run.tensors.values()}
        direct = {}
        for name, kind in made.items():
            given = run.keep.get(name)
            if given is None:
                continue
            if given.type != kind or given.device is not self.device:
                raise BindingError(f"output '{name}' is {kind} here, and the OrtValue bound to it is {given.type}")
            alone = not given.in_use and not given.shared and given.room is None
            if given.buffer not in in_use and alone:
                direct[name] = run.lent.enter_context(given.lent())
                in_use.add(given.buffer)
        rest = {n: kind for n, kind in made.items() if n not in direct}
        fresh = await DeviceTensor.allocate(list(rest.values()), self.device)
        run.tensors.update(direct)
        run.tensors.update(zip(rest, fresh, strict=True))
        buffers = {t.name: run.tensors[t.name].buffer for t in external if t.name in executable.bound}
        await executable.run(run.values, buffers, run.recorder.step if run.recorder else None, sizes)

    async def prepare(
        self, feeds: Mapping[str, TensorType], outputs: Sequence[str], strict: bool = False
    ) -> Stage | None:
        """Plan and compile the first stage for inputs of these types, before any value is there.

        Returns:
            The stage, or None where a kernel may hang on a value: the first run knows more, and plans.

        Raises:
            TooEarly: instead of None, where `strict`.
        """
        async with self._planning:
            try:
                return await self._plan(self.roots, {}, dict(feeds), None, outputs, frozenset())
            except TooEarly:
                if strict:
                    raise
                return None

    async def expect(self, runs: Sequence[ExpectedRun]) -> None:
        """Plan and compile runs that are guessed. Where one of them cannot be, all are forgotten."""
        async with self._planning:
            self.openings = Openings(self.graph)
            for run in runs:
                self.openings.note(run.feeds)
            try:
                for run in runs:
                    signature = tuple(run.feeds.items()), run.outputs, run.on_device
                    if recall(self.roots, signature, {}) is None:
                        await self._plan(
                            self.roots,
                            {},
                            run.feeds,
                            None,
                            run.outputs,
                            run.on_device,
                            run.on_device & set(run.outputs),
                        )
            except (DeviceLost, PlanError, Awaited):
                raise
            except Exception as error:
                logger.info("the runs expected are planned when they come: %s: %s", type(error).__name__, error)
                self.openings = Openings(self.graph)
                while forget_oldest(self.roots):
                    pass
                self.weights.sweep()

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
                else stage.compiled.types.get(name)
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
    ) -> tuple[Stage, tuple[int, ...]]:
        """The stage for these values and the open sizes they bring; planned where there is none."""
        types = {n: _type(run.values.get(n, run.tensors.get(n)), n) for n in arrived}
        signature = tuple((n, replace(t, source=None)) for n, t in types.items()), tuple(run.outputs), on_device
        sources = sources_of(run.values)
        rooms = {n: t.room[1] for n, t in run.tensors.items() if t.room}
        found = recall(stages, signature, sources, rooms)
        if found is not None:
            return found
        async with self._planning:
            found = recall(stages, signature, sources, rooms)
            if found is not None:
                return found
            stage = await self._plan(stages, run.values, types, before, run.outputs, on_device, run.free)
        return stage, stage.fits(signature, rooms, sources) or ()

    async def _plan(
        self,
        stages: list[Stage],
        values: Mapping[str, HostValue],
        arrived: Mapping[str, ValueType],
        before: Stage | None,
        outputs: Sequence[str],
        on_device: frozenset[str],
        free: frozenset[str] = frozenset(),
    ) -> Stage:
        """Plan a stage: with open sizes where inputs have come with several, else for these very sizes."""
        if before is None:
            self.openings.note(arrived, numbers_of(values))
            stage = await self._plan_open(stages, values, arrived, outputs, on_device, free)
            if stage is not None:
                return stage
        compiled = self._compile(values, arrived, before, outputs, on_device, None, free)
        self.openings.look(compiled.guards.read)
        return await self._made(stages, compiled, arrived, before, outputs, on_device, early=not values)

    async def _plan_open(
        self,
        stages: list[Stage],
        values: Mapping[str, HostValue],
        arrived: Mapping[str, ValueType],
        outputs: Sequence[str],
        on_device: frozenset[str],
        free: frozenset[str],
    ) -> Stage | None:
        """A stage with open sizes; None where there are none, or where it needs their numbers: these then stay closed.

        Where the largest sizes of their ranges are too much for the device, the ranges are the least there are.
        """
        reasons: dict[str, str] = {}
        numbers = numbers_of(values)
        ways = [False, True] if self.target.allows("open_sizes") else []
        while ways:
            opened, sizes = self.openings.open(arrived, ways[0], numbers)
            if sizes is None:
                return None
            try:
                compiled = self._compile(values, opened, None, outputs, on_device, sizes, free)
                self.openings.look(compiled.guards.read)
                if compiled.boundary is None and not compiled.plan.host_steps:
                    made = await self._made(stages, compiled, opened, None, outputs, on_device, early=False)
                    self.openings.learn(sizes)
                    return made
                self.openings.avoid(sizes, "a node runs on the host or waits for values")
            except (DeviceLost, PlanError):
                raise
            except Exception as error:  # these sizes are planned as they are, and what is wrong with them comes again
                reason = f"{type(error).__name__}: {error}"
                if sizes.values:
                    self.openings.close({sizes.names[sizes.index(v)]: reason for v in sizes.values.values()})
                    continue
                reasons = dict.fromkeys(sizes.names, reason)
            ways.pop(0)
        self.openings.close(reasons)
        return None

    def _compile(
        self,
        values: Mapping[str, HostValue],
        arrived: Mapping[str, ValueType],
        before: Stage | None,
        outputs: Sequence[str],
        on_device: frozenset[str],
        sizes: Sizes | None,
        free: frozenset[str],
    ) -> Compiled:
        return compile_stage(
            self.graph,
            self.target,
            arrived,
            values,
            outputs,
            on_device,
            before.compiled if before else None,
            before.executable.resident if before else (),
            sizes,
            self.optimize,
            self.sanitize,
            free,
            self.device.ask,
        )

    async def _made(
        self,
        stages: list[Stage],
        compiled: Compiled,
        arrived: Mapping[str, ValueType],
        before: Stage | None,
        outputs: Sequence[str],
        on_device: frozenset[str],
        early: bool,
    ) -> Stage:
        """The stage on the device: constants computed, memory allocated, pipelines compiled.

        Args:
            early: no value is known yet.
        """
        plan = compiled.plan
        if before is None and early:
            refuse_guesses(plan.host_steps, compiled.boundary, arrived)
        if self.refuse_host:
            refuse_host(plan.assignments, compiled.boundary)
        for step in plan.host_steps:
            made = [t.nbytes for t in step.outputs if isinstance(t, TensorType)]
            self.limits.check_host(step.node.label, sum(made))
        carried = before.executable.resident if before else {}
        computed = [constant.name for constant in compiled.prologue]
        nbytes = planned_bytes(plan, {*carried, *computed, *compiled.bound})
        arenas = self.arenas if compiled.alone is None and shares_arenas(plan) else None
        nbytes -= sum(plan.arenas) if arenas is not None else 0
        nbytes_computed = sum(c.nbytes for c in compiled.prologue if c.key not in self.weights)
        needed = nbytes + nbytes_computed + self.weights.missing(plan.constants)
        self._make_room(stages, lambda: needed + (arenas.missing(plan.arenas) if arenas else 0), before)
        keys: list[Hashable] = []
        compute = partial(self._computed, compiled.prologue, keys)
        together = needed + self.held + self._prologue.most(compiled.prologue) <= self.limits.gpu_bytes
        try:
            resident = {**carried, **({} if together else await compute())}
            executable = self._executable(plan, compiled.alone, self.weights, resident, compiled.bound, arenas)
            await executable.prepare(compute if together else None)
        except BaseException:
            self.weights.drop(keys)
            self.weights.sweep()
            raise
        self.weights.sweep()
        signature = tuple((n, replace(t, source=None)) for n, t in arrived.items()), tuple(outputs), on_device
        stage = Stage(signature, executable, compiled, nbytes)
        stage.on_release.append(lambda: self.weights.drop(keys))
        stages.append(stage)
        return stage

    async def _computed(self, constants: list[Computed], keys: list[Hashable]) -> dict[str, int]:
        """The buffers of computed constants; `keys` gets what `Weights.drop` takes when they are used no more."""
        made = await self._prologue.run(constants)
        keys += [constant.key for constant in constants]
        return made

    def _make_room(self, stages: list[Stage], needed: Callable[[], int], before: Stage | None) -> None:
        """Free plans not used for longest, so that one of `needed` bytes more fits the limits and goes into `stages`.

        Raises:
            OutOfMemory: it does not fit, with all that can go gone.
        """
        most = self.limits.cached_plans if before is None else max(1, self.limits.cached_plans // 4)
        while len(stages) >= most and forget_oldest(stages):
            pass
        while needed() + self.held > self.limits.gpu_bytes and forget_oldest(self.roots):
            self.weights.sweep()
        self.limits.check_gpu(needed(), self.held)

    @property
    def held(self) -> int:
        """Bytes on the GPU: weights and plans."""
        return self.weights.nbytes + self.arenas.nbytes + sum(stage.held() for stage in self.roots)

    def _executable(
        self,
        plan: Plan,
        alone: Plan | None,
        weights: Weights,
        resident: Mapping[str, int],
        bound: Iterable[str],
        arenas: Arenas | None = None,
    ) -> Executable:
        if alone is None:
            return Executable(plan, self.device, weights, resident, bound, arenas)
        return SanitizedExecutable(plan, alone, self.device, weights, resident, bound)

    async def _output(self, name: str, stage: Stage, run: Run, feeds: Mapping[str, AnyValue]) -> AnyValue:
        if name in run.tensors:
            return await self._kept(name, run, name in feeds)
        value = run.values.get(name)
        if value is None:
            kind = stage.compiled.types[name]
            value = HostTensor(kind, None, kind.value()) if isinstance(kind, TensorType) else known(kind, kind.value())
        if name not in run.keep or not isinstance(value, HostTensor):
            return value
        given = run.keep[name]
        if given is None:
            return await DeviceTensor.upload(value, self.device)
        if given.type != value.type:
            raise BindingError(f"output '{name}' is {value.type} here, and the OrtValue bound to it is {given.type}")
        if given.in_use or given.shared:
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
        DeviceTensor.trim(self.device)


def _type(value: AnyValue | None, name: str) -> ValueType:
    assert value is not None, name
    if isinstance(value, HostTensor | DeviceTensor):
        return replace(value.type, name=name)
    return replace(value, source=None, name=name)
