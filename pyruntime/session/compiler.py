"""From a graph and the types of what a run brings to a plan: pure, on no device.

A stage is compiled up to where planning has to wait for values. What comes out is data: the plan, the plans that make
its computed constants (the prologue), and what the next stage begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pyruntime.device.on_host import HostValue
from pyruntime.ir import Constant, Graph, HostTensor, Node, Sizes, TensorType, TypedGraph, ValueType, known
from pyruntime.kernels import Target
from pyruntime.kernels.candidates import Kernels
from pyruntime.ops.defects import planning
from pyruntime.passes import fuse_attention_product, grow_in_place, optimize
from pyruntime.plan.build import build_plan
from pyruntime.plan.constants import identities, part, split_static
from pyruntime.plan.lowered import Lowerings
from pyruntime.plan.plan import Plan
from pyruntime.plan.typing import Boundary, Guards, Typing
from pyruntime.session.positions import Positions, positions_of
from pyruntime.session.refusals import KNOWN_LIMIT

__all__ = ["Compiled", "Computed", "compile_stage", "numbers_of", "sources_of"]


@dataclass(frozen=True, slots=True)
class Computed:
    """A constant that the GPU makes.

    Attributes:
        key: what it is: the operators and constants it follows from.
        plan: makes it; `alone`: the same in memory of its own for each value, where the sanitizer asked for it.
    """

    name: str
    key: Hashable
    plan: Plan
    alone: Plan | None

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return next(t.type.nbytes for t in self.plan.external if t.name == self.name)


@dataclass(slots=True)
class Compiled:
    """A stage as data.

    Attributes:
        alone: the plan in memory of its own for each value, where the sanitizer asked for it.
        prologue: the constants that are computed.
        sizes: those the plan leaves open.
        guards: fed values it depends on.
        boundary, rest: why it ends, and the nodes after it.
        types, static, constants: what is known after it.
        bound: external tensors that a run brings.
        positions: those that the host checks.
    """

    plan: Plan
    alone: Plan | None
    prologue: list[Computed]
    sizes: Sizes | None
    guards: Guards
    boundary: Boundary | None
    rest: list[Node]
    types: dict[str, ValueType]
    static: set[str]
    constants: dict[str, Constant]
    bound: frozenset[str] = field(default=frozenset())
    positions: list[Positions] = field(default_factory=list)


def compile_stage(
    graph: Graph,
    target: Target,
    arrived: Mapping[str, ValueType],
    values: Mapping[str, HostValue],
    outputs: Sequence[str],
    on_device: frozenset[str],
    before: Compiled | None = None,
    carried: Collection[str] = (),
    sizes: Sizes | None = None,
    optimized: bool = True,
    sanitize: bool = False,
    free: Collection[str] = (),
    ask: Callable[[str], object] = lambda _: None,
    kernels: Kernels | None = None,
) -> Compiled:
    """Compile the stage that begins with `arrived`.

    Args:
        arrived: types of the values it begins with; their dimensions may be Dims of `sizes`.
        values: what the host knows; a plan that looks at a value depends on it.
        outputs: names wanted. on_device: inputs and outputs that are and stay on the device.
        before: the stage in front of it; `carried`: what that left on the device.
        optimized: run the graph passes. sanitize: plan each value a memory of its own, too.
        free: outputs that may stay in any memory, that of an input too.
        ask: gets the text of each shader that the stage will probably have, as soon as it is known.
        kernels: those of the plans made before for this device.
    """
    guards = Guards(sources_of(values))
    constants = dict(before.constants if before else graph.constants)
    types: dict[str, ValueType] = (
        dict(before.types)
        if before
        else {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
    )
    static = set(before.static) if before else set(constants)
    _arrive(arrived, values, before, guards, types)
    for name, size in sizes.values.items() if sizes else ():
        types[name] = known(types[name], np.full(types[name].shape, size, object))  # type: ignore[union-attr]
    if before is None:
        static -= arrived.keys()
        constants = {n: c for n, c in constants.items() if n not in arrived}
    typing = Typing(types, static, guards, sizes)
    with planning("typing"):
        rest, boundary = typing.run(before.rest if before else graph.nodes)
    bound = before.bound if before else frozenset(n for n in arrived if n in on_device)
    on_host = list(dict.fromkeys([*values, *arrived]))
    typed, stay = _graph(typing, rest, boundary, on_host, {*carried, *bound}, constants, outputs, on_device)
    positions = positions_of(typed)
    if optimized:
        optimize(typed, target)
    if before is None and boundary is None and not sanitize:
        with planning("pass 'grow_in_place'"):
            grow_in_place.run(typed, target, [n for n in stay if n in free])
        left = {s.output for s in typed.states.values()}
        stay = [n for n in stay if n not in left]
    if optimized:
        with planning("pass 'fuse_attention_product'"):
            fuse_attention_product.run(typed, target)
    lowerings = Lowerings(target, sizes is None, kernels)
    with planning("planning computed constants"):
        prologue = _prologue(typed, lowerings, sanitize)
    for source in (s for computed in prologue for s in computed.plan.shaders):
        ask(source)
    plan = build_plan(typed, target, stay, ask=ask, lowerings=lowerings)
    alone = build_plan(typed, target, stay, isolated=True, lowerings=lowerings) if sanitize else None
    bound |= on_device & set(stay)
    ends = boundary, rest, types, static, typed.constants
    return Compiled(plan, alone, prologue, sizes, guards, *ends, frozenset(bound), positions)


def _graph(
    typing: Typing,
    rest: list[Node],
    boundary: Boundary | None,
    on_host: Sequence[str],
    carried: Iterable[str],
    constants: dict[str, Constant],
    outputs: Sequence[str],
    on_device: frozenset[str],
) -> tuple[TypedGraph, list[str]]:
    """The graph of a stage, and which of its outputs stay on the GPU for later stages."""
    made = {n for node in typing.done for n in node.outputs if n and n not in typing.static}
    needed = [n for n in (boundary.needed if boundary else ()) if n in made or n in carried]
    wanted = [n for n in outputs if n in made]
    later = sorted(made & {n for node in rest for n in node.inputs})
    kept = [n for n in wanted if n in on_device and n not in needed and _dense(typing.types[n])]
    stay = list(dict.fromkeys([*kept, *(n for n in later if _dense(typing.types[n]))]))
    known_at_end = [n for n in outputs if n in typing.static and not rest]
    to_host = dict.fromkeys([*needed, *(n for n in wanted if n not in kept), *(n for n in later if n not in stay)])
    graph = typing.graph(
        [*(n for n in on_host if n in typing.types and n not in carried), *carried],
        list(dict.fromkeys([*to_host, *known_at_end, *stay])),
        constants,
    )
    graph.resident = frozenset(carried)
    graph.static = set(graph.static)
    return graph, [n for n in stay if n not in to_host]


def _dense(kind: ValueType) -> bool:
    return isinstance(kind, TensorType) and bool(kind.dtype.compute)


def _arrive(
    arrived: Mapping[str, ValueType],
    values: Mapping[str, HostValue],
    before: Compiled | None,
    guards: Guards,
    types: dict[str, ValueType],
) -> None:
    """Add the types of what a stage begins with; those that may be looked at know their value."""
    for name, kind in arrived.items():
        boundary = before.boundary if before else None
        asked = boundary is not None and boundary.node is None
        value = values.get(name)
        small = isinstance(value, HostTensor) and value.type.size <= KNOWN_LIMIT
        source = guards.source(name) if name in values and (small or asked) else None
        types[name] = replace(kind, source=source, name=name)


def _prologue(typed: TypedGraph, lowerings: Lowerings, sanitize: bool) -> list[Computed]:
    """The heavy static values of `typed`, taken out of it."""
    target = lowerings.target
    first = split_static(typed, target, lowerings)
    if first is None:
        return []
    keys = identities(first)
    made = []
    for name in first.outputs:
        alone_graph = part(first, name)
        plan = build_plan(alone_graph, target, [name], lowerings=lowerings)
        alone = build_plan(alone_graph, target, [name], isolated=True) if sanitize else None
        made.append(Computed(name, keys[name], plan, alone))
    return made


def sources_of(values: Mapping[str, HostValue]) -> dict[str, Callable[[], object]]:
    """What gives the value of each."""
    return {n: (v.array if isinstance(v, HostTensor) else v.value) for n, v in values.items()}


def numbers_of(values: Mapping[str, HostValue]) -> dict[str, int]:
    """Those that are one integer."""
    single = {n: v for n, v in values.items() if isinstance(v, HostTensor) and v.type.size == 1}
    return {n: int(v.array().reshape(-1)[0]) for n, v in single.items() if v.type.dtype.is_integer}
