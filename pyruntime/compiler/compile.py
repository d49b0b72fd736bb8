"""From a graph and the types of what a run brings to a plan: pure, on no device.

A stage is compiled up to where planning has to wait for values. What comes out is data: the plan, the plans that make
its computed constants (the prologue), and what the next stage begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from pyruntime.compiler.bodies import rewrite_bodies
from pyruntime.compiler.bounds import bounds_of
from pyruntime.compiler.build import build_plan
from pyruntime.compiler.cast_constants import cast_in_parts
from pyruntime.compiler.constants import identities, part, split_static
from pyruntime.compiler.lowering import Lowerings
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.refusals import KNOWN_LIMIT
from pyruntime.compiler.typing import Boundary, Guards, Typing
from pyruntime.ir import Constant, Graph, HostTensor, Node, Sizes, TensorType, TypedGraph, ValueType, known
from pyruntime.kernels import Target
from pyruntime.kernels.selection.candidates import Kernels
from pyruntime.ops.defects import planning
from pyruntime.ops.host import HostValue
from pyruntime.passes.pipeline import PASSES, PassRun, optimize

__all__ = ["Compiled", "Compiler", "Computed", "Request", "Signature", "numbers_of", "sources_of"]

Signature: TypeAlias = tuple[tuple[tuple[str, ValueType], ...], tuple[str, ...], frozenset[str]]
"""Types of the values a stage begins with, outputs wanted, and which of all these are on the device."""


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
        """Size of the constant in bytes."""
        return next(t.type.nbytes for t in self.plan.external if t.name == self.name)


@dataclass(slots=True)
class Compiled:
    """A stage as data.

    Attributes:
        alone: the plan in memory of its own for each value, where the sanitizer asked for it.
        prologue: the constants that are computed.
        sizes: those of dynamic dimensions.
        guards: fed values it depends on.
        boundary, rest: why it ends, and the nodes after it.
        types, static, constants: what is known after it.
        bound: external tensors that a run brings.
        precision: `TypedGraph.precision`.
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
    bound: frozenset[str] = frozenset()
    precision: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """What a stage is compiled for.

    Attributes:
        arrived: types of the values that it begins with; their dimensions may be Dims of `sizes`.
        outputs: names wanted.
        on_device: which of both are, and stay, on the device.
        free: outputs that may stay in any memory there, that of an input too.
        values: what the host knows; a plan that looks at a value depends on it.
        before: the previous stage; None for the first of a run.
        carried: the buffers that the previous stage left on the device, by name.
        sizes: those of dynamic dimensions.
        early: there is no run yet, which may bring values that decide.
    """

    arrived: Mapping[str, ValueType]
    outputs: Sequence[str]
    on_device: frozenset[str] = frozenset()
    free: frozenset[str] = frozenset()
    values: Mapping[str, HostValue] = field(default_factory=dict)
    before: Compiled | None = None
    carried: Mapping[str, int] = field(default_factory=dict)
    sizes: Sizes | None = None
    early: bool = False

    @property
    def signature(self) -> Signature:
        """The key of compiled stages: types, wanted outputs, and which values are on the device."""
        arrived = tuple([(n, replace(t, source=None) if t.source else t) for n, t in self.arrived.items()])
        return arrived, tuple(self.outputs), self.on_device


@dataclass(slots=True)
class _Typed:
    """A stage whose types are known.

    Attributes:
        graph: its nodes; `stay`: the outputs that are left on the device.
        rest, boundary: the nodes after it, and why it ends.
    """

    typing: Typing
    rest: list[Node]
    boundary: Boundary | None
    bound: frozenset[str]
    graph: TypedGraph
    stay: list[str]


