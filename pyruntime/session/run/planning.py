"""Stages of a graph on a device, planned when the shapes of their inputs are known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Protocol

from pyruntime.compiler.compile import Compiled, Compiler, Computed, Request, numbers_of, sources_of
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.refusals import TooEarly, refuse_host, refuse_too_early
from pyruntime.device.base import Device
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.executable import Executable, shares_arenas
from pyruntime.device.execution.sanitizer import SanitizedExecutable
from pyruntime.device.execution.weights import Weights
from pyruntime.errors import EPFail, InvalidGraph, OutOfMemory
from pyruntime.ir import TensorType
from pyruntime.ops.defects import planning
from pyruntime.ops.host import HostValue
from pyruntime.session.log import logger
from pyruntime.session.run.dynamic_dimensions import DynamicDimensions
from pyruntime.session.run.plan_cache import PlanCache, find_stage
from pyruntime.session.run.prologue import Prologue
from pyruntime.session.run.stages import Run, Stage, type_of
from pyruntime.target import Target

__all__ = ["Planner", "StoredPlans"]

NOT_PLANNABLE = OutOfMemory, EPFail, TooEarly
"""A plan is too large for the device, needs the host, or needs a run's values; another plan may not."""

MISPREDICTED = *NOT_PLANNABLE, InvalidGraph
"""A predicted run cannot be planned before it comes: predicted shapes may also not fit a node."""


class StoredPlans(Protocol):
    """Plans of earlier processes."""

    def find(self, request: Request, target: Target) -> Compiled | None:
        """Return the stage for a request, where one is stored."""
        ...

    def store(self, request: Request, stage: Stage, target: Target) -> None:
        """Store a stage."""
        ...


