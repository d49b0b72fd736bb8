"""Compute pipelines, one for each WGSL source, compiled in threads while Python continues planning."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from pyruntime.device.base import Ledger
from pyruntime.device.desktop.ended_loops import EndedLoops
from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.errors import EngineError
from pyruntime.kernels.wgsl.module import CUSTOM

__all__ = ["Pipelines"]

THREADS = 8
"""Pipelines compiled at a time: 60 take 0.14 to 0.36 s with 8 threads, and 1.2 s with one (H200)."""

_COMMENT = re.compile(r"//.*|/\*[\s\S]*?\*/")
_BINDING = re.compile(r"@binding\(\s*(\d+)u?\s*\)[^;]*?\bvar\s*<\s*(storage|uniform)\b\s*(?:,\s*(\w+))?")
_NAME = re.compile(r"^// (\w+)$", re.M)


class Pipelines:
    """The compiled pipelines of a device.

    Args:
        checks: keep bounds checks and loop guards in generated kernels too; custom kernels always have them.
        ledger: its `pipelines` is updated.
        ended: where kernels report loops that were ended early; None: they do not.
    """

    def __init__(
        self,
        implementation: Implementation,
        device: GpuObject,
        ledger: Ledger,
        checks: bool,
        ended: EndedLoops | None = None,
    ) -> None:
        self._implementation, self._device, self._ledger, self._checks = implementation, device, ledger, checks
        self._ended = ended
        self._layouts: dict[tuple[tuple[int, str], ...], tuple[GpuObject, GpuObject]] = {}
        self._made: dict[str, Future[GpuObject]] = {}
        self._threads = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "pyruntime-pipelines")

    def __getitem__(self, source: str) -> GpuObject:
        """Return the pipeline of a source for which `wait` has returned."""
        return self._made[source].result()

    def group_layout(self, source: str) -> GpuObject:
        """Return the bind group layout of a shader."""
        return self._layout(source)[0]

    def _layout(self, source: str) -> tuple[GpuObject, GpuObject]:
        """Return the bind group layout and the pipeline layout that match a shader's declarations."""
        found = _BINDING.findall(_COMMENT.sub(" ", source))
        key = tuple((int(binding), _type(space, access)) for binding, space, access in found)
        if key not in self._layouts:
            visible = self._implementation.api.ShaderStage.COMPUTE
            entries = [{"binding": n, "visibility": visible, "buffer": {"type": kind}} for n, kind in key]
            group = self._device.create_bind_group_layout(entries=entries)
            groups = [group, self._ended.layout] if self._ended is not None else [group]
            self._layouts[key] = group, self._device.create_pipeline_layout(bind_group_layouts=groups)
        return self._layouts[key]

    def ask(self, source: str) -> None:
        """Start to compile a source, unless that was done before; `wait` reports errors."""
        if source not in self._made:
            self._ledger.pipelines += 1
            self._made[source] = self._threads.submit(self._make, source)

    def _make(self, source: str) -> GpuObject:
        trusted = not self._checks and CUSTOM not in source
        code = source if self._ended is None else self._ended.source(source)
        module = self._implementation.module(self._device, code, trusted)
        compute = {"module": module, "entry_point": "main"}
        return self._device.create_compute_pipeline(layout=self._layout(source)[1], compute=compute)

    def wait(self, sources: Sequence[str]) -> None:
        """Wait for the pipelines of sources that were passed to `ask`.

        Raises:
            EngineError: a source does not compile; has the compiler's message and the source. A later `ask` tries
                again.
        """
        for source in sources:
            try:
                self._made[source].result()
            except Exception as error:  # noqa: BLE001  # boundary: the package has exceptions of many classes
                if self._made.pop(source, None) is not None:
                    self._ledger.pipelines -= 1
                raise EngineError(_message(source, error)) from None

    def close(self) -> None:
        """Wait for running compilations, cancel the others, and release all pipelines."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._made.clear()
        self._layouts.clear()


def _type(space: str, access: str) -> str:
    if space == "uniform":
        return space
    return "storage" if access == "read_write" else "read-only-storage"


def _message(source: str, error: BaseException) -> str:
    """Format the compiler's message, which names line and column, and the source with line numbers."""
    numbered = "\n".join(f"{i:4} | {line}".rstrip() for i, line in enumerate(source.splitlines(), 1))
    named = _NAME.search(source)
    return f"{named[1] if named else 'shader'}: the pipeline could not be made: {str(error).strip()}\n\n{numbered}"
