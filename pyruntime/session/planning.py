"""The stages of a model on a device: planned when their shapes are known, kept for the next run of the same shapes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from pyruntime.device.arenas import Arenas
from pyruntime.device.base import Device
from pyruntime.device.executable import Executable, shares_arenas
from pyruntime.device.on_host import HostValue
from pyruntime.device.sanitizer import SanitizedExecutable
from pyruntime.device.weights import Weights
from pyruntime.errors import EPFail, InvalidGraph, OutOfMemory
from pyruntime.ir import Graph, Sizes, TensorType, ValueType
from pyruntime.kernels.candidates import Kernels
from pyruntime.kernels.costs import Rates
from pyruntime.ops.defects import planning
from pyruntime.plan.plan import Plan
from pyruntime.session.compiler import Compiled, Computed, compile_stage, numbers_of, sources_of
from pyruntime.session.expected_runs import ExpectedRun
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.log import logger
from pyruntime.session.openings import Openings
from pyruntime.session.prologue import Prologue
from pyruntime.session.refusals import TooEarly, refuse_guesses, refuse_host
from pyruntime.session.stages import Run, Signature, Stage, forget_oldest, planned_bytes, recall, type_of

__all__ = ["Planning"]

OTHERWISE = OutOfMemory, EPFail, TooEarly
"""What says that a plan is too much for the device, needs the host, or a run's values: another one may not."""

MISPREDICTED = *OTHERWISE, InvalidGraph
"""What says that an expected run is not planned ahead of time: inputs that only a prediction has may not fit a node."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a stage is planned for.

    Attributes:
        arrived: types of the values that it begins with.
        outputs: names wanted. free: those that stay on the device, in memory of its choice.
        on_device: which of both are on the device.
        values: what the host has.
        before: the stage that it goes on from; None for the first of a run.
        early: there is no run yet, which may bring values that decide.
    """

    arrived: Mapping[str, ValueType]
    outputs: Sequence[str]
    on_device: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    values: Mapping[str, HostValue] = field(default_factory=dict)
    before: Stage | None = None
    early: bool = False

    @property
    def signature(self) -> Signature:
        """What the stage is found by."""
        arrived = tuple((n, replace(t, source=None)) for n, t in self.arrived.items())
        return arrived, tuple(self.outputs), self.on_device