class Planner:
    """Plans stages of a graph for any input shapes and puts them on the device, into a cache.

    Args:
        cache: where stages go, with the memory that they share.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).

    Attributes:
        stored: plans of earlier processes; None: there are none.
        dynamic_dimensions: which dimensions of inputs are dynamic in plans, and their ranges.
        timings: milliseconds of planning so far, and those of the last stage's preparation on the device, by part.
    """

    def __init__(self, compiler: Compiler, device: Device, cache: PlanCache, refuse_host: bool) -> None:
        self.compiler = compiler
        self.cache = cache
        self.dynamic_dimensions = DynamicDimensions(compiler.graph)
        self.timings: dict[str, float] = {}
        self._device = device
        self._refuse_host = refuse_host
        self.stored: StoredPlans | None = None
        self._prologue = Prologue(device, cache.weights, cache.limits, partial(_executable, device))
        self._planning = asyncio.Lock()

    async def prepare(
        self,
        feeds: Mapping[str, TensorType],
        outputs: Sequence[str],
        strict: bool = False,
        values: Mapping[str, HostValue] = MappingProxyType({}),
        on_device: frozenset[str] = frozenset(),
        free: frozenset[str] = frozenset(),
    ) -> Stage | None:
        """Plan and compile the first stage for inputs of these types, before any value is there but `values`.

        Args:
            on_device, free: those of `Request`.

        Returns:
            The stage, or None where a kernel may hang on a value: the first run knows more, and plans.

        Raises:
            TooEarly: instead of None, where `strict`.
        """
        async with self._planning:
            try:
                request = Request(dict(feeds), outputs, on_device, free, values, early=True)
                return await self._plan(self.cache.roots, request)
            except TooEarly:
                if strict:
                    raise
                return None

    async def expect(self, runs: Sequence[Request]) -> None:
        """Plan and compile predicted runs: all of them before weights are uploaded, which takes until the last byte has
        come. Where one of them cannot be planned, all are forgotten."""
        # Tokens follow a prompt at once: nothing may compile then.
        target = self.compiler.target
        self.compiler.target = replace(target, disabled=target.disabled | {"fallback_kernels"})
        async with self._planning:
            self.dynamic_dimensions = DynamicDimensions(self.compiler.graph)
            for run in runs:
                self.dynamic_dimensions.observe(run.arrived)
            try:
                requests = [r for r in runs if find_stage(self.cache.roots, r.signature, {}) is None]
                for request, planned in [(r, self._compile_predicted(r)) for r in requests]:
                    stage = await self._place_predicted(planned, request)
                    stage.expected = True
            except MISPREDICTED as error:
                logger.info("the runs expected are planned when they come: %s: %s", type(error).__name__, error)
                self.dynamic_dimensions = DynamicDimensions(self.compiler.graph)
                self.cache.trim(0)
                self.cache.weights.sweep()

    def _compile_predicted(self, request: Request) -> tuple[Compiled, Request] | None:
        """Compile a predicted run; None where the result cannot be used, and `_plan` may find another.

        Returns:
            The stage, and the request with dynamic sizes that it is for.
        """
        self.dynamic_dimensions.observe(request.arrived)
        try:
            widened, sizes = self.dynamic_dimensions.widen(request.arrived) if self._allows_dynamic else ({}, None)
            widened_request = replace(request, arrived=widened, sizes=sizes) if sizes else request
            compiled = self._compile(widened_request)
        except MISPREDICTED:
            return None
        if sizes is not None:
            if compiled.boundary is not None or compiled.plan.host_steps:
                return None
            self.dynamic_dimensions.learn(sizes)
        return compiled, widened_request

    async def _place_predicted(self, planned: tuple[Compiled, Request] | None, request: Request) -> Stage:
        """Put a compiled stage on the device; where there is none or it does not fit, `_plan` one."""
        if planned is not None:
            try:
                return await self._place(self.cache.roots, *planned)
            except NOT_PLANNABLE as error:
                logger.info("a run expected is planned otherwise: %s: %s", type(error).__name__, error)
        return await self._plan(self.cache.roots, request)

    @property
    def _allows_dynamic(self) -> bool:
        return self.compiler.target.allows("dynamic_dimensions")

    async def stage_for(
        self, stages: list[Stage], run: Run, arrived: Sequence[str], before: Stage | None, on_device: frozenset[str]
    ) -> tuple[Stage, tuple[int, ...]]:
        """Find the stage for these values and the dynamic sizes they bring; plan it where there is none."""
        types = {n: type_of(run.values.get(n, run.tensors.get(n)), n) for n in arrived}
        request = Request(types, run.outputs, on_device, run.free, run.values)
        signature = request.signature
        sources = sources_of(run.values)
        row_capacities = {n: t.reserved[1] for n, t in run.tensors.items() if t.reserved}
        found = find_stage(stages, signature, sources, row_capacities)
        if found is not None:
            return found
        async with self._planning:
            found = find_stage(stages, signature, sources, row_capacities)
            if found is not None:
                return found
            if before is not None:
                request = replace(request, before=before.compiled, carried=before.executable.resident)
            stage = await self._plan(stages, request)
        return stage, stage.fits(signature, row_capacities, sources) or ()

    async def _plan(self, stages: list[Stage], request: Request) -> Stage:
        """Plan a stage: with dynamic sizes where inputs have come with several, else for exactly these sizes."""
        if request.before is None:
            self.dynamic_dimensions.observe(request.arrived, numbers_of(request.values))
            stage = await self._plan_dynamic(stages, request)
            if stage is not None:
                return stage
        found = self._find_stored(request)
        stage = await self._place(stages, found or self._compile(request), request)
        if found is None:
            self._store(request, stage)
        return stage

    def _find_stored(self, request: Request) -> Compiled | None:
        """Return the stage of an earlier process, where one is stored, after its pipelines have started to compile."""
        found = self.stored.find(request, self.compiler.target) if self.stored is not None else None
        if found is None:
            return None
        self.dynamic_dimensions.observe_reads(found.guards.read)
        # Those of constants first, which the others wait for.
        for plan in (*(constant.plan for constant in found.prologue), found.plan):
            for source in plan.shaders:
                self._device.ask(source)
        return found

    def _store(self, request: Request, stage: Stage) -> None:
        if self.stored is not None:
            self.stored.store(request, stage, self.compiler.target)

    async def _plan_dynamic(self, stages: list[Stage], request: Request) -> Stage | None:
        """A stage with dynamic sizes; None where there are none, or where it needs their numbers: they then stay fixed.

        Where the largest sizes of their ranges are too much for the device, the ranges are the least there are.
        """
        reasons: dict[str, str] = {}
        numbers = numbers_of(request.values)
        tightness = [False, True] if self._allows_dynamic else []
        while tightness:
            with planning("choosing dynamic dimensions"):
                widened, sizes = self.dynamic_dimensions.widen(request.arrived, tightness[0], numbers)
            if sizes is None:
                return None
            try:
                widened_request = replace(request, arrived=widened, sizes=sizes)
                found = self._find_stored(widened_request)
                compiled = found or self._compile(widened_request)
                if compiled.boundary is None and not compiled.plan.host_steps:
                    made = await self._place(stages, compiled, widened_request)
                    self.dynamic_dimensions.learn(sizes)
                    if found is None:
                        self._store(widened_request, made)
                    return made
                self.dynamic_dimensions.avoid(sizes, "a node runs on the host or waits for values")
            except NOT_PLANNABLE as error:
                reason = f"{type(error).__name__}: {error}"
                if sizes.values:
                    self.dynamic_dimensions.fix({sizes.names[sizes.index(v)]: reason for v in sizes.values.values()})
                    continue
                reasons = dict.fromkeys(sizes.names, reason)
            tightness.pop(0)
        self.dynamic_dimensions.fix(reasons)
        return None

    def _compile(self, request: Request) -> Compiled:
        began = time.perf_counter()
        compiled = self.compiler.compile(request)
        self.dynamic_dimensions.observe_reads(compiled.guards.read)
        self.timings["plan_ms"] = self.timings.get("plan_ms", 0.0) + (time.perf_counter() - began) * 1000
        return compiled

    async def _place(self, stages: list[Stage], compiled: Compiled, request: Request) -> Stage:
        """Put a stage on the device, into `stages`: constants computed, memory allocated, pipelines compiled."""
        plan, cache = compiled.plan, self.cache
        if request.early:
            refuse_too_early(plan.host_steps, compiled.boundary, request.arrived)
        if self._refuse_host:
            refuse_host(plan.assignments, compiled.boundary)
        for step in plan.host_steps:
            made = [t.nbytes for t in step.outputs if isinstance(t, TensorType)]
            cache.limits.check_host(step.node.label, sum(made))
        computed = [constant.name for constant in compiled.prologue]
        nbytes = plan.allocated({*request.carried, *computed, *compiled.bound})
        arenas = cache.arenas if compiled.alone is None and shares_arenas(plan) else None
        nbytes -= sum(plan.arenas) if arenas is not None else 0
        nbytes_computed = sum(c.nbytes for c in compiled.prologue if c.key not in cache.weights)
        needed = nbytes + nbytes_computed + cache.weights.missing(plan.constants)
        cache.evict_for(stages, lambda: needed + (arenas.missing(plan.arenas) if arenas else 0))
        keys: list[Hashable] = []
        total = needed + cache.held + (arenas.missing(plan.arenas) if arenas else 0)
        compute = partial(self._computed, compiled.prologue, keys, total)
        together = total + self._prologue.most(compiled.prologue, total) <= cache.limits.gpu_bytes
        try:
            resident = {**request.carried, **({} if together else await compute())}
            executable = _executable(
                self._device, plan, compiled.alone, cache.weights, resident, compiled.bound, arenas
            )
            await executable.prepare(compute if together else None)
            self.timings |= {f"{part}_ms": ms for part, ms in executable.waited.items()}
        except BaseException:
            cache.weights.drop(keys)
            cache.weights.sweep()
            raise
        cache.weights.sweep()
        stage = Stage(request.signature, executable, compiled, nbytes)
        stage.on_release.append(partial(cache.weights.drop, keys))
        stages.append(stage)
        return stage

    async def _computed(self, constants: list[Computed], keys: list[Hashable], total: int) -> dict[str, int]:
        """The buffers of computed constants; `keys` gets what `Weights.drop` takes when they are used no more."""
        made = await self._prologue.run(constants, lambda: self.cache.held, total)
        keys += [constant.key for constant in constants]
        return made


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
