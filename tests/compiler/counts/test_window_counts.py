"""Attention in windows: passes keep what onnxruntime computes, and no dispatch only moves rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from tests.passes.support import evaluate
from tests.window_models import GPU, WindowModel, Windows, optimized, types

MOVES = ("transpose", "roll", "slice", "concat", "pad", "move")


def kernels(made: WindowModel, target: Target = GPU) -> Counter[str]:
    """How often each kernel runs, by the first word of its name."""
    graph = import_model(read_model(memoryview(made.model()))).graph
    stage = asyncio.run(Program(graph, NullDevice(target)).prepare(types(made.feeds()), ["y"]))
    assert stage is not None
    plan = stage.compiled.plan
    assert not plan.host_steps
    return Counter(c.kernel.split("_")[0] for c in plan.commands)


FORMS = {
    "one": Windows(),
    "two pictures": Windows(batch=2, rows=3, columns=1),
    "no mask": Windows(batch=2, rows=1, columns=3, size=2, masked=False, swapped=True),
    "half": Windows(batch=2, dtype=np.float16),
    "post-norm": Windows(batch=2, post_norm=True, rows=3),
    "cropped": Windows(batch=2, padded=2, swapped=True),
    "narrow": Windows(heads=1, size=6, rows=1, columns=1, both=True),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_windows__after_all_passes__compute_what_onnxruntime_does(form: Windows, merged: bool) -> None:
    check(WindowModel(form, 3, merged))


@pytest.mark.parametrize("seed", range(30))
def test_windows__drawn_forms__compute_what_onnxruntime_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flags = {n: bool(rng.integers(2)) for n in ("post_norm", "masked", "swapped", "both")}
    batch, rows, columns, heads = (int(n) for n in rng.integers(1, 4, 4))
    size = int(rng.choice([2, 4, 6]))
    padded = int(rng.choice([0, 0, 2])) if min(rows, columns) * size > 2 else 0
    dtype: Any = (np.float32, np.float16)[int(rng.integers(2))]
    form = Windows(batch, rows, columns, size, heads, padded=padded, dtype=dtype, **flags)
    check(WindowModel(form, int(rng.integers(1, 4)), bool(rng.integers(2))))


def check(made: WindowModel) -> None:
    model, given = made.model(), made.feeds()
    typed = optimized(model, given)
    with np.errstate(all="ignore"):
        (mine,) = evaluate(typed, given)
    (theirs,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    tolerance = (1e-3, 1e-4) if made.form.dtype is np.float32 else (5e-2, 5e-2)
    np.testing.assert_allclose(mine.astype(np.float32), theirs.astype(np.float32), *tolerance)


@pytest.mark.parametrize("form", [Windows(), Windows(2, 3, 1), Windows(2, 1, 2, 2, 2, masked=False, swapped=True)])
def test_windows__norms_in_front__move_nothing_by_itself(form: Windows) -> None:
    counts = [kernels(WindowModel(form, layers)) for layers in (2, 4)]
    assert not any(counts[1][name] for name in MOVES)
    # Projections of queries, keys and values, attention, its projection, and a product and a norm each for the rest.
    assert (counts[1].total() - counts[0].total()) / 2 <= 7


def test_windows__merged_patches__are_put_together_by_the_norm() -> None:
    for both in (False, True):
        found = kernels(WindowModel(Windows(both=both), 2, True))
        assert not any(found[name] for name in MOVES)


def test_windows__post_norm__read_rows_where_windows_have_them() -> None:
    counts = [kernels(WindowModel(Windows(post_norm=True), layers)) for layers in (2, 4)]
    # Each layer's rows are moved into windows by a dispatch: an addition made them.
    moved = [sum(found[name] for name in MOVES) for found in counts]
    assert moved == [2, 4]


def test_windows__cropped__slices_are_part_of_the_norm() -> None:
    counts = kernels(WindowModel(Windows(padded=2), 2))
    # Two layers: what is before the windows is padded, and then rolled or turned.
    assert [counts[name] for name in MOVES] == [1, 1, 0, 0, 2, 0]


def test_windows__few_bindings__fit_them() -> None:
    few = Target(Limits(storage_buffers=8), frozenset({"subgroups"}), "nvidia")
    assert not any(kernels(WindowModel(Windows(), 4, True), few)[name] for name in MOVES)


def test_windows__other_numbers_of_pictures__take_one_plan() -> None:
    made = WindowModel(Windows(open=True), 3, True)
    program = Program(import_model(read_model(memoryview(made.model()))).graph, NullDevice(GPU))
    stage = None
    for batch in (1, 2, 3):
        stage = asyncio.run(program.prepare(types(made.feeds(batch)), ["y"]))
    assert stage is not None and stage.compiled.sizes is not None and not stage.compiled.sizes.specialized()
