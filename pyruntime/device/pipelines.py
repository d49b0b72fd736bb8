"""Compute pipelines of a GPUDevice, one for each WGSL source."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from pyruntime.device.base import Ledger
from pyruntime.device.javascript import JsException, JsObject
from pyruntime.errors import DeviceLost, EngineError
from pyruntime.kernels.quick import without_quick

__all__ = ["Pipelines"]


class Pipelines:
    """What has been compiled on a device.

    Args:
        web: web/device.js.
        ledger: counts the pipelines.
        failed: the exception for a call of the device that failed.
    """

    def __init__(
        self,
        device: JsObject,
        web: JsObject,
        ledger: Ledger,
        failed: Callable[[str, JsException], Awaitable[EngineError]],
    ) -> None:
        self._device, self._web, self._ledger, self._failed = device, web, ledger, failed
        self._made: dict[str, asyncio.Future[JsObject]] = {}

    def __getitem__(self, source: str) -> JsObject:
        """The GPUComputePipeline of a source that has been compiled."""
        return self._made[self._known(source)].result()

    def _known(self, source: str) -> str:
        """The text that its pipeline is known by: what has been made whole is not begun with a quick kernel."""
        return source if source in self._made else without_quick(source)

    def ask(self, source: str) -> bool:
        """Begin to make the pipeline of a source; False where it has been begun. What fails is told by `compile`."""
        if self._known(source) in self._made:
            return False
        try:
            begun = self._begin(source)
        except JsException:
            return False
        self._keep(source, self._finish(begun, source))
        return True

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`."""
        waiting = [
            self._made.get(self._known(source)) or self._keep(source, self._compile(source))
            for source in dict.fromkeys(sources)
        ]
        # Shielded: sessions share pipelines, and one that is cancelled must not take them from another.
        for result in await asyncio.gather(*map(asyncio.shield, waiting), return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _keep(self, source: str, making: Coroutine[Any, Any, JsObject]) -> asyncio.Future[JsObject]:
        """The pipeline of a source from now on; forgotten where it fails."""
        made = self._made[source] = asyncio.ensure_future(making)

        def done(_: object) -> None:
            if (made.cancelled() or made.exception()) and self._made.get(source) is made:
                del self._made[source]

        made.add_done_callback(done)
        return made

    async def _compile(self, source: str) -> JsObject:
        try:
            begun = self._begin(source)
        except JsException as error:
            raise await self._failed("the pipeline could not be made", error) from None
        return await self._finish(begun, source)

    def _begin(self, source: str) -> JsObject:
        """The promise of the source's pipeline, the shader's module, and its text, a part of the source perhaps."""
        return self._web.compileQuickly(self._device, source)

    async def _finish(self, made: JsObject, source: str) -> JsObject:
        try:
            pipeline = await made.pipeline
        except JsException as error:
            failure = await self._failed("the pipeline could not be made", error)
            if isinstance(failure, DeviceLost):
                raise failure from None
            info = await made.module.getCompilationInfo()
            raise EngineError(_compile_message(source, str(made.code), info, error)) from None
        self._ledger.pipelines += 1
        return pipeline

    def clear(self) -> None:
        """Forget all."""
        self._made.clear()


def _compile_message(source: str, code: str, info: JsObject, error: JsException) -> str:
    """The compiler's message with the line it means, a caret under the column, and what it read with line numbers.

    Args:
        source: names the kernel. code: the part of it that was compiled, perhaps without its name.
    """
    lines = code.splitlines()
    numbered = "\n".join(f"{i:4} | {line}".rstrip() for i, line in enumerate(lines, 1))
    named = re.search(r"^// (\w+)$", source, re.M)
    name = named[1] if named else "shader"
    for message in info.messages:
        if str(message.type) == "error":
            number, column = int(message.lineNum), int(message.linePos)
            line = lines[number - 1] if 0 < number <= len(lines) else ""
            caret = " " * (column - 1) + "^"
            return f"{name}: WGSL line {number}: {message.message}\n  {line}\n  {caret}\n\n{numbered}"
    return f"{name}: the pipeline could not be made: {error.message}\n\n{numbered}"
