"""Looking inside a session: explanation, memory plan, profile, trace, rich display."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pyruntime.errors import Fail, InvalidArgument
from pyruntime.kernels.selection.measurements import Knowledge
from pyruntime.session.base import Session
from pyruntime.session.environment import CPU, WEBGPU, learn, wait_for
from pyruntime.session.inspect.explanation import Explanation, choices_of, kernels_of
from pyruntime.session.inspect.memory_plan import MemoryPlan, allocated_bytes
from pyruntime.session.inspect.profile import Profile
from pyruntime.session.inspect.report import assignments, dynamic_dimensions, stages_of
from pyruntime.session.markup import bytes_text, escape, page, table
from pyruntime.session.run.profiling import Recorder
from pyruntime.session.tuning.calibration import calibrate
from pyruntime.session.tuning.ceilings import ceilings

if TYPE_CHECKING:
    from pyruntime.session.tuning.tuning import Tuning

__all__ = ["AssignedNode", "AssignedSubgraph", "Insight"]


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node and its operator (onnxruntime: OrtEpAssignedNode)."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True, slots=True)
class AssignedSubgraph:
    """Nodes one provider runs (onnxruntime: OrtEpAssignedSubgraph)."""

    ep_name: str
    nodes: tuple[AssignedNode, ...]

    def get_nodes(self) -> list[AssignedNode]:
        """Return the nodes."""
        return list(self.nodes)


class Insight(Session):
    """The part of InferenceSession that tells about itself."""

    def explain(self) -> Explanation:
        """Nodes with placement and reason, kernels with WGSL, fusions, memory: text, or HTML in a notebook.

        What depends on input shapes is there after the first run, or at once where the model's shapes are complete.
        """
        self._check_released()
        stages = stages_of(self._program)
        plans = [stage.executable.plan for stage in stages]
        precision = {n: why for stage in stages for n, why in stage.compiled.precision.items()}
        name = self._model.metadata.graph_name or "model"
        return Explanation(
            name,
            tuple(assignments(self._model.graph, self._program)),
            tuple(kernels_of(plans)),
            self.memory_plan,
            len(self._model.graph.nodes),
            sum(len(p.commands) for p in plans),
            tuple(dynamic_dimensions(self._program)),
            tuple(self._program.dynamic_dimensions.reasons.items()) if self._program else (),
            choices_of(plans, self._program.target) if self._program else (),
            precision if self._program and self._program.target.half else None,
        )

    def summary(self) -> dict[str, Any]:
        """Adapter, inputs, outputs, nodes with placement and reason, memory in bytes: plain data for programs.

        `timings`, in milliseconds: `parse_ms` (without what is read while a file arrives), `adapter_ms` and
        `shaders_ms` of `create_ms`; `run_ms` of the last run;
        `plan_ms` of all planning so far; and of the last plan, side by side, until its memory, pipelines, weights and
        computed constants were there: `allocate_ms`, `pipelines_ms`, `weights_ms`, `computed_ms`.
        """
        self._check_released()
        program = self._program
        plans = [stage.executable.plan for stage in stages_of(program)]
        return {
            "adapter": program.device.info.names if program else None,
            "providers": self.get_providers(),
            "inputs": list(map(asdict, self.get_inputs())),
            "outputs": list(map(asdict, self.get_outputs())),
            "nodes": [
                {
                    "name": a.name,
                    "op_type": a.op_type,
                    "domain": a.domain,
                    "placement": a.placement,
                    "reason": "" if a.placement == "gpu" else a.reason,
                    "kernels": list(a.kernels),
                }
                for a in assignments(self._model.graph, program)
            ],
            "memory": self.memory_plan.totals() if plans else None,
            "dispatches": sum(len(p.commands) for p in plans),
            "pipelines": len({s for p in plans for s in p.shaders}),
            "timings": {**self._timings, **(program.timings if program else {})},
            "warnings": list(self._warnings),
        }

    @property
    def memory_plan(self) -> MemoryPlan:
        """Memory of the session, and activations of the shapes planned last; empty on the CPU provider."""
        self._check_released()
        program = self._program
        if program is None:
            return MemoryPlan.planned(())
        reports = tuple(stage.executable.plan.memory for stage in stages_of(program))
        cache = program.cache
        return MemoryPlan(reports, cache.activations, cache.weights.nbytes, allocated_bytes(program.device.ledger))

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Mean time of each kernel over `runs` runs on these inputs, after one that is not counted.

        Of the kernels that a session keeps: those of its first run, which only compile faster, are waited out.
        """
        return wait_for(self.profile_async(inputs, runs), "await session.profile_async(inputs)")

    async def profile_async(self, inputs: Mapping[str, Any], runs: int = 20) -> Profile:
        """Awaitable `profile`."""
        names = self._output_names(None)
        trace, self._trace = self._trace, None
        try:
            await self._run_values(inputs, names, None)
            if self._program is not None:
                await self._program.device.wait_for_pipelines()
            wall, measured = [], []
            for _ in range(max(1, runs)):
                began = time.perf_counter()
                await self._run_values(inputs, names, None)
                wall.append(time.perf_counter() - began)
            for _ in range(max(1, runs)):
                recorder = Recorder()
                await self._run_values(inputs, names, None, None, recorder)
                measured.append(recorder.timings)
        finally:
            self._trace = trace
        peak = await ceilings(self._program.device) if self._program is not None else None
        return Profile.of(measured, wall, peak)

    def tune(self, progress: Callable[[int, int], None] | None = None) -> Tuning:
        """Measure on this device every kernel that competes with others for a part of this model, some seconds long.

        The fastest run in sessions that are created from now on, in later visits of this browser too. What is planned
        counts: give inputs of the shapes that matter to `run` first, where the model leaves shapes open.

        Args:
            progress: called with how many problems are done, and of how many.

        Raises:
            InvalidArgument: the session does not run on a GPU, or has planned nothing yet.
        """
        return wait_for(self.tune_async(progress), "await session.tune_async()")

    async def tune_async(self, progress: Callable[[int, int], None] | None = None) -> Tuning:
        """Awaitable `tune`."""
        from pyruntime.session.tuning.tuning import Tuning, measure_candidates, winners_of  # few pages tune

        self._check_released()
        if self._program is None:
            raise InvalidArgument(f"tune measures kernels on a GPU; this session runs on {CPU}")
        plans = [stage.executable.plan for stage in stages_of(self._program)]
        if not plans:
            raise InvalidArgument("tune measures what is planned: run the model once with the shapes that matter")
        device = self._program.device
        problems = [noted for plan in plans for a in plan.assignments for noted in a.choices]
        rates = await calibrate(device) if not self._program.target.is_software else None
        target = replace(self._program.target, rates=rates)
        measured = await measure_candidates(device, target, problems, progress)
        await learn(device, Knowledge(rates, winners_of(measured, device.target.winners)))
        return Tuning(rates, tuple(measured))

    def end_profiling(self) -> str:
        """Write the Chrome trace and stop; returns the file's name, '' where profiling was not enabled."""
        trace, self._trace = self._trace, None
        if trace is None:
            return ""
        return trace.write()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, in nanoseconds of the system clock; 0 where it was not enabled."""
        return self._trace.began_ns if self._trace else 0

    def get_provider_graph_assignment_info(self) -> list[AssignedSubgraph]:
        """Return the runs of consecutive nodes by the provider that has them.

        Raises:
            Fail: the config entry 'session.record_ep_graph_assignment_info' is not '1'.
        """
        if self._options.config("session.record_ep_graph_assignment_info") != "1":
            raise Fail(
                "Session configuration entry 'session.record_ep_graph_assignment_info' must be set to \"1\" to "
                "retrieve EP graph assignment information."
            )
        self._check_released()
        groups: list[tuple[str, list[AssignedNode]]] = []
        for a in assignments(self._model.graph, self._program):
            provider = WEBGPU if a.placement == "gpu" or (a.placement == "none" and self._program) else CPU
            if not groups or groups[-1][0] != provider:
                groups.append((provider, []))
            groups[-1][1].append(AssignedNode(a.name, a.domain, a.op_type))
        return [AssignedSubgraph(provider, tuple(nodes)) for provider, nodes in groups]

    def __repr__(self) -> str:
        both = self.get_inputs(), self.get_outputs()
        sides = (", ".join(f"{a.name} {a.type}{a.shape}" for a in side) for side in both)
        name = self._model.metadata.graph_name or "model"
        return f"<InferenceSession {name}: {' -> '.join(sides)}; {', '.join(self.get_providers())}>"

    def _repr_html_(self) -> str:
        args = [
            (kind, a.name, a.type, " × ".join("?" if d is None else str(d) for d in a.shape))
            for kind, values in (("input", self.get_inputs()), ("output", self.get_outputs()))
            for a in values
        ]
        constants = self._model.graph.constants.values()
        elements, nbytes = sum(math.prod(c.type.shape) for c in constants), sum(c.nbytes for c in constants)
        facts = (
            f"{len(self._model.graph.nodes)} nodes · {elements:,} parameters ({bytes_text(nbytes)}) · "
            f"{' → '.join(self.get_providers())}"
        )
        name = escape(self._model.metadata.graph_name or "model")
        warnings = "".join(f"<p>{escape(w)}</p>" for w in self._warnings)
        return page(
            f"<p><b>InferenceSession</b> {name}<br>{escape(facts)}</p>",
            table(("", "name", "type", "shape"), args),
            warnings,
        )
