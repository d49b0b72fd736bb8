"""Which of the stages planned so far runs given values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyruntime.ir import Sizes
from pyruntime.session.run.plan_cache import find_stage

LARGEST = 1024
VALUES = {"exact": (), "token": (2,), "later token": (2,), "wide": (2,)}


class _Stages(list[Any]):
    """Stages that all fit, by name; notes which were looked at."""

    def __init__(self, *names: str) -> None:
        self.looked_at: list[str] = []
        super().__init__(map(self._stage, names))

    def _stage(self, name: str) -> Any:
        sizes = Sizes() if name != "exact" else None
        if sizes is not None:
            sizes.add("rows", 2, 1, LARGEST, grows=name != "wide")

        def fits(*given: object) -> tuple[int, ...]:
            self.looked_at.append(name)
            return VALUES[name]

        compiled = SimpleNamespace(guards=SimpleNamespace(hold=lambda sources: True))
        return SimpleNamespace(name=name, sizes=sizes, fits=fits, compiled=compiled)


@pytest.mark.parametrize(
    ("names", "expected", "looked_at"),
    [
        (["exact", "token"], "exact", ["exact"]),
        (["token", "later token"], "later token", ["later token"]),
        (["token", "wide"], "token", ["wide", "token"]),
        (["wide"], "wide", ["wide"]),
    ],
)
def test_find_stage__several_fit__takes_the_best_and_of_equal_ones_the_last_used(
    names: list[str], expected: str, looked_at: list[str]
) -> None:
    stages = _Stages(*names)
    found: Any = find_stage(stages, ((), (), frozenset()), {})
    assert (found[0].name, found[1]) == (expected, VALUES[expected])
    assert stages[-1].name == expected and sorted(s.name for s in stages) == sorted(names)
    assert stages.looked_at == looked_at
