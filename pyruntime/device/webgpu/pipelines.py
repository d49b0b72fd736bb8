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
    """The compiled pipelines of a device.

    Args:
        web: web/gpu/device.js.
        ledger: its `pipelines` is updated.
        failed: returns the exception for a failed call, given a description and JavaScript's error.
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
        """Return the GPUComputePipeline of a source; while it compiles, an object that stands for it in recordings."""
        known = self._known(source)
        return self._ready[known] if known in self._ready else self._begun[known]

    def _known(self, source: str) -> str:
        """Return the key of a source: that of the optimized kernel alone, if it was compiled without a fallback."""
        return source if source in self._begun or source in self._ready else without_fallback(source)

    def ask(self, source: str) -> None:
        """Start to compile the pipeline of a source, unless that was done before; `compile` reports errors."""
        known = self._known(source)
        if known not in self._begun and known not in self._ready:
            with suppress(JsException):
                self._begin(source, soon=True)

    async def compile(self, sources: Sequence[str]) -> None:
        """See `Device.compile`. Awaits one promise for all pipelines: each promise that Python awaits takes a
        millisecond.
        """
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
        """Start to compile a source's pipeline; keep the pipeline's promise, the shader module and its WGSL."""
        compile_ = self._web.compileSoon if soon else self._web.compileWithFallback
        self._begun[source] = compile_(self._device, source)
        self._ledger.pipelines += 1

    async def _one(self, source: str, begun: JsObject) -> JsObject:
        """Await the pipeline of one source; after a failure a later request compiles it again."""
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
        """Release all pipelines."""
        self._begun.clear()
        self._ready.clear()


def _compile_message(source: str, code: str, info: JsObject, error: JsException) -> str:
    """Format the compiler's message with its source line, a caret under the column, and the numbered source.

    Args:
        source: WGSL with the kernel's name. code: the part of it that was compiled.
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