class Planning:
    """Plans stages of a graph for any input shapes, puts them on a device and keeps them there.

    Args:
        graph: the imported model.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).
        disabled: names of passes and kernel variants to leave out.
        limits: `gpu_bytes` and `cached_plans` hold here.
        rates: what kernels are chosen by instead of what was measured on the device.
        sanitize: compare every dispatch with itself in memory of its own (`device.sanitizer`); slow.

    Attributes:
        roots: first stages of runs, the one used last at the end.
        timings: milliseconds of planning so far, and those of the last stage's preparation on the device, by part.
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
        exact = frozenset({"quick_start"}) if sanitize else frozenset()
        self.target = replace(device.target, disabled=disabled | exact, rates=rates or device.target.rates)
        self.refuse_host = refuse_host
        self.optimize = optimize
        self.limits = limits or ResourceLimits()
        self.sanitize = sanitize
        self.weights = Weights(device)
        self.arenas = Arenas(device)
        self.openings = Openings(graph)
        self.roots: list[Stage] = []
        self.timings: dict[str, float] = {}
        self._order = {v.name: at for at, v in enumerate(graph.outputs)}
        self._prologue = Prologue(device, self.weights, self.limits, partial(_executable, device))
        self._kernels = Kernels()
        self._planning = asyncio.Lock()
        self._staged = asyncio.Lock()

    async def prepare(
        self,
        feeds: Mapping[str, TensorType],
        outputs: Sequence[str],
        strict: bool = False,
        values: Mapping[str, HostValue] = MappingProxyType({}),
    ) -> Stage | None:
        """Plan and compile the first stage for inputs of these types, before any value is there but `values`.

        Returns:
            The stage, or None where a kernel may hang on a value: the first run knows more, and plans.

        Raises:
            TooEarly: instead of None, where `strict`.
        """
        async with self._planning:
            try:
                return await self._plan(self.roots, Request(dict(feeds), outputs, values=values, early=True))
            except TooEarly:
                if strict:
                    raise
                return None

    async def expect(self, runs: Sequence[ExpectedRun]) -> None:
        """Plan and compile runs that are guessed: all of them before weights go up, which takes until the last byte is
        there. Where one of them cannot be, all are forgotten."""
        # Tokens follow a prompt at once: nothing may compile then.
        self.target = replace(self.target, disabled=self.target.disabled | {"quick_start"})
        async with self._planning:
            self.openings = Openings(self.graph)
            for run in runs:
                self.openings.note(run.feeds)
            try:
                requests = [
                    Request(run.feeds, run.outputs, run.on_device, run.on_device & set(run.outputs), early=True)
                    for run in runs
                ]
                requests = [r for r in requests if recall(self.roots, r.signature, {}) is None]
                for request, planned in [(r, self._ahead(r)) for r in requests]:
                    stage = await self._made_of(planned, request)
                    stage.expected = True
            except MISPREDICTED as error:
                logger.info("the runs expected are planned when they come: %s: %s", type(error).__name__, error)
                self.openings = Openings(self.graph)
                while forget_oldest(self.roots):
                    pass
                self.weights.sweep()

    def _ahead(self, request: Request) -> tuple[Compiled, Request] | None:
        """What `_plan` begins with, and for what; None where it is not to be used, and `_plan` may know another."""
        self.openings.note(request.arrived)
        try:
            opened, sizes = self.openings.open(request.arrived) if self.target.allows("open_sizes") else ({}, None)
            wider = replace(request, arrived=opened) if sizes else request
            compiled = self._compile(wider, sizes)
        except MISPREDICTED:
            return None
        if sizes is not None:
            if compiled.boundary is not None or compiled.plan.host_steps:
                return None
            self.openings.learn(sizes)
        return compiled, wider

    async def _made_of(self, planned: tuple[Compiled, Request] | None, request: Request) -> Stage:
        """The stage that is planned, on the device; where that cannot be, as `_plan` makes one."""
        if planned is not None:
            try:
                return await self._made(self.roots, *planned)
            except OTHERWISE as error:
                logger.info("a run expected is planned otherwise: %s: %s", type(error).__name__, error)
        return await self._plan(self.roots, request)

    async def _find(
        self, stages: list[Stage], run: Run, arrived: Sequence[str], before: Stage | None, on_device: frozenset[str]
    ) -> tuple[Stage, tuple[int, ...]]:
        """The stage for these values and the open sizes they bring; planned where there is none."""
        types = {n: type_of(run.values.get(n, run.tensors.get(n)), n) for n in arrived}
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
            request = Request(types, run.outputs, on_device, run.free, run.values, before)
            stage = await self._plan(stages, request)
        return stage, stage.fits(signature, rooms, sources) or ()

    async def _plan(self, stages: list[Stage], request: Request) -> Stage:
        """Plan a stage: with open sizes where inputs have come with several, else for these very sizes."""
        if request.before is None:
            self.openings.note(request.arrived, numbers_of(request.values))
            stage = await self._plan_open(stages, request)
            if stage is not None:
                return stage
        compiled = self._compile(request)
        return await self._made(stages, compiled, request)

    async def _plan_open(self, stages: list[Stage], request: Request) -> Stage | None:
        """A stage with open sizes; None where there are none, or where it needs their numbers: these then stay closed.

        Where the largest sizes of their ranges are too much for the device, the ranges are the least there are.
        """
        reasons: dict[str, str] = {}
        numbers = numbers_of(request.values)
        ways = [False, True] if self.target.allows("open_sizes") else []
        while ways:
            with planning("opening sizes"):
                opened, sizes = self.openings.open(request.arrived, ways[0], numbers)
            if sizes is None:
                return None
            try:
                wider = replace(request, arrived=opened)
                compiled = self._compile(wider, sizes)
                if compiled.boundary is None and not compiled.plan.host_steps:
                    made = await self._made(stages, compiled, wider)
                    self.openings.learn(sizes)
                    return made
                self.openings.avoid(sizes, "a node runs on the host or waits for values")
            except OTHERWISE as error:
                reason = f"{type(error).__name__}: {error}"
                if sizes.values:
                    self.openings.close({sizes.names[sizes.index(v)]: reason for v in sizes.values.values()})
                    continue
                reasons = dict.fromkeys(sizes.names, reason)
            ways.pop(0)
        self.openings.close(reasons)
        return None

    def _compile(self, request: Request, sizes: Sizes | None = None) -> Compiled:
        before, began = request.before, time.perf_counter()
        compiled = compile_stage(
            self.graph,
            self.target,
            request.arrived,
            request.values,
            request.outputs,
            request.on_device,
            before.compiled if before else None,
            before.executable.resident if before else (),
            sizes,
            self.optimize,
            self.sanitize,
            request.free,
            self.device.ask,
            self._kernels,
        )
        self.openings.look(compiled.guards.read)
        self.timings["plan_ms"] = self.timings.get("plan_ms", 0.0) + (time.perf_counter() - began) * 1000
        return compiled

    async def _made(self, stages: list[Stage], compiled: Compiled, request: Request) -> Stage:
        """The stage on the device: constants computed, memory allocated, pipelines compiled."""
        plan, before = compiled.plan, request.before
        if request.early:
            refuse_guesses(plan.host_steps, compiled.boundary, request.arrived)
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
            executable = _executable(self.device, plan, compiled.alone, self.weights, resident, compiled.bound, arenas)
            await executable.prepare(compute if together else None)
            self.timings |= {f"{part}_ms": ms for part, ms in executable.waited.items()}
        except BaseException:
            self.weights.drop(keys)
            self.weights.sweep()
            raise
        self.weights.sweep()
        stage = Stage(request.signature, executable, compiled, nbytes)
        stage.on_release.append(partial(self.weights.drop, keys))
        stages.append(stage)
        return stage

    async def _computed(self, constants: list[Computed], keys: list[Hashable]) -> dict[str, int]:
        """The buffers of computed constants; `keys` gets what `Weights.drop` takes when they are used no more."""
        made = await self._prologue.run(constants, lambda: self.held)
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

    def _ordered(self, outputs: Sequence[str]) -> list[str]:
        """The outputs in the model's order: plans are the same in whatever order they are asked for."""
        return sorted(outputs, key=self._order.__getitem__)


def _executable(
    device: Device,
    plan: Plan,
    alone: Plan | None,
    weights: Weights,
    resident: Mapping[str, int],
    bound: Iterable[str],
    arenas: Arenas | None = None,
) -> Executable:
    if alone is None:
        return Executable(plan, device, weights, resident, bound, arenas)
    return SanitizedExecutable(plan, alone, device, weights, resident, bound)
