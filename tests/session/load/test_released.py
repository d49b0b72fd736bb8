"""A released or deleted session leaves nothing: no cycle of references waits for Python's collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.device.base import Raw, Read, Write
from pyruntime.errors import Fail, OrtError
from pyruntime.onnx.formats.source import MemorySource
from pyruntime.session import InferenceSession, RunOptions, SessionOptions
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

_F = TensorProto.FLOAT


def branches() -> bytes:
    """y = x + w where the sum of x is positive, else x - w: subgraphs that use an outer weight."""
    sides = [
        helper.make_graph(
            [helper.make_node(op, ["x", "w"], ["r"])], op, [], [helper.make_tensor_value_info("r", _F, None)]
        )
        for op in ("Add", "Sub")
    ]
    graph = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["c"]),
            helper.make_node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1]),
        ],
        "g",
        [helper.make_tensor_value_info("x", _F, ["n", 4])],
        [helper.make_tensor_value_info("y", _F, None)],
        [
            numpy_helper.from_array(np.ones((1, 4), np.float32), "w"),
            numpy_helper.from_array(np.zeros((), np.float32), "zero"),
        ],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


CASES: dict[str, tuple[Callable[[], bytes], tuple[tuple[int, ...], ...]]] = {
    "dynamic sizes": (models.double, ((3, 4), (5, 4), (7, 4))),
    "stages and computed weights": (models.staged, ((2, 160), (3, 160))),
    "host step between segments": (models.segmented, ((3, 2, 2), (4, 2, 2))),
    "loop": (lambda: models.branching(3), ((2,),)),
    "branches": (branches, ((2, 4), (3, 4))),
}


async def _run(session: InferenceSession, shapes: tuple[tuple[int, ...], ...], terminate: bool = False) -> None:
    for shape in shapes:
        options = RunOptions()
        options.terminate = terminate
        try:
            await session.run_async(None, {"x": np.ones(shape, np.float32)}, run_options=options)
        except Fail:
            assert terminate


async def _misuse(session: InferenceSession, shapes: tuple[tuple[int, ...], ...]) -> None:
    for feed in ({}, {"x": np.ones((2, 3, 4, 5), np.float32)}, {"x": np.ones(shapes[0], np.int64)}):
        with pytest.raises(OrtError):
            await session.run_async(None, feed)


async def _look(session: InferenceSession, shapes: tuple[tuple[int, ...], ...]) -> None:
    await _run(session, shapes)
    session.explain().to_dict()
    session.summary()
    session._repr_html_()
    await session.profile_async({"x": np.ones(shapes[0], np.float32)}, 1)


async def _abort(session: InferenceSession, shapes: tuple[tuple[int, ...], ...]) -> None:
    await _run(session, shapes[:1])
    await _run(session, shapes, terminate=True)


async def _interrupt(session: InferenceSession, shapes: tuple[tuple[int, ...], ...]) -> None:
    for shape in shapes:
        options = RunOptions()
        run = asyncio.ensure_future(session.run_async(None, {"x": np.ones(shape, np.float32)}, run_options=options))
        await asyncio.sleep(0)
        options.terminate = True
        try:
            await run
        except Fail:
            pass
        finally:
            del run  # its exception has this frame in its traceback


USES: dict[str, Callable[[InferenceSession, tuple[tuple[int, ...], ...]], Any]] = {
    "run": _run,
    "aborted": _abort,
    "interrupted": _interrupt,
    "misused": _misuse,
    "explained and profiled": _look,
}


class _SlowDevice(FaultyDevice):
    """A device whose answers take a turn of the event loop each."""

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        await asyncio.sleep(0.001)  # a slow device, on purpose
        return await super().submit(recording, writes, reads, numbers)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Python's collector of cycles rests."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("place", ["device", "NumPy"])
@pytest.mark.parametrize("end", ["released and kept", "deleted"])
def test_session__released_or_deleted__frees_the_model_at_once(case: str, use: str, place: str, end: str) -> None:
    make, shapes = CASES[case]
    device, source = _SlowDevice() if use == "interrupted" else FaultyDevice(), MemorySource(make())
    bytes_held, kept = weakref.ref(source), []

    async def used(model: MemorySource) -> None:
        session = await InferenceSession.create(model)
        await USES[use](session, shapes)
        if end != "deleted":
            session.release()
            kept.append(session)

    with on_device(device) if place == "device" else nullcontext():
        work = used(source)
        del source
        asyncio.run(work)
    del work
    assert bytes_held() is None
    assert device.ledger.live == {} and not device.recordings


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("lose", [False, True], ids=["failing", "lost"])
@pytest.mark.parametrize("case", ["dynamic sizes", "stages and computed weights", "host step between segments"])
def test_session__each_device_call_fails__frees_the_model_at_once(case: str, lose: bool) -> None:
    make, shapes = CASES[case]

    async def used(model: MemorySource) -> None:
        try:
            session = await InferenceSession.create(model)
            try:
                await _run(session, shapes)
            finally:
                session.release()
        except OrtError:
            pass

    for number in range(60):
        devices, source = (FaultyDevice(number, lose), FaultyDevice()), MemorySource(make())
        bytes_held = weakref.ref(source)
        with on_device(*devices), pytest.warns(RuntimeWarning) if lose else nullcontext():
            work = used(source)
            del source
            asyncio.run(work)
        del work
        assert bytes_held() is None, f"call {number}, {devices[0].failed}"
        assert all(d.ledger.live == {} and not d.recordings for d in devices), f"call {number}"
        if devices[0].count <= number + 1:
            break


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("place", ["device", "NumPy"])
def test_creation__cancelled_or_refused__frees_the_model_at_once(place: str) -> None:
    cancelled = SessionOptions()
    cancelled.set_load_cancellation_flag(True)
    refused = SessionOptions()
    refused.add_initializer("absent", np.zeros(1, np.float32))

    async def used(model: MemorySource, options: SessionOptions) -> None:
        with pytest.raises(OrtError):
            await InferenceSession.create(model, options)

    for options in (cancelled, refused):
        source = MemorySource(models.staged())
        bytes_held = weakref.ref(source)
        with on_device(FaultyDevice()) if place == "device" else nullcontext():
            work = used(source, options)
            del source
            asyncio.run(work)
        del work
        assert bytes_held() is None


def test_session__released__knows_its_inputs_and_outputs_and_runs_no_more() -> None:
    session = InferenceSession(models.double())
    session.release()
    session.release()
    assert [a.name for a in session.get_inputs()] == ["x"] and [a.name for a in session.get_outputs()] == ["y"]
    assert "x tensor(float)" in repr(session)
    for call in (session.explain, session.summary, lambda: session.run(None, {"x": np.ones((1, 4), np.float32)})):
        with pytest.raises(Fail, match="the session is released"):
            call()


@pytest.mark.usefixtures("uncollected")
def test_session__released__frees_the_files_of_its_weights() -> None:
    weight = numpy_helper.from_array(np.ones((1, 4), np.float32), "w")
    data, options = weight.raw_data, SessionOptions()
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("length", str(len(data)))):
        weight.external_data.add(key=key, value=value)
    values = [helper.make_tensor_value_info(name, _F, ["n", 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
    session = InferenceSession(model, options)
    session.run(None, {"x": np.ones((2, 4), np.float32)})
    held = weakref.ref(session._files["w.bin"])
    options.external_files.clear()
    session.release()
    assert held() is None


def test_stage__cannot_be_made__leaves_no_weights() -> None:
    async def failed(device: FaultyDevice, place: int) -> bool:
        session = await InferenceSession.create(models.staged())
        try:
            device.fail_at = device.count + place
            await session.run_async(None, {"x": np.ones((2, 160), np.float32)})
        except OrtError:
            program = session._program
            assert program is not None and (program.roots or not program.cache.weights.nbytes), f"call {place}"
            return True
        finally:
            session.release()
        return False

    for place in range(60):
        with on_device(device := FaultyDevice()):
            if not asyncio.run(failed(device, place)):
                assert place > 5
                return


def test_stages__all_forgotten__leave_no_weights() -> None:
    async def main(device: FaultyDevice) -> None:
        session = await InferenceSession.create(models.staged())
        for rows in (2, 3):
            await session.run_async(None, {"x": np.ones((rows, 160), np.float32)})
        program = session._program
        assert program is not None and program.cache.weights.nbytes
        program.cache.trim(0)
        program.cache.weights.sweep()
        assert not program.cache.weights.nbytes
        session.release()
        assert device.ledger.live == {}

    with on_device(device := FaultyDevice()):
        asyncio.run(main(device))
