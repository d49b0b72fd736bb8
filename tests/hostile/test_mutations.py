"""A few thousand mutations that are the same in every run; atheris goes on from there (`python3 dev.py fuzz`).

That a fault would be found: `test_target__of_a_fault_that_is_planted__finds_it`.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from pyruntime import errors
from tests.hostile.mutate import mutated
from tests.hostile.targets import TARGETS, seeds
from tests.onnx.corpus import node_models

SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))
COUNT = {"reader": 2000 * SOAK, "load": 400 * SOAK}


@pytest.mark.parametrize("target", TARGETS)
def test_mutations__of_good_models__are_answers_or_exceptions_of_ours(target: str) -> None:
    random = Random(6 + SOAK)
    models = [data for data in node_models().values() if len(data) < 3000]
    changed = 0
    for number in range(COUNT[target]):
        data = mutated(random.choice(models), random)
        if data is None:
            continue
        changed += 1
        try:
            TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"mutation {number}: {type(error).__name__}: {error}") from error
    assert changed > 0.9 * COUNT[target]


def test_seeds__every_one__is_no_crash_of_a_target() -> None:
    for data in seeds()[::4]:
        for target in TARGETS.values():
            target(data)


def test_target__of_a_fault_that_is_planted__finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("tests.hostile.targets.import_model", broken)
    with pytest.raises(KeyError, match="planted"):
        TARGETS["reader"](seeds()[-1])
    monkeypatch.setattr("pyruntime.session.load.creation.import_model", broken)
    with pytest.raises(errors.Fail, match="a bug of pyruntime"):
        TARGETS["load"](seeds()[-1])
