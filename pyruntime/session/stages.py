"""Runs of a program, and the stages that are planned for them and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeAlias

from pyruntime.device.executable import Executable, HostValue
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import Constant, Node, TensorType, TypedGraph, ValueType
from pyruntime.plan.memory import round_up
from pyruntime.plan.plan import Plan
from pyruntime.plan.typing import Boundary, Guards, Typing
from pyruntime.session.profiling import Recorder

__all__ = ["AnyValue", "Run", "Signature", "Stage", "forget_oldest", "planned_bytes", "recall", "stage_graph"]

AnyValue: TypeAlias = HostValue | DeviceTensor
"""A value wherever it is."""

Signature: TypeAlias = tuple[tuple[tuple[str, ValueType], ...], tuple[str, ...], frozenset[str]]
"""Types of the values a stage begins with, outputs wanted, and which of all these are on the device."""


@dataclass(slots=True)
class Run:
    """One run of a program.

    Attributes:
        values: what the host has: the feeds, then what comes back.
        tensors: what the device has: inputs there, then outputs that stay.
        outputs: names wanted.
        keep: outputs that stay on the device; those given are written in place, the others allocated.
        lent: ends with the run; tensors that are not the run's own are lent to it until then.
        check: called between stages; may raise.
        recorder: gets timings.
    """

    values: dict[str, HostValue]
    tensors: dict[str, DeviceTensor]
    outputs: Sequence[str]
    keep: Mapping[str, DeviceTensor | None] = field(default_factory=dict)
    lent: ExitStack = field(default_factory=ExitStack)
    check: Callable[[], None] = lambda: None
    recorder: Recorder | None = None

    @property
    def on_device(self) -> frozenset[str]:
        """Inputs that come from the device and outputs that stay there."""
        return frozenset((*self.tensors, *self.keep))


@dataclass(slots=True)
class Stage:
    """What runs between two points where planning must wait for values.

    Attributes:
        signature: types of the values that came with it, and the outputs wanted.
        guards: fed values the plan depends on.
        boundary: why it ends; None for the last stage.
        rest: nodes for later stages.
        types, static: what is known after it.
        nbytes: what it holds on the GPU besides weights.
        next: stages planned so far for what followed, the one used last at the end.
        users: runs that are in it or in a stage after it.
    """

    signature: Signature
    guards: Guards
    executable: Executable
    boundary: Boundary | None
    rest: list[Node]
    types: dict[str, ValueType]
    static: set[str]
    constants: dict[str, Constant]
    nbytes: int = 0
    next: list[Stage] = field(default_factory=list)
    users: int = 0

    def release(self) -> int:
        """Free it and all stages after it; returns their bytes."""
        self.executable.release()
        return self.nbytes + sum(stage.release() for stage in self.next)

    def held(self) -> int:
        """Bytes on the GPU, those of the stages after it included."""
        return self.nbytes + sum(stage.held() for stage in self.next)


def recall(stages: list[Stage], signature: Signature, sources: Mapping[str, Callable[[], object]]) -> Stage | None:
    """The stage that fits, moved to the end of `stages`."""
    for index, stage in enumerate(stages):
        if stage.signature == signature and stage.guards.hold(sources):
            stages.append(stages.pop(index))
            return stage
    return None


def forget_oldest(stages: list[Stage]) -> bool:
    """Free the stage not used for longest that no run is in; False where there is none."""
    for index, stage in enumerate(stages):
        if not stage.users:
            stages.pop(index).release()
            return True
    return False


def planned_bytes(plan: Plan, there: Collection[str]) -> int:
    """Bytes the plan allocates besides weights; external tensors in `there` exist already."""
    fresh = sum(round_up(t.type.nbytes) for t in plan.external if t.name not in there)
    return sum(plan.arenas) + len(plan.params) + fresh


def stage_graph(
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
