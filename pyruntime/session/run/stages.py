"""Runs of a program, and the stages that are planned for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from pyruntime.compiler.compile import Compiled, Signature
from pyruntime.compiler.typing import Boundary
from pyruntime.device.execution.executable import Executable
from pyruntime.device.tensor import DeviceTensor, Loans
from pyruntime.ir import HostTensor, Sizes, TensorType, ValueType, evaluate
from pyruntime.ops.host import HostValue
from pyruntime.passes.decoding.grow_in_place import capacity
from pyruntime.session.run.dynamic_dimensions import WASTE, match_sizes, scale
from pyruntime.session.run.profiling import Recorder

__all__ = ["AnyValue", "Run", "Stage", "type_of"]

AnyValue: TypeAlias = HostValue | DeviceTensor
"""A value wherever it is."""


@dataclass(slots=True)
class Run:
    """One run of a program.

    Attributes:
        values: what the host has: the feeds, then what comes back.
        tensors: what the device has: inputs there, then outputs that stay.
        outputs: names wanted.
        keep: outputs that stay on the device; those given are written in place, the others allocated.
        loans: end with the run; tensors that are not the run's own are lent to it until then.
        check: called between stages; may raise.
        recorder: gets timings.
    """

    values: dict[str, HostValue]
    tensors: dict[str, DeviceTensor]
    outputs: Sequence[str]
    keep: Mapping[str, DeviceTensor | None] = field(default_factory=dict)
    loans: Loans = field(default_factory=Loans)
    check: Callable[[], None] = lambda: None
    recorder: Recorder | None = None

    @property
    def free(self) -> frozenset[str]:
        """Outputs that stay on the device, in memory of its choice."""
        return frozenset([n for n, given in self.keep.items() if given is None])

    @property
    def on_device(self) -> frozenset[str]:
        """Inputs that come from the device and outputs that stay there."""
        return frozenset((*self.tensors, *self.keep))


@dataclass(slots=True)
class Stage:
    """What runs between two points where planning must wait for values.

    Attributes:
        signature: types of the values that came with it, and the outputs wanted.
        compiled: what it is; `executable`: that on the device.
        nbytes: what it holds on the GPU besides weights.
        next: stages planned so far for what followed, the one used last at the end.
        users: runs that are in it or in a stage after it.
        expected: whether it was planned for runs that were expected, of which there are many then.
        on_release: called once when it is released.
    """

    signature: Signature
    executable: Executable
    compiled: Compiled
    nbytes: int = 0
    next: list[Stage] = field(default_factory=list)
    users: int = 0
    expected: bool = False
    on_release: list[Callable[[], None]] = field(default_factory=list)

    @property
    def boundary(self) -> Boundary | None:
        """Why it ends; None for the last stage."""
        return self.compiled.boundary

    @property
    def sizes(self) -> Sizes | None:
        """Its dynamic sizes."""
        return self.compiled.sizes

    @property
    def device_tensors(self) -> set[str]:
        """Names of the tensors on the device that runs bring, and of those that stay there."""
        plan = self.compiled.plan
        return {t.name for t in plan.external if t.name in self.compiled.bound} | {k.name for k in plan.kept}

    @property
    def is_run(self) -> bool:
        """True if the stage is a run of its own: one GPU segment computes all outputs wanted."""
        (given, wanted, _), segment = self.signature, self.compiled.plan.only_segment
        if segment is None or self.boundary is not None:
            return False
        fed = {name for name, _ in given}
        made = {t.name for t in segment.downloads} | self.device_tensors - fed
        return made == set(wanted) and fed.isdisjoint(wanted)

    def fits(
        self, signature: Signature, row_capacities: Mapping[str, int], sources: Mapping[str, Callable[[], object]]
    ) -> tuple[int, ...] | None:
        """Return the dynamic sizes with which it runs such values (none: an empty tuple); None where it does not.

        Args:
            sources: what gives the value of each input on the host.
            row_capacities: by input, the rows that the memory of tensors with reserved rows holds.
        """
        if self.sizes is None:
            return () if self.signature == signature else None
        if self.signature[1:] != signature[1:]:
            return None
        found = match_sizes(dict(self.signature[0]), dict(signature[0]), self.sizes)
        if found is None:
            return None
        for name, size in self.sizes.values.items():
            if name not in sources:
                return None
            found[self.sizes.index(size)] = int(np.asarray(sources[name]()).reshape(-1)[0])
        values = self._with_capacities(found, row_capacities)
        return values if self.sizes.hold(values) and scale(self.sizes, values) <= WASTE else None

    def _with_capacities(self, values: list[int], row_capacities: Mapping[str, int]) -> tuple[int, ...]:
        """The sizes, with the row capacities of caches: what their memory has already, where that is enough."""
        assert self.sizes is not None
        plan, rows = self.compiled.plan, dict[int, tuple[int, int]]()
        for kept in plan.kept:
            if kept.capacity >= 0:
                expression = kept.scaled[kept.axis]
                if expression not in rows:
                    rows[expression] = (r := evaluate(plan.expressions[expression], values)), capacity(r)
                needed, new = rows[expression]
                there, most = row_capacities.get(kept.input, 0), self.sizes.ranges[kept.capacity][1]
                enough = there if needed <= there <= most else new
                values[kept.capacity] = max(values[kept.capacity], enough)
        return tuple(values)

    def release(self) -> int:
        """Free it and all stages after it; returns their bytes."""
        self.executable.release()
        for drop in self.on_release:
            drop()
        self.on_release.clear()
        return self.nbytes + sum(stage.release() for stage in self.next)

    def chain(self) -> Iterator[Stage]:
        """Iterate over it and all stages after it."""
        yield self
        for stage in self.next:
            yield from stage.chain()

    def held(self) -> int:
        """Return its bytes on the GPU, with those of the stages after it."""
        return sum(stage.nbytes for stage in self.chain())


def type_of(value: AnyValue | None, name: str) -> ValueType:
    """Return the type of a value, with the name `name`."""
    assert value is not None, name
    if isinstance(value, HostTensor | DeviceTensor):
        kind = value.type
        return TensorType(kind.dtype, kind.shape, kind.source, name)
    return replace(value, source=None, name=name)
