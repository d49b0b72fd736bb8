"""A device that is lost with tensors on it: a run makes its outputs again; of others DeviceLost says what to do."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence

import numpy as np
import pytest

from pyruntime.device.base import Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import DeviceLost, EPFail
from pyruntime.session import InferenceSession
from pyruntime.session.api.ortvalue import OrtValue
from pyruntime.session.attempts import Attempts
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

X = {"x": np.ones((3, 4), np.float32)}


class HeldDevice(FaultyDevice):
    """A device whose answers to runs wait for `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        answer = await super().submit(recording, writes, reads, numbers)
        await self.gate.wait()
        return answer


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


async def on_gpu(session: InferenceSession) -> DeviceTensor:
    made = (await session._run_values(X, ["y"], None, {"y": None}))["y"]
    assert isinstance(made, DeviceTensor)
    return made


def test_loss__when_a_run_that_leaves_its_output_has_ended__repeats_it_on_the_new_device() -> None:
    async def main() -> None:
        first, second = HeldDevice(), FaultyDevice()
        with on_device(first, second):
            session = await InferenceSession.create(models.double())
            await on_gpu(session)
            first.gate.clear()
            late = asyncio.ensure_future(on_gpu(session))
            await asyncio.sleep(0)
            first.lost = "destroyed"
            other = await on_gpu(session)  # finds the loss, and replaces the device
            first.gate.set()
            assert (await late).device is second and other.device is second
            session.release()

    asyncio.run(main())


def test_loss__of_a_plan__tells_what_repeats_it_without_python() -> None:
    async def main() -> None:
        first, released = FaultyDevice(), []
        with on_device(first, FaultyDevice()):
            session = await InferenceSession.create(models.double())
            await session.run_async(None, X)
            assert session._program is not None
            (stage,) = session._program.roots
            stage.executable.on_release.append(lambda: released.append(stage))
            first.lost = "destroyed"
            await session.run_async(None, X)
            assert released == [stage]
            session.release()

    asyncio.run(main())


def test_loss__of_an_input_on_the_gpu__names_it_and_says_what_to_do() -> None:
    async def main() -> None:
        first, second = FaultyDevice(), FaultyDevice()
        with on_device(first, second):
            session = await InferenceSession.create(models.double())
            made = await on_gpu(session)
            first.lost = "destroyed"
            for _ in range(2):  # the run that replaces the device, and one on the new device
                with pytest.raises(DeviceLost, match=r"input 'x' was on a GPU device that was lost; feed its data"):
                    await session._run_values({"x": made}, ["y"], None)
            assert (await on_gpu(session)).device is second
            session.release()

    asyncio.run(main())


@pytest.mark.parametrize("use", ["numpy", "update", "to", "clone"])
def test_loss__of_an_ortvalue__every_use_is_device_lost(use: str) -> None:
    uses: dict[str, Callable[[OrtValue, DeviceTensor], Awaitable[object]]] = {
        "numpy": lambda value, tensor: value.numpy_async(),
        "update": lambda value, tensor: asyncio.to_thread(value.update_inplace, X["x"]),
        "to": lambda value, tensor: value.to("cpu"),
        "clone": lambda value, tensor: tensor.clone(),
    }

    async def main() -> None:
        first = FaultyDevice()
        with on_device(first):
            session = await InferenceSession.create(models.double())
            tensor = await on_gpu(session)
            first.lost = "destroyed"
            first.close()
            with pytest.raises(DeviceLost):
                await uses[use](OrtValue(tensor), tensor)

    asyncio.run(main())


def test_loss__of_a_bound_output__the_next_run_gives_it_memory_on_the_new_device() -> None:
    async def main() -> None:
        first, second = FaultyDevice(), FaultyDevice()
        with on_device(first, second):
            session = await InferenceSession.create(models.double())
            given = await on_gpu(session)
            first.lost = "destroyed"
            made = await session._run_values(X, ["y"], None, {"y": given})
            assert made["y"] is given and given.device is second
            binding = session.io_binding()
            binding.bind_cpu_input("x", X["x"])
            binding.bind_ortvalue_output("y", OrtValue(given))
            await session.run_with_iobinding_async(binding)
            (value,) = await binding.copy_outputs_to_cpu_async()
            assert value.shape == (3, 4)
            del given, made, binding
            session.release()

    asyncio.run(main())


def test_loss__of_a_host_output_bound_to_the_gpu__gets_new_memory() -> None:
    async def main() -> None:
        first, second = FaultyDevice(), FaultyDevice()
        with on_device(first, second):
            session = await InferenceSession.create(models.staged())
            x = {"x": np.ones((2, 160), np.float32)}
            made = await session._run_values(x, ["y"], None, {"y": None})
            first.lost = "destroyed"
            again = await session._run_values(x, ["y"], None, {"y": made["y"]})  # type: ignore[dict-item]
            assert again["y"].device is second  # type: ignore[union-attr]
            session.release()

    asyncio.run(main())


def test_loss__no_adapter_any_more__waiting_runs_fail_with_one_attempt() -> None:
    asked = 0

    async def none() -> NullDevice:
        nonlocal asked
        asked += 1
        for _ in range(100):  # the browser may take seconds: all runs wait by then
            await asyncio.sleep(0)
        raise EPFail("no adapter")

    async def main() -> None:
        first = HeldDevice()
        with on_device(first):
            session = await InferenceSession.create(models.double())
            await on_gpu(session)  # planned, so that all twenty are at the gate
            session._live._open = none  # type: ignore[union-attr]
            first.gate.clear()
            runs = [asyncio.ensure_future(on_gpu(session)) for _ in range(20)]
            await asyncio.sleep(0)
            first.lost = "destroyed"
            first.gate.set()
            ends = await asyncio.gather(*runs, return_exceptions=True)
            assert all(isinstance(end, DeviceLost) and "set_providers" in str(end) for end in ends), ends
            assert asked == 1
            with pytest.raises(DeviceLost, match="no adapter"):  # a later run asks again
                await session.run_async(None, X)
            assert asked == 2

    asyncio.run(main())


def test_attempts__those_who_wait_while_one_fails__fail_with_it_and_later_ones_try_again() -> None:
    made: list[int] = []

    async def one(attempts: Attempts, number: int, fails: bool) -> None:
        async with attempts.attempt():
            made.append(number)
            await asyncio.sleep(0)
            if fails:
                raise EPFail("no adapter")

    async def main() -> None:
        attempts = Attempts()
        ends = await asyncio.gather(*(one(attempts, n, True) for n in range(5)), return_exceptions=True)
        assert [str(end) for end in ends] == ["no adapter"] * 5 and made == [0]
        assert await asyncio.gather(*(one(attempts, n, False) for n in range(5, 7))) == [None, None]
        assert made == [0, 5, 6]

    asyncio.run(main())
