"""Runs that overlap, on a device that answers when it is told: none gets at memory that another still needs.

Runs of one session share its arena. One GPU segment is queued whole, so such runs may overlap; what is not queued in
one go must have the arena to itself. Tensors that stay on the GPU are lent to a run for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

import pyruntime
from pyruntime.device.base import Measured, Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.session import OrtValue
from pyruntime.session.run.profiling import Recorder
from tests.session.doubles import on_device
from tests.session.models import double, segmented

SHAPE = (2, 2, 2)
KIND = TensorType(DType.FLOAT, SHAPE)


class SlowDevice(NullDevice):
    """Answers a submit when `go` is set, and notes when the work of each call begins and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()
        self.log: list[str] = []

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        self.log.append("queued")
        answers = await super().submit(recording, writes, reads, numbers)
        await self.go.wait()
        self.log.append("answered")
        return answers

    async def measure(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> Measured:
        self.log.append("measuring")
        await self.go.wait()
        answers = await NullDevice.submit(self, recording, writes, reads)
        self.log.append("measured")
        return Measured(answers, [(0, 0)] * len(self.recordings[recording]), "host")


def played(scene: Callable[[SlowDevice], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await scene(SlowDevice())

    asyncio.run(run())


async def opened(device: NullDevice, model: bytes) -> Any:
    with on_device(device):
        return await pyruntime.InferenceSession.create(model)


async def tensor(device: NullDevice) -> OrtValue:
    return OrtValue(await DeviceTensor.upload(HostTensor.of(np.ones(SHAPE, np.float32), DType.FLOAT), device))


def buffer(value: OrtValue) -> int:
    held = value.current()
    assert isinstance(held, DeviceTensor)
    return held.buffer


async def until(work: Awaitable[Any]) -> asyncio.Future[Any]:
    """The work, as far as it gets by itself."""
    begun = asyncio.ensure_future(work)
    for _ in range(20):
        await asyncio.sleep(0)
    return begun


def bound(session: Any, inputs: dict[str, OrtValue], outputs: dict[str, OrtValue]) -> Any:
    """A run with these bindings."""
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    return session.run_with_iobinding_async(binding)


def bound_buffers(device: NullDevice, last: int = 1) -> list[set[int]]:
    """Buffers of each command of the last recordings that have any."""
    recordings = [r for r in device.recordings.values() if r][-last:]
    return [{part.buffer for part in command.storage} for commands in recordings for command in commands]


def measured(session: Any, x: dict[str, Any]) -> Any:
    return session._run_values(x, ["y"], None, None, Recorder())


def test_overlapping_runs__while_one_is_measured__are_not_queued() -> None:
    """It submits dispatch by dispatch: others in between would overwrite its values."""

    async def scene(device: SlowDevice) -> None:
        session, x = await opened(device, double(SHAPE)), {"x": np.ones(SHAPE, np.float32)}
        await session.run_async(None, x)
        device.go.clear()
        device.log.clear()
        runs = [await until(measured(session, x)), *[await until(session.run_async(None, x)) for _ in range(2)]]
        assert device.log == ["measuring"]
        device.go.set()
        await asyncio.gather(*runs)
        assert device.log[:3] == ["measuring", "measured", "queued"]

    played(scene)


def test_overlapping_runs__before_one_is_measured__are_waited_for() -> None:
    """They may be waiting for the bytes of a large input, and be queued at any time."""

    async def scene(device: SlowDevice) -> None:
        session, x = await opened(device, double(SHAPE)), {"x": np.ones(SHAPE, np.float32)}
        await session.run_async(None, x)
        device.go.clear()
        device.log.clear()
        runs = [*[await until(session.run_async(None, x)) for _ in range(2)], await until(measured(session, x))]
        assert device.log == ["queued", "queued"]
        device.go.set()
        await asyncio.gather(*runs)
        assert device.log == ["queued", "queued", "answered", "answered", "measuring", "measured"]

    played(scene)


def test_tensor__input_of_a_run_while_another_exchanges_it__keeps_its_memory_for_both_segments() -> None:
    async def scene(device: SlowDevice) -> None:
        two_segments, one = await opened(device, segmented()), await opened(device, double(SHAPE))
        value, other = await tensor(device), await tensor(device)
        for session in (two_segments, one):
            await bound(session, {"x": value}, {"y": other})
        read = buffer(value)
        device.go.clear()
        reader = await until(bound(two_segments, {"x": value}, {"y": other}))
        device.go.set()
        await bound(one, {"x": value}, {"y": value})
        assert buffer(value) != read
        gc.collect()
        made = [await tensor(device) for _ in range(3)]
        assert read not in map(buffer, made), "the reader's second segment would read another tensor"
        await reader
        gc.collect()
        assert buffer(await tensor(device)) == read, "no run has it any more"

    played(scene)


def test_tensor__output_of_a_run_while_another_reads_it__is_not_written_under_it() -> None:
    async def scene(device: SlowDevice) -> None:
        two_segments, one = await opened(device, segmented()), await opened(device, double(SHAPE))
        value, other, third = [await tensor(device) for _ in range(3)]
        read = buffer(value)
        device.go.clear()
        reader = await until(bound(two_segments, {"x": value}, {"y": other}))
        writer = await until(bound(one, {"x": third}, {"y": value}))
        assert not any(read in buffers for buffers in bound_buffers(device)), "written before the reader has read it"
        device.go.set()
        await asyncio.gather(reader, writer)
        assert buffer(value) != read, "and has the writer's result at the end"

    played(scene)


def test_tensor__output_of_two_runs_at_once__is_written_by_each_in_memory_of_its_own() -> None:
    async def scene(device: SlowDevice) -> None:
        session = await opened(device, double(SHAPE))
        x, y = await tensor(device), await tensor(device)
        device.go.clear()
        runs = [await until(bound(session, {"x": x}, {"y": y})) for _ in range(2)]
        first, second = bound_buffers(device, last=2)
        assert buffer(x) in first & second
        assert buffer(y) in first - second
        device.go.set()
        await asyncio.gather(*runs)

    played(scene)


def pair() -> bytes:
    """y = a + b, z = a - b."""
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Sub", ["a", "b"], ["z"])]
    a, b, y, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "abyz")
    graph = helper.make_graph(nodes, "pair", [a, b], [y, z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_tensor__two_inputs_and_two_outputs_of_a_run__binds_no_buffer_twice() -> None:
    async def scene(device: SlowDevice) -> None:
        session, value = await opened(device, pair()), await tensor(device)
        before = buffer(value)
        await bound(session, {"a": value, "b": value}, {"y": value, "z": value})
        add, sub = bound_buffers(device)
        assert len(add) == len(sub) == 3 and len(add & sub) == 2 and before in add & sub
        assert buffer(value) == next(iter(sub - add)), "the last output's result is what it holds"

    played(scene)


def test_tensor__collected_while_it_is_read_back__is_not_reused_before_that_is_done() -> None:
    async def scene(device: SlowDevice) -> None:
        value = await tensor(device)
        held, read = value.current(), buffer(value)
        assert isinstance(held, DeviceTensor)
        device.go.clear()
        download = await until(held.download())
        (fresh,) = await DeviceTensor.allocate([KIND], device)
        held.exchange(fresh)
        del fresh
        gc.collect()
        assert buffer(await tensor(device)) != read
        device.go.set()
        await download

    played(scene)
