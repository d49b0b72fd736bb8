"""The program of a session while it is used: replaced when its device is lost, freed when no run is in it any more."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

from pyruntime.device.base import Device
from pyruntime.errors import DeviceLost, EngineError, EPFail, Fail, OrtError, OutOfMemory
from pyruntime.session.attempts import Attempts
from pyruntime.session.environment import off_loop
from pyruntime.session.run.program import Program

__all__ = ["LiveProgram", "one_of_ours"]

T = TypeVar("T")

_LONGEST = 4000
"""Characters of a message: names in a model may be of any length."""


@contextmanager
def one_of_ours(what: str) -> Iterator[None]:
    """Turn every exception of the block into one of this package.

    Raises:
        OrtError: unchanged, except that very long messages are truncated. OutOfMemory: for MemoryError.
        Fail: for any other exception.
    """
    try:
        yield
    except OrtError as error:
        text = str(error)
        if len(text) > _LONGEST and not isinstance(error, EngineError):  # these quote a whole shader
            raise type(error)(f"{text[:_LONGEST]} ...") from error
        raise
    except MemoryError as error:
        raise OutOfMemory(f"{what}: Python has no memory left; use a smaller model or smaller inputs") from error
    except RecursionError as error:
        raise Fail(f"{what}: the model is nested too deeply for Python; lower SessionOptions.limits.nesting") from error
    except Exception as error:  # boundary: a request: told as a bug
        raise Fail(
            f"{what} failed with {type(error).__name__}: {error}; this is a bug of pyruntime, please report it"
        ) from error


class LiveProgram:
    """A program that survives its device.

    Args:
        program: the program to begin with.
        open_device: gives a device; a new one when the last is lost. Raises EPFail.
        make: a program on a device.
        warn: is told of every loss.
    """

    def __init__(
        self,
        program: Program,
        open_device: Callable[[], Awaitable[Device]],
        make: Callable[[Device], Program],
        warn: Callable[[str], None],
    ) -> None:
        self.current = program
        self._open = open_device
        self._make = make
        self._warn = warn
        self._users = 0
        self._closed = False
        self._rebuilding = Attempts()

    async def use(self, work: Callable[[Program], Awaitable[T]]) -> T:
        """Await `work`; once more on a new device where the device is lost meanwhile.

        Raises:
            DeviceLost: there is no other device, or it was lost too.
        """
        if self.current.device.turn is None:
            return await self._used(work)
        return await off_loop(self._in_turn(work))

    async def _in_turn(self, work: Callable[[Program], Awaitable[T]]) -> T:
        with self.current.device.turn or nullcontext():
            return await self._used(work)

    async def _used(self, work: Callable[[Program], Awaitable[T]]) -> T:
        if self._closed:
            raise Fail("the session is released; create it again")
        self._users += 1
        try:
            return await self._use(work)
        finally:
            self._users -= 1
            self._free_if_unused()

    async def _use(self, work: Callable[[Program], Awaitable[T]]) -> T:
        program = self.current
        try:
            return await work(program)
        except Exception as error:  # boundary: raised unless the device is gone
            # What fails on a device that is gone says nothing about the model, whatever the exception is.
            if not _is_lost(program.device):
                raise
            cause = str(error)  # the exception itself would hold this frame, and with it the program
        await self._replace(program, cause)
        program = self.current
        try:
            return await work(program)
        except Exception as error:  # boundary: raised unless the device is gone
            if not _is_lost(program.device):
                raise
            raise DeviceLost(
                f"the GPU device was lost, and the new one too while the model ran again: {error}; "
                "run it later, or create the session with providers=['CPUExecutionProvider']"
            ) from error

    async def _replace(self, lost: Program, cause: str) -> None:
        """A program on a new device in place of `lost`, unless another run did that already."""
        async with self._rebuilding.attempt():
            if self.current is not lost:
                return
            why = lost.device.lost or cause
            lost.release()
            lost.device.close()
            try:
                device = await self._open()
            except EPFail as error:
                raise DeviceLost(
                    f"the GPU device was lost ({why}) and there is no other: {error}. Reload the page, or go on "
                    "without a GPU: session.set_providers(['CPUExecutionProvider']), or the config entry "
                    "'pyruntime.cpu_after_device_loss' = '1'"
                ) from error
            self.current = self._make(device)
            text = f"the GPU device was lost ({why}); the model was prepared again on a new one"
            self._warn(text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def release(self) -> None:
        """Free everything on the device, at once or when the last run has left; from any thread."""
        self._closed = True
        turn = self.current.device.turn
        if turn is None:
            self._free_if_unused()
        else:
            turn.later(self._free_if_unused)

    def _free_if_unused(self) -> None:
        if self._closed and not self._users:
            self.current.release()


def _is_lost(device: Device) -> bool:
    return device.lost is not None
