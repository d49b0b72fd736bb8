"""Many graphs a second: only planned, for several devices, and every plan proved."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import numpy as np

from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.variants import VARIANTS
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from pyruntime.target.named import read_target
from tests.fuzz.build import Build, Family, Sample

__all__ = ["plan_campaign", "plan_complaint", "random_sample", "targets"]

T = TypeVar("T")

LARGE = read_target("desktop").limits


@dataclass
class QuickBuild(Build):
    """A Build that draws from a generator of random numbers, which takes a hundredth of the time of Hypothesis."""

    random: random.Random = field(default_factory=random.Random)

    def integer(self, low: int, high: int) -> int:
        """See `Build`."""
        return self.random.randint(low, high)

    def flag(self) -> bool:
        """See `Build`."""
        return self.random.random() < 0.5

    def pick(self, *options: T) -> T:
        """See `Build`."""
        return self.random.choice(options)

    def permutation(self, items: Sequence[T]) -> list[T]:
        """See `Build`."""
        return self.random.sample(list(items), len(items))

    def some(self, items: Sequence[T], least: int = 0) -> list[T]:
        """See `Build`."""
        chosen = set(self.random.sample(range(len(items)), self.random.randint(min(least, len(items)), len(items))))
        return [item for i, item in enumerate(items) if i in chosen]

    def size(self, least: int = 0) -> int:
        """See `Build`."""
        return self.random.choice((max(least, 1), *range(max(least, 1), 6), 17, 64, 65, 130))


def _undrawn(strategy: object) -> None:
    raise TypeError(f"{strategy} is not drawn here")


def random_sample(family: Family, seed: int) -> Sample:
    """The sample of this seed."""
    build = QuickBuild(_undrawn, random=random.Random(seed))
    family(build)
    return build.sample()


def targets(seed: int) -> list[Target]:
    """A GPU, SwiftShader, and the smallest device there can be; now and then with a variant switched off."""
    rng = random.Random(seed)
    off = frozenset(rng.sample(sorted(VARIANTS), 1)) if rng.random() < 0.3 else frozenset[str]()
    return [
        Target(LARGE, frozenset({"subgroups", "shader-f16"}), "nvidia", off),
        Target(LARGE, frozenset(), "google", off - {"software"}),
        Target(disabled=off),
    ]


def plan_complaint(sample: Sample, on: Sequence[Target]) -> str:
    """What the verifier says of the sample's plans, or nothing."""
    os.environ["PYRUNTIME_VERIFY"] = "1"
    model = read_model(sample.model.SerializeToString())
    feeds = {n: TensorType(DType.from_numpy(np.asarray(x).dtype), np.shape(x)) for n, x in sample.feeds.items()}
    for target in on:
        graph = import_model(model).graph
        try:
            asyncio.run(Program(graph, NullDevice(target)).prepare(feeds, [v.name for v in graph.outputs]))
        except Exception as error:
            return f"{target.vendor or 'smallest'} without {sorted(target.disabled)}: {type(error).__name__}: {error}"
    return ""


def plan_campaign(
    families: Sequence[Family], seed: int, seconds: float, most: int = 1 << 62, say: Callable[[str], None] = print
) -> tuple[int, list[str]]:
    """Plan samples of the families in turn until the time is over or there are ten failures.

    Returns:
        How many samples were planned, and a report of each failure.
    """
    end, reports = time.monotonic() + seconds, list[str]()
    for number in count():
        if time.monotonic() > end or number >= most or len(reports) >= 10:
            return number, reports
        own = 1_000_003 * seed + number
        sample = random_sample(families[number % len(families)], own)
        if wrong := plan_complaint(sample, targets(own)):
            reports.append(f"seed {own}: {wrong}\n{sample!r}")
            say(reports[-1])
    raise AssertionError