class Compiler:
    """Compiles stages of a graph for a device.

    Args:
        target: the device; stages compiled from then on are for another one where it is replaced.
        optimize: run the graph passes.
        sanitize: plan each value a memory of its own, too.
        ask: gets the source of each shader that a stage will probably have, as soon as it is known.
        observe: called after each pass, with the graph as it is then.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        optimize: bool = True,
        sanitize: bool = False,
        ask: Callable[[str], object] = lambda _: None,
        observe: Callable[[PassRun, TypedGraph], object] | None = None,
    ) -> None:
        self.graph, self.target = graph, target
        self._optimize, self._sanitize, self._ask, self._observe = optimize, sanitize, ask, observe
        self._kernels = Kernels()

    def compile(self, request: Request) -> Compiled:
        """Compile the stage that is requested."""
        typed = self._type(request)
        self._rewrite(typed, request)
        return self._lower(typed, request)

    def _type(self, request: Request) -> _Typed:
        """Infer types, up to the end of the graph or to where planning has to wait for values."""
        before, sizes = request.before, request.sizes
        guards = Guards(sources_of(request.values))
        if before is not None:
            constants, types, static = dict(before.constants), dict(before.types), set(before.static)
        else:
            constants = {n: c for n, c in self.graph.constants.items() if n not in request.arrived}
            static = set(constants)
            types = {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
        _arrive(request, guards, types)
        for name, size in sizes.values.items() if sizes else ():
            types[name] = known(types[name], np.full(types[name].shape, size, object))  # type: ignore[union-attr]
        typing = Typing(types, static, guards, sizes)
        with planning("typing"):
            rest, boundary = typing.run(before.rest if before else self.graph.nodes)
        bound = before.bound if before else frozenset(n for n in request.arrived if n in request.on_device)
        graph, stay = _graph(typing, rest, boundary, bound, constants, request)
        graph.bounds = bounds_of(graph)
        return _Typed(typing, rest, boundary, bound, graph, stay)

    def _rewrite(self, typed: _Typed, request: Request) -> None:
        """Run the passes."""
        graph = typed.graph
        if request.before is None and typed.boundary is None and not self._sanitize:
            graph.free = tuple(n for n in typed.stay if n in request.free)
        passes = PASSES if self._optimize else [one for one in PASSES if one.always]
        optimize(graph, self.target, passes, self._observe)
        with planning("rewriting the bodies of loops"):
            rewrite_bodies(graph, self.target, passes)
        left = {s.output for s in graph.states.values()}
        typed.stay = [n for n in typed.stay if n not in left]

    def _lower(self, typed: _Typed, request: Request) -> Compiled:
        """Plan kernels, memory and commands."""
        graph, target, stay = typed.graph, self.target, typed.stay
        lowerings = Lowerings(target, request.sizes is None, self._kernels)
        with planning("planning computed constants"):
            prologue = self._prologue(graph, lowerings)
        for source in (s for computed in prologue for s in computed.plan.shaders):
            self._ask(source)
        typing = typed.typing
        return Compiled(
            build_plan(graph, target, stay, ask=self._ask, lowerings=lowerings),
            build_plan(graph, target, stay, isolated=True, lowerings=lowerings) if self._sanitize else None,
            prologue,
            request.sizes,
            typing.guards,
            typed.boundary,
            typed.rest,
            typing.types,
            typing.static,
            graph.constants,
            typed.bound | request.on_device & set(stay),
            graph.precision,
        )

    def _prologue(self, graph: TypedGraph, lowerings: Lowerings) -> list[Computed]:
        """The heavy static values of `graph`, taken out of it."""
        first = split_static(graph, self.target, lowerings)
        if first is None:
            return []
        keys = identities(first)
        made = []
        for name in first.outputs:
            alone_graph = part(first, name)
            build = partial(build_plan, target=self.target, resident_outputs=[name], lowerings=lowerings)
            plan, alone = cast_in_parts(alone_graph, build(alone_graph), build), None
            if self._sanitize:
                build = partial(build_plan, target=self.target, resident_outputs=[name], isolated=True)
                alone = cast_in_parts(alone_graph, build(alone_graph), build)
            made.append(Computed(name, keys[name], plan, alone))
        return made


def _arrive(request: Request, guards: Guards, types: dict[str, ValueType]) -> None:
    """Add the types of what a stage begins with; those that may be looked at know their value."""
    boundary = request.before.boundary if request.before else None
    asked = boundary is not None and boundary.node is None
    for name, kind in request.arrived.items():
        value = request.values.get(name)
        small = isinstance(value, HostTensor) and value.type.size <= KNOWN_LIMIT
        source = guards.source(name) if value is not None and (small or asked) else None
        types[name] = replace(kind, source=source, name=name)


def _graph(
    typing: Typing,
    rest: list[Node],
    boundary: Boundary | None,
    bound: frozenset[str],
    constants: dict[str, Constant],
    request: Request,
) -> tuple[TypedGraph, list[str]]:
    """The graph of a stage, and which of its outputs stay on the GPU for later stages."""
    carried = {*request.carried, *bound}
    on_host = [n for n in dict.fromkeys([*request.values, *request.arrived]) if n in typing.types and n not in carried]
    made = {n for node in typing.done for n in node.outputs if n and n not in typing.static}
    needed = [n for n in (boundary.needed if boundary else ()) if n in made or n in carried]
    wanted = [n for n in request.outputs if n in made]
    later = sorted(made & {n for node in rest for n in node.inputs})
    kept = [n for n in wanted if n in request.on_device and n not in needed and _dense(typing.types[n])]
    stay = list(dict.fromkeys([*kept, *(n for n in later if _dense(typing.types[n]))]))
    known_at_end = [n for n in request.outputs if n in typing.static and not rest]
    to_host = dict.fromkeys([*needed, *(n for n in wanted if n not in kept), *(n for n in later if n not in stay)])
    graph = typing.graph([*on_host, *carried], list(dict.fromkeys([*to_host, *known_at_end, *stay])), constants)
    graph.resident = frozenset(carried)
    graph.static = set(graph.static)
    return graph, [n for n in stay if n not in to_host]


def _dense(kind: ValueType) -> bool:
    return isinstance(kind, TensorType) and bool(kind.dtype.compute)


def sources_of(values: Mapping[str, HostValue]) -> dict[str, Callable[[], object]]:
    """Return, for each value on the host, a function that gives it."""
    return {n: (v.array if isinstance(v, HostTensor) else v.value) for n, v in values.items()}


def numbers_of(values: Mapping[str, HostValue]) -> dict[str, int]:
    """Return the integer tensors with a single element, as ints by name."""
    single = {n: v for n, v in values.items() if isinstance(v, HostTensor) and v.type.size == 1}
    return {n: int(v.array().reshape(-1)[0]) for n, v in single.items() if v.type.dtype.is_integer}
