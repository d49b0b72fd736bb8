"""Work without the collector of cyclic garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pyruntime.session.uncollected import uncollected


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    was_on, frozen = gc.isenabled(), gc.get_freeze_count()
    gc.unfreeze()
    gc.enable()
    yield
    gc.unfreeze()
    if frozen:
        gc.freeze()
    (gc.enable if was_on else gc.disable)()


def test_uncollected__objects_made_inside__are_among_the_oldest_unseen() -> None:
    seen: list[str] = []
    with uncollected():
        assert not gc.isenabled()
        made = [[i] for i in range(5000)]
        gc.callbacks.append(lambda phase, info: seen.append(phase))
    try:
        oldest = {id(found) for found in gc.get_objects(generation=2)}
        assert gc.isenabled() and all(id(one) in oldest for one in made) and not seen
    finally:
        gc.callbacks.pop()


def test_uncollected__somebody_has_frozen_objects__they_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with uncollected():
        made = [[i] for i in range(100)]
    assert gc.get_freeze_count() >= frozen - 10 > 0 and gc.isenabled() and made


def test_uncollected__collector_is_off__stays_off() -> None:
    gc.disable()
    with uncollected(), uncollected():
        pass
    assert not gc.isenabled() and not gc.get_freeze_count()


def test_uncollected__cycles_made_inside__are_collected_later() -> None:
    class Cycle:
        alive = 0

        def __init__(self) -> None:
            self.own = self
            Cycle.alive += 1

        def __del__(self) -> None:
            Cycle.alive -= 1

    with uncollected():
        for _ in range(100):
            Cycle()
    gc.collect()
    assert Cycle.alive == 0
