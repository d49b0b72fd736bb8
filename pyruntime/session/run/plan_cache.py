"""Keep the planned stages of a graph on a device, within limits. The least recently used are evicted first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pyruntime.compiler.compile import Signature
from pyruntime.device.base import Device
from pyruntime.device.execution.arenas import Arenas
from pyruntime.device.execution.weights import Weights
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.run.dynamic_dimensions import LEAST_SCALE, scale
from pyruntime.session.run.stages import Stage

__all__ = ["PlanCache", "find_stage"]


class PlanCache:
    """First stages of runs, each with those that follow it, and the memory they share.

    Args:
        limits: `gpu_bytes`, by default no more than the device has, and `cached_plans` hold here.

    Attributes:
        roots: the first stages, the one used last at the end.
    """

    def __init__(self, device: Device, limits: ResourceLimits) -> None:
        self.limits = limits.within(device.ledger.memory)
        self.weights = Weights(device)
        self.arenas = Arenas(device)
        self.roots: list[Stage] = []

    @property
    def held(self) -> int:
        """Bytes on the GPU: weights and plans."""
        return self.weights.nbytes + self.arenas.nbytes + sum(stage.held() for stage in self.roots)

    @property
    def activations(self) -> int:
        """Bytes of the arenas: those that plans share, and those that one plan has alone."""
        arenas = {self.arenas, *(a for root in self.roots for stage in root.chain() for a in stage.executable.arenas)}
        return sum(a.nbytes for a in arenas)

    def evict_for(self, stages: list[Stage], needed: Callable[[], int]) -> None:
        """Evict stages until another one of `needed` bytes fits the limits, and can go into `stages`.

        Args:
            stages: `roots`, or what follows one of these.

        Raises:
            OutOfMemory: it does not fit even without them.
        """
        most = self.limits.cached_plans if stages is self.roots else max(1, self.limits.cached_plans // 4)
        while len(stages) >= most and _evict_oldest(stages):
            pass
        while needed() + self.held > self.limits.gpu_bytes and _evict_oldest(self.roots):
            self.weights.sweep()
        self.limits.check_gpu(needed(), self.held)

    def trim(self, most: int) -> None:
        """Free stages that no run is in until there are `most`."""
        while len(self.roots) > most and _evict_oldest(self.roots):
            pass

    def release(self) -> None:
        """Free everything."""
        for stage in self.roots:
            stage.release()
        self.roots.clear()
        self.weights.release()


def find_stage(
    stages: list[Stage],
    signature: Signature,
    sources: Mapping[str, Callable[[], object]],
    row_capacities: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Stage, tuple[int, ...]] | None:
    """Find the stage that fits best, and its dynamic sizes: one for exactly these sizes before others.

    Of several that fit alike it is the one used last.
    """
    best: tuple[float, int, tuple[int, ...]] | None = None
    for index in sorted(range(len(stages)), key=lambda i: (stages[i].sizes is not None, -i)):
        stage = stages[index]
        values = stage.fits(signature, row_capacities, sources)
        if values is None or not stage.compiled.guards.hold(sources):
            continue
        waste = scale(stage.sizes, values) if stage.sizes else 0.0
        if best is None or waste < best[0]:
            best = waste, index, values
        if waste <= LEAST_SCALE:  # no other one fits better
            break
    if best is None:
        return None
    stages.append(stages.pop(best[1]))
    return stages[-1], best[2]


def _evict_oldest(stages: list[Stage]) -> bool:
    """Free the least recently used stage that no run is in; False where there is none."""
    for index, stage in enumerate(stages):
        if not stage.users:
            stages.pop(index).release()
            return True
    return False
