"""Runs of a program, and the stages that are planned for them and kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pyruntime.device.executable import Executable, HostValue
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import Constant, Node, ValueType
from pyruntime.plan.memory import round_up
from pyruntime.plan.plan import Plan
from pyruntime.plan.typing import Boundary, Guards
from pyruntime.session.profiling import Recorder

__all__ = ["AnyValue", "Run", "Signature", "Stage", "forget_oldest", "planned_bytes", "recall"]

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
        check: called between stages; may raise.
        recorder: gets timings.
    """

    values: dict[str, HostValue]
    tensors: dict[str, DeviceTensor]
    outputs: Sequence[str]
    keep: Mapping[str, DeviceTensor | None] = field(default_factory=dict)
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
