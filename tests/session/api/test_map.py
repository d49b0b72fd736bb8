"""InferenceSession.map: the outputs of every batch in order, progress, ends and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array
from pyruntime.session import InferenceSession

SIZES = (3, 5, 1, 3, 3)


def relu() -> bytes:
    """y = max(x, 0), x: float32 [n, 2]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def batches() -> list[dict[str, Array]]:
    return [{"x": np.arange(n, dtype=np.float32)[:, None].repeat(2, 1) - i} for i, n in enumerate(SIZES)]


def checked(found: list[Any]) -> None:
    assert len(found) == len(SIZES)
    for given, outputs in zip(batches(), found, strict=True):
        np.testing.assert_array_equal(outputs[0], np.maximum(given["x"], 0))


async def each(given: list[dict[str, Array]]) -> AsyncIterator[dict[str, Array]]:
    for feeds in given:
        await asyncio.sleep(0)
        yield feeds


@pytest.fixture
def session() -> Iterator[InferenceSession]:
    made = InferenceSession(relu())
    yield made
    made.release()


def test_map__for__outputs_come_in_order_with_progress(session: InferenceSession) -> None:
    told: list[tuple[int, int | None]] = []
    checked(list(session.map(batches(), progress=lambda *counts: told.append(counts))))
    assert told == [(n, len(SIZES)) for n in range(1, len(SIZES) + 1)]


@pytest.mark.parametrize("is_async", [False, True])
def test_map__async_for__outputs_come_in_order_with_progress(session: InferenceSession, is_async: bool) -> None:
    told: list[tuple[int, int | None]] = []

    async def main() -> list[Any]:
        given: Any = each(batches()) if is_async else iter(batches())
        return [outputs async for outputs in session.map(given, ["y"], progress=lambda *n: told.append(n))]

    checked(asyncio.run(main()))
    assert told == [(n, None) for n in range(1, len(SIZES) + 1)]


def test_map__on_a_gpu__is_what_run_gives(desktop_gpu: None) -> None:
    session = InferenceSession(relu())

    async def main() -> list[Any]:
        return [outputs async for outputs in session.map(batches())]

    checked(asyncio.run(main()))
    checked(list(session.map(batches())))
    session.release()


def test_map__a_batch_that_does_not_fit__is_its_error_after_those_before(session: InferenceSession) -> None:
    given = [*batches()[:2], {"x": np.zeros(4, np.float64)}, *batches()]

    async def main() -> int:
        count = 0
        with pytest.raises(InvalidArgument):
            async for _ in session.map(given):
                count += 1
        return count

    assert asyncio.run(main()) == 2
    results = iter(session.map(given))
    assert len([next(results), next(results)]) == 2
    with pytest.raises(InvalidArgument):
        next(results)


def test_map__left_early__asks_for_no_further_batch(session: InferenceSession) -> None:
    asked: list[int] = []

    def counted() -> Iterator[dict[str, Array]]:
        for i, feeds in enumerate(batches()):
            asked.append(i)
            yield feeds

    async def main() -> None:
        results = session.map(counted()).__aiter__()
        await anext(results)
        await results.aclose()

    asyncio.run(main())
    assert asked == [0, 1]


def test_map__async_batches_in_a_for_loop__says_how(session: InferenceSession) -> None:
    with pytest.raises(TypeError, match="async for"):
        next(iter(session.map(each(batches()))))
