"""Runs like the run before them: inputs of the same kinds, or a decoder's next step.

Such a run has the plan of the run before it, which is not searched for. A decoder's step is fed the caches that the
step before it returned; those of the same shape grow by the same rows, so that one of each shape stands for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import ref

from pyruntime.compiler.compile import Request, sources_of
from pyruntime.compiler.plan import Kept
from pyruntime.device.base import Device
from pyruntime.device.tensor import DeviceTensor, Loans
from pyruntime.ir import Sizes, TensorType, ValueType, is_dim
from pyruntime.ops.host import HostValue
from pyruntime.session.run.stages import AnyValue, Stage, type_of

__all__ = ["Following"]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Caches that have the same shape in every run: `first` is one of them, `names` their inputs and outputs."""

    first: Kept
    names: list[tuple[str, str]]


@dataclass(slots=True)
class Following:
    """How a stage is run again, with the caches that it returned if it has any.

    Attributes:
        stage: ends with the run, and leaves every cache in the memory of its input, which has more rows than it fills.
        device: the stage's.
        outputs: names wanted. stay: those that stay on the device.
    """

    stage: Stage
    device: Device
    outputs: Sequence[str]
    stay: frozenset[str]
    _alike: list[_Alike]
    _representative: Stage
    _others: list[str]
    _external: list[str]
    _fresh: dict[str, int]
    _returned: dict[str, ref[DeviceTensor]]

    @staticmethod
    def of(
        stage: Stage, device: Device, outputs: Sequence[str], keep: Mapping[str, DeviceTensor | None]
    ) -> Following | None:
        """Return how a stage that has run is run again; None where one segment does not compute all outputs from any
        values, or where memory is kept otherwise.
        """
        plan, bound = stage.compiled.plan, stage.executable.bound
        grow = all(k.capacity >= 0 and k.name in keep for k in plan.kept)
        if not stage.is_run or stage.compiled.guards.read or not grow:
            return None
        inputs = dict(stage.signature[0])
        alike: dict[tuple[object, ...], _Alike] = {}
        for kept in plan.kept:
            assert stage.sizes is not None
            key = _pattern(inputs[kept.input], stage.sizes), kept.type, kept.scaled, kept.axis, kept.capacity
            alike.setdefault(key, _Alike(kept, [])).names.append((kept.input, kept.name))
        caches = {kept.input for kept in plan.kept}
        others = [name for name in inputs if name not in caches]
        arrived = tuple((n, inputs[n]) for n in (*others, *(group.first.input for group in alike.values())))
        external = {t.name: i for i, t in enumerate(plan.external) if t.name in bound}
        return Following(
            stage,
            device,
            list(outputs),
            frozenset(keep),
            list(alike.values()),
            replace(stage, signature=(arrived, *stage.signature[1:])),
            others,
            list(external),
            {name: at for name, at in external.items() if name not in inputs},
            {},
        )

    def returned(self, made: Mapping[str, AnyValue]) -> None:
        """Note what the latest run has returned."""
        self._returned = {}
        for group in self._alike:
            for name, output in group.names:
                tensor = made[output]
                assert isinstance(tensor, DeviceTensor)
                self._returned[name] = ref(tensor)

    def follows(
        self, feeds: Mapping[str, AnyValue], outputs: Sequence[str], keep: Mapping[str, DeviceTensor | None]
    ) -> bool:
        """Return whether a run has the inputs of the latest run, its caches for inputs, and wants the same outputs."""
        caches = self._returned
        return (
            len(feeds) == len(caches) + len(self._others)
            and all(feeds.get(name) is cache() for name, cache in caches.items())
            and all(name in feeds for name in self._others)
            and outputs == self.outputs
            and keep.keys() == self.stay
            and not any(keep.values())
        )

    async def run(self, feeds: Mapping[str, AnyValue]) -> dict[str, AnyValue] | None:
        """Run the stage with these feeds, which follow; None, with nothing done, where the plan or memory is too small.

        Returns:
            The outputs by name.
        """
        stage, plan = self.stage, self.stage.executable.plan
        values: dict[str, HostValue] = {}
        tensors: dict[str, DeviceTensor] = {}
        for name, value in feeds.items():
            if isinstance(value, DeviceTensor):
                tensors[name] = value
            else:
                values[name] = value
        sizes = self._sizes(feeds, values, tensors)
        if sizes is None:
            return None
        numbers = stage.executable.runs.sized(sizes).numbers
        for bounded in plan.bounds:
            bounded.check(values, numbers)
        for group in self._alike:
            kept = group.first
            kind, capacity = kept.sized(numbers), sizes[kept.capacity]
            for name, output in group.names:
                grown = tensors[name].grown(kind, kept.axis, capacity)
                if not isinstance(grown, DeviceTensor):
                    return None
                tensors[output] = grown
        stage.users += 1
        try:
            with Loans() as loans:
                for name in feeds:
                    if name in tensors:
                        loans.hold(tensors[name])
                kinds = [plan.external[at].sized(numbers) for at in self._fresh.values()]
                tensors |= zip(self._fresh, await DeviceTensor.allocate(kinds, self.device), strict=True)
                bound = {name: tensors[name].buffer for name in self._external}
                await stage.executable.runs.run(values, bound, None, sizes)
        finally:
            stage.users -= 1
        return {name: tensors[name] if name in tensors else values[name] for name in self.outputs}

    def _sizes(
        self, feeds: Mapping[str, AnyValue], values: Mapping[str, HostValue], tensors: Mapping[str, DeviceTensor]
    ) -> tuple[int, ...] | None:
        """Return the run's dynamic sizes; None where the stage does not fit, or a tensor has to be moved first."""
        on_device, buffers = self.stage.signature[2], {tensor.buffer for tensor in tensors.values()}
        if len(buffers) < len(tensors):
            return None
        for name in self._others:
            tensor = tensors.get(name)
            if (tensor is not None) != (name in on_device):
                return None
            if tensor is not None and (tensor.reserved is not None or tensor.device is not self.device):
                return None
        firsts = [group.first.input for group in self._alike]
        types = {name: type_of(feeds[name], name) for name in (*self._others, *firsts)}
        signature = Request(types, self.stage.signature[1], on_device).signature
        reserved = {name: tensors[name].reserved for name in firsts}
        capacities = {name: rows[1] for name, rows in reserved.items() if rows is not None}
        return self._representative.fits(signature, capacities, sources_of(values))


def _pattern(kind: ValueType, sizes: Sizes) -> tuple[object, ...]:
    """Return the type of an input without its name, as a key. Comparing dynamic dimensions would fix their sizes."""
    assert isinstance(kind, TensorType)
    return kind.dtype, tuple([-1 - sizes.index(dim) if is_dim(dim) else dim for dim in kind.shape])
