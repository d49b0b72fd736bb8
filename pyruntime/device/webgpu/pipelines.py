"""Compute pipelines of a GPUDevice, one for each WGSL source."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from pyruntime.device.base import Ledger
from pyruntime.device.webgpu.javascript import JsException, JsObject
from pyruntime.errors import DeviceLost, EngineError
from pyruntime.kernels.ir.fallback import without_fallback

__all__ = ["Pipelines"]


class Pipelines:
    """What has been compiled on a device.

    Args:
        web: web/gpu/device.js.
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
        self._begun: dict[str, JsObject] = {}
        self._ready: dict[str, JsObject] = {}

    def __getitem__(self, source: str) -> JsObject:
        """The GPUComputePipeline of a source, or what stands for it in a recording while it is under way."""
        known = self._known(source)
        return self._ready[known] if known in self._ready else self._begun[known]

    def _known(self, source: str) -> str:
        """The source that its pipeline is known by: an optimized kernel that exists needs no fallback kernel."""
        return source if source in self._begun or source in self._ready else without_fallback(source)

    def ask(self, source: str) -> None:
        """Begin to make the pipeline of a source, where it has not been begun; `compile` reports failures."""
        known = self._known(source)
        if known not in self._begun and known not in self._ready:
            with suppress(JsException):
                self._begin(source, soon=True)

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`. All are waited for as one promise: each that Python awaits costs it a millisecond."""
        wanted: dict[str, JsObject] = {}
        for source in dict.fromkeys(sources):
            known = self._known(source)
            if known in self._ready:
                continue
            if known not in self._begun:
                try:
                    self._begin(source)
                except JsException as error:
                    raise await self._failed("the pipeline could not be made", error) from None
                known = source
            wanted[known] = self._begun[known]
        if not wanted:
            return
        try:
            pipelines = await self._web.ready(*wanted.values())
        except JsException:
            pipelines = [await self._one(source, begun) for source, begun in wanted.items()]
        for source, pipeline in zip(wanted, pipelines, strict=True):
            self._ready[source] = pipeline
            self._begun.pop(source, None)

    def _begin(self, source: str, soon: bool = False) -> None:
        """Begin with the source's pipeline: its promise, the shader's module, and the module's text, a part of it."""
        compile_ = self._web.compileSoon if soon else self._web.compileWithFallback
        self._begun[source] = compile_(self._device, source)
        self._ledger.pipelines += 1

    async def _one(self, source: str, begun: JsObject) -> JsObject:
        """The pipeline of one source, which is forgotten where it fails."""
        try:
            return await begun.pipeline
        except JsException as error:
            if self._begun.get(source) is begun:
                del self._begun[source]
                self._ledger.pipelines -= 1
            failure = await self._failed("the pipeline could not be made", error)
            if isinstance(failure, DeviceLost):
                raise failure from None
            info = await begun.module.getCompilationInfo()
            raise EngineError(_compile_message(source, str(begun.code), info, error)) from None

    def clear(self) -> None:
        """Forget all."""
        self._begun.clear()
        self._ready.clear()


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
