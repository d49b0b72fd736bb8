"""A sample of the zoo natively: NumPy against onnxruntime, plans for a GPU proved, and what they are like."""

from __future__ import annotations

import pytest

from tools.zoo import sample
from tools.zoo.check import native, planned, reference
from tools.zoo.definitions import definitions
from tools.zoo.table import failures


@pytest.mark.parametrize("name", sample.names())
def test_sample__each_size__agrees_with_onnxruntime_and_is_planned_without_host_steps(name: str) -> None:
    model, feeds = sample.load(name)
    runs, wanted, outputs = reference(model, feeds)
    assert not native(model, runs, wanted, outputs)
    told = planned(model, runs)
    assert told["dispatches"] > 0
    assert not told["host"]
    assert len(runs) < 2 or (told["open"] and not told["closed"]), told["closed"]


def test_sample__is_there() -> None:
    assert len(sample.names()) == len(sample.MODELS)


def test_failures__each__is_a_model_of_the_zoo() -> None:
    assert set(failures()) <= {f"{d.source}/{d.name}" for d in definitions()}
