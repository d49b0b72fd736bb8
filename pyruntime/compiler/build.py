"""From a placed graph to a Plan: segments, memory, commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyruntime.compiler.bodies import lower_bodies
from pyruntime.compiler.emission import Emitter
from pyruntime.compiler.lowering import Lowerings
from pyruntime.compiler.memory import MemoryReport, Storage, lower_bound, pack, round_up
from pyruntime.compiler.order import less_memory
from pyruntime.compiler.placement import place
from pyruntime.compiler.plan import HostStep, Plan
from pyruntime.compiler.prefetch import Prefetch
from pyruntime.compiler.schedule import schedule
from pyruntime.compiler.segments import Segmentation
from pyruntime.compiler.verify import checked, verify
from pyruntime.ir import TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.defects import planning

__all__ = ["build_plan"]


def build_plan(
    graph: TypedGraph,
    target: Target,
    resident_outputs: Iterable[str] = (),
    isolated: bool = False,
    ask: Callable[[str], object] | None = None,
    lowerings: Lowerings | None = None,
) -> Plan:
    """Plan one stage.

    Args:
        graph: typed, after passes; `graph.resident` names the inputs that are on the GPU already.
        resident_outputs: outputs to leave on the GPU, in external tensors.
        isolated: every value gets memory of its own, which nothing else ever uses: what the sanitizer compares with.
        ask: gets the text of each shader that the plan will probably have, as soon as it is known.
        lowerings: those of the stage's other plans for this device.
    """
    prefetch = Prefetch(graph, resident_outputs, target.allows("read_only_constants"), ask)
    lowerings = lowerings or Lowerings(target, graph.sizes is None)
    with planning("lowering the bodies of loops"):
        lower_bodies(graph, target, lowerings)
    with planning("placing nodes"):
        running, idle = place(graph, target, prefetch, lowerings)
    with planning("ordering nodes"):
        ordered = schedule(running, [*graph.inputs, *graph.constants])
        if target.allows("less_memory"):
            ordered = less_memory(graph, ordered)
    with planning("planning memory and commands"):
        segmentation = Segmentation(graph, target, set(resident_outputs))
        segmentation.add(ordered, idle)
        plan = _emitted(segmentation, isolated or not target.allows("shared_memory"))
        return plan.without_fallback() if prefetch.is_much else plan


def _emitted(made: Segmentation, isolated: bool) -> Plan:
    """The plan: memory for what lives at the same time, commands for the steps."""
    graph, lifetimes, limits = made.graph, made.lifetimes, made.target.limits
    unshared = lifetimes.storages()
    without = sum(round_up(s.nbytes) for s in unshared.values())
    if isolated:
        storages, arenas = unshared, [_alone(s, i) for i, s in enumerate(unshared.values())]
    else:
        lifetimes.share_in_place(made.steps)
        storages = lifetimes.storages()
        arenas = pack(list(storages.values()), limits.buffer_bytes) if storages else []
    root = lifetimes.root
    read_only = made.target.allows("read_only_constants")
    emitter = Emitter(graph, made.constants, made.external, made.views, lambda name: storages[root(name)], read_only)
    segments = [
        s if isinstance(s, HostStep) else emitter.segment(s.uploads, s.steps, s.downloads) for s in made.segments
    ]
    computed = (graph.tensor(name).nbytes for name in graph.computed)
    weights = sum(map(round_up, (*(c.nbytes for c in emitter.constants), *computed)))
    ordered = tuple(sorted(storages.values(), key=lambda s: (s.arena, s.offset, s.first)))
    plan = Plan(
        segments,
        list(emitter.shaders),
        emitter.constants,
        arenas,
        bytes(emitter.params),
        MemoryReport(sum(arenas), lower_bound(ordered), without, weights, ordered, made.time),
        made.assignments,
        {
            n: (graph.types[n], graph.types[n].value())
            for n in graph.outputs
            if n in graph.static and n not in made.on_host
        },
        [emitter.transfer(n) for n in made.resident],
        made.views,
        list(graph.sizes.names) if graph.sizes else [],
        emitter.expressions,
        emitter.patches,
        [emitter.state(s) for s in graph.states.values()],
        [emitter.unread(n) for n in graph.inputs if made.is_unread(n)],
        [emitter.bounded(b) for b in graph.bounds],
    )
    if checked():
        verify(plan)
    return plan


def _alone(storage: Storage, arena: int) -> int:
    """Put `storage` into an arena of its own; how large that is."""
    storage.arena, storage.offset = arena, 0
    return storage.nbytes
