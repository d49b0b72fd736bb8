"""A model on a device: runs, stage after stage (`planning.py` makes these)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.compiler.compile import Compiler, Request, sources_of
from pyruntime.compiler.typing import Boundary
from pyruntime.device.base import Device
from pyruntime.device.execution.executable import Replay
from pyruntime.device.tensor import DeviceTensor, Loans
from pyruntime.errors import BindingError, DeviceLost
from pyruntime.ir import Graph, HostTensor, TensorType, at_sizes, element_of, known
from pyruntime.kernels import Target
from pyruntime.ops.host import HostValue, run_on_host
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.run.dynamic_dimensions import DynamicDimensions
from pyruntime.session.run.following import Following
from pyruntime.session.run.input_memory import move_inputs
from pyruntime.session.run.plan_cache import PlanCache, find_stage
from pyruntime.session.run.planning import Planner, StoredPlans
from pyruntime.session.run.profiling import Recorder
from pyruntime.session.run.stages import AnyValue, Run, Stage, type_of

__all__ = ["AnyValue", "Program", "Run", "Stage"]

REPEATED = 2
"""Runs of a plan after which describing how it is repeated is worth the time."""


class Program:
    """Runs a graph on a device for any input shapes.

    Args:
        graph: the imported model.
        refuse_host: raise EPFail where a node would run on the host (session.disable_cpu_ep_fallback).
        disabled: names of passes and kernel variants to leave out.
        limits: `gpu_bytes` and `cached_plans` hold here.
        sanitize: compare every dispatch with itself in memory of its own (`device.execution.sanitizer`); slow.
        changes: fields of the device's target, by name, that the session's options change.

    Attributes:
        cache: the stages planned so far.
        prepare, expect: those of its `Planner`.
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
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.device = device
        exact = frozenset({"fallback_kernels"}) if sanitize else frozenset()
        target = replace(
            device.target,
            disabled=device.target.disabled | disabled | exact,
            **(changes or {}),
        )
        self.cache = PlanCache(device, limits or ResourceLimits())
        self._planner = Planner(
            Compiler(graph, target, optimize, sanitize, device.ask), device, self.cache, refuse_host
        )
        self._order = {v.name: at for at, v in enumerate(graph.outputs)}
        self._staged = asyncio.Lock()
        self._following: Following | None = None
        self.prepare, self.expect = self._planner.prepare, self._planner.expect

    def use_stored(self, stored: StoredPlans | None) -> None:
        """Look for plans of earlier processes, and store new ones."""
        self._planner.stored = stored

    @property
    def roots(self) -> list[Stage]:
        """First stages of runs, the one used last at the end."""
        return self.cache.roots

    @property
    def dynamic_dimensions(self) -> DynamicDimensions:
        """The dynamic-shape policy of the plans."""
        return self._planner.dynamic_dimensions

    @property
    def target(self) -> Target:
        """What plans are made for."""
        return self._planner.compiler.target

    @property
    def timings(self) -> Mapping[str, float]:
        """See `Planner.timings`."""
        return self._planner.timings

    async def run(
        self,
        feeds: Mapping[str, AnyValue],
        outputs: Sequence[str],
        check: Callable[[], None] = lambda: None,
        keep: Mapping[str, DeviceTensor | None] | None = None,
        recorder: Recorder | None = None,
    ) -> dict[str, AnyValue]:
        """Compute `outputs`; `check` is called between stages and may raise.

        Args:
            keep: outputs that stay on the device, with the tensor they are written to where there is one.
            recorder: gets the time of every dispatch and host step; the run as a whole is slower.

        Raises:
            BindingError: a tensor of `keep` has another type than the output, or is on another device.
            DeviceLost: an output that stays on the device is lost with it, also where the run itself has ended well.
        """
        if recorder is None:
            followed = await self._follow(feeds, outputs, check, keep or {})
            if followed is not None:
                return followed
        with Loans() as loans:
            given = {n: loans.lend(v) for n, v in feeds.items() if isinstance(v, DeviceTensor)}
            values = {n: v for n, v in feeds.items() if not isinstance(v, DeviceTensor)}
            run = Run(values, await self._tensors(given), self._ordered(outputs), keep or {}, loans, check, recorder)
            stage, sizes = await self._run(run, list(feeds))
            there = run.tensors.keys() | run.values.keys()
            run.values |= {n: _known_output(stage, n, sizes) for n in outputs if n not in there}
            new = run.free & run.tensors.keys() - feeds.keys()
            made = {n: run.tensors[n] if n in new else await self._output(n, run, n in feeds) for n in outputs}
            _check_lost(made)
            known = self._following
            if known is None or known.stage is not stage or known.outputs != outputs or known.stay != run.keep.keys():
                repeated = stage.executable.runs.begun >= REPEATED
                known = Following.of(stage, self.device, outputs, run.keep) if repeated else None
            if known is not None:
                known.returned(made)
            self._following = known
            return made

    async def _follow(
        self,
        feeds: Mapping[str, AnyValue],
        outputs: Sequence[str],
        check: Callable[[], None],
        keep: Mapping[str, DeviceTensor | None],
    ) -> dict[str, AnyValue] | None:
        """Run the stage of the latest run again, if the feeds follow from that run; else return None."""
        known, latest = self._following, self.roots[-1] if self.roots else None
        if known is None or known.stage is not latest or not known.follows(feeds, outputs, keep):
            return None
        check()
        made = await known.run(feeds)
        if made is not None:
            _check_lost(made)
            known.returned(made)
        return made

    async def _run(self, run: Run, fed: Sequence[str]) -> tuple[Stage, Sequence[int]]:
        """Run all stages; returns the last, and its dynamic sizes."""
        on_device = run.on_device
        stage, sizes = await self._planner.stage_for(self.roots, run, fed, None, on_device)
        root = stage
        root.users += 1
        try:
            if stage.boundary is None:
                await self._run_stage(stage, run, sizes)
            else:
                async with self._staged:
                    stage, sizes = await self._run_stages(stage, run, on_device), ()
        finally:
            root.users -= 1
            self.cache.trim(self.cache.limits.cached_plans)
        return stage, sizes

    def replayable(
        self, feeds: Mapping[str, AnyValue], outputs: Sequence[str], stay: Collection[str]
    ) -> tuple[Stage, Replay] | None:
        """Describe the run of such feeds, where one segment computes all outputs whatever the values are; else None.

        None also after a plan's first run, if it was not expected: to describe it takes about as long as a run, and
        many plans have just one.

        Args:
            stay: outputs that stay on the device, in memory of its choice.
        """
        on_device = frozenset((*(n for n, v in feeds.items() if isinstance(v, DeviceTensor)), *stay))
        signature = Request({n: type_of(v, n) for n, v in feeds.items()}, self._ordered(outputs), on_device).signature
        sources = sources_of({n: v for n, v in feeds.items() if not isinstance(v, DeviceTensor)})
        found = find_stage([s for s in self.roots if not s.compiled.guards.read], signature, sources)
        if found is None or found[0].boundary is not None:
            return None
        if found[0].executable.runs.begun < REPEATED and not found[0].expected:
            return None
        replay = found[0].executable.replay(feeds)
        if replay is None:
            return None
        stays = [t.name for t in replay.outputs] + [k.name for k in replay.kept]
        return (found[0], replay) if {*stays, *(t.name for t, _ in replay.downloads)} == set(outputs) else None

    def expected_replays(self) -> Iterator[tuple[Stage, Replay]]:
        """Stages planned for expected runs, and how these go, where one segment does all whatever the values are."""
        for stage in self.roots:
            if stage.expected and stage.boundary is None and not stage.compiled.guards.read:
                arrived, _, on_device = stage.signature
                replay = stage.executable.replay({name for name, _ in arrived} & on_device)
                if replay is not None:
                    yield stage, replay

    async def _tensors(self, given: dict[str, DeviceTensor]) -> dict[str, DeviceTensor]:
        """Tensors on this device, each buffer once: a dispatch may not bind one twice."""
        seen: set[int] = set()
        for name, tensor in given.items():
            if tensor.device is not self.device:
                if tensor.is_lost:
                    raise DeviceLost(
                        f"input '{name}' was on a GPU device that was lost; "
                        "feed its data, or run the model that made it again"
                    )
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
            stage, _ = await self._planner.stage_for(stage.next, run, arrived, stage, on_device)
            await self._run_stage(stage, run)
        return stage

    async def _run_stage(self, stage: Stage, run: Run, sizes: Sequence[int] = ()) -> None:
        """Run one stage; outputs that stay get a new tensor, which those given are exchanged for at the end.

        A tensor given is written itself where no run has it, this one or one that overlaps, and its device is there.
        """
        executable = stage.executable
        numbers = executable.runs.sized(sizes).numbers if sizes else ()
        for bounded in executable.plan.bounds:
            bounded.check(run.values, numbers)
        bound = executable.bound
        external = [t for t in executable.plan.external if t.name in bound]
        await move_inputs(stage, run, sizes, numbers)
        made = {t.name: t.sized(numbers) for t in external if t.name not in run.tensors}
        in_use = {t.buffer for t in run.tensors.values()}
        direct = {}
        for name, kind in made.items():
            given = run.keep.get(name)
            if given is None:
                continue
            if given.type != kind or not (given.device is self.device or given.is_lost):
                raise BindingError(f"output '{name}' is {kind} here, and the OrtValue bound to it is {given.type}")
            alone = not given.in_use and not given.shared and given.reserved is None and not given.is_lost
            if given.buffer not in in_use and alone:
                direct[name] = run.loans.lend(given)
                in_use.add(given.buffer)
        rest = {n: kind for n, kind in made.items() if n not in direct}
        fresh = await DeviceTensor.allocate(list(rest.values()), self.device)
        run.tensors.update(direct)
        run.tensors.update(zip(rest, fresh, strict=True))
        buffers = {t.name: run.tensors[t.name].buffer for t in external}
        await executable.runs.run(run.values, buffers, run.recorder.step if run.recorder else None, sizes)

    def _cross(self, stage: Stage, boundary: Boundary, run: Run) -> list[str]:
        """Run the boundary's node, if it has one; returns the names of the values the next stage begins with."""
        values = run.values
        if boundary.node is None:
            return [n for n in boundary.needed if n in values]
        node = boundary.node
        began = time.perf_counter()
        run_on_host(node, [stage.compiled.types.get(n) for n in node.inputs], values)
        if run.recorder is not None:
            kinds = [type_of(values[n], n) if n in values else None for n in node.outputs]
            run.recorder.node(node, kinds, time.perf_counter() - began)
        return [n for n in node.outputs if n]

    async def _output(self, name: str, run: Run, is_input: bool) -> AnyValue:
        if name in run.tensors:
            return await self._kept(name, run, is_input)
        value = run.values[name]
        if name not in run.keep or not isinstance(value, HostTensor):
            return value
        given = run.keep[name]
        if given is None:
            return await DeviceTensor.upload(value, self.device)
        if given.type != value.type:
            raise BindingError(f"output '{name}' is {value.type} here, and the OrtValue bound to it is {given.type}")
        if given.in_use or given.shared or given.is_lost:
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
        if given.device is not tensor.device or given.buffer != tensor.buffer:
            given.exchange(tensor)
        return given

    def _ordered(self, outputs: Sequence[str]) -> list[str]:
        """The outputs in the model's order: plans are the same in whatever order they are asked for."""
        return sorted(outputs, key=self._order.__getitem__)

    def release(self) -> None:
        """Free everything on the device."""
        self._following = None
        self.cache.release()
        DeviceTensor.trim(self.device)


def _check_lost(made: Mapping[str, AnyValue]) -> None:
    """Raise DeviceLost if the device of an output that stays there was lost."""
    for name, value in made.items():
        if isinstance(value, DeviceTensor) and value.is_lost:
            raise DeviceLost(f"output '{name}' was on a GPU device that was lost before the run ended")


def _known_output(stage: Stage, name: str, sizes: Sequence[int]) -> HostValue:
    """An output that planning knows: what it is for these dynamic sizes."""
    kind = stage.compiled.types[name]
    value = at_sizes(element_of(kind), kind.value(), sizes)
    return HostTensor(kind, None, value) if isinstance(kind, TensorType) else known(kind, value)
