"""What a session may use: limits that are on by default and can be set."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

from pyruntime.errors import Fail, InvalidArgument, OutOfMemory
from pyruntime.onnx.reader import Limits as ReaderLimits
from pyruntime.ops.interpreter import Limits as HostLimits
from pyruntime.session.interruption import run_terminated

__all__ = ["PREFIX", "ResourceLimits", "deadline", "too_long"]

PREFIX = "pyruntime.limits."
"""Config entries of this prefix and a field's name set the field."""

_MIB, _GIB = 1 << 20, 1 << 30
_GPU_BYTES = 8 * _GIB


@dataclass(slots=True)
class ResourceLimits:
    """Limits of a session: `SessionOptions.limits`, or config entries 'pyruntime.limits.NAME'.

    Attributes:
        model_bytes: size of the model file, without external data.
        messages: nodes, attributes, tensors, types and other messages in the file.
        nesting: messages within messages; a subgraph takes three.
        nodes: of the graph and its subgraphs, functions inlined.
        gpu_bytes: what weights and plans of the session take on the GPU, predicted before it is allocated; the default
            is no more than the memory of the device, where the browser says what it has.
        node_bytes: outputs of one node that runs on the host.
        loop_trips: trips of one Loop.
        body_depth: bodies of control flow within bodies, while they run.
        run_seconds: wall time of a run; seen between nodes, loop trips and submissions to the GPU, and up to a second
            later while the GPU works.
        cached_plans: input signatures whose plans are cached; the least recently used one is evicted first.
    """

    model_bytes: int = 64 * _GIB
    messages: int = 500_000
    nesting: int = 100
    nodes: int = 200_000
    gpu_bytes: int = _GPU_BYTES
    node_bytes: int = 2 * _GIB
    loop_trips: int = 1_000_000
    body_depth: int = 64
    run_seconds: float = 600.0
    cached_plans: int = 16

    def merged(self, entries: Mapping[str, str]) -> ResourceLimits:
        """Merge the config entries that set limits into these.

        Raises:
            InvalidArgument: an entry names no limit, or a limit is not a positive number.
        """
        known = {f.name for f in fields(self)}
        given: dict[str, float] = {}
        for key, value in entries.items():
            if not key.startswith(PREFIX):
                continue
            name = key.removeprefix(PREFIX)
            if name not in known:
                raise InvalidArgument(f"config entry '{key}': the limits are {', '.join(sorted(known))}")
            try:
                given[name] = float(value) if name == "run_seconds" else int(value)
            except ValueError:
                raise InvalidArgument(f"config entry '{key}': expected a number, got {value!r}") from None
        merged = replace(self, **given)  # type: ignore[arg-type]
        for field in fields(merged):
            value = getattr(merged, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise InvalidArgument(f"limit `{field.name}`: expected a number above 0, got {value!r}")
        return merged

    def within(self, memory: float) -> ResourceLimits:
        """Return these limits on a device of so many bytes of memory; `gpu_bytes` is no more, unless it was set."""
        return replace(self, gpu_bytes=int(min(_GPU_BYTES, memory))) if self.gpu_bytes == _GPU_BYTES else self

    @property
    def reader(self) -> ReaderLimits:
        """Limits of the reader and the importer."""
        return ReaderLimits(self.model_bytes, self.messages, self.nesting, self.nodes)

    @property
    def host(self) -> HostLimits:
        """Limits of the interpreter."""
        return HostLimits(self.loop_trips, self.node_bytes, self.body_depth)

    def check_weights(self, nbytes: int) -> None:
        """Refuse a model whose weights take `nbytes` on the GPU. Raises OutOfMemory."""
        if nbytes > self.gpu_bytes:
            raise OutOfMemory(
                f"the model's weights take {nbytes:,} bytes on the GPU; the limit `gpu_bytes` is {self.gpu_bytes:,}. "
                f"{how_to_raise('gpu_bytes')} where the device has more memory, use a smaller model, or the "
                "CPUExecutionProvider"
            )

    def check_gpu(self, needed: int, held: int) -> None:
        """Refuse `needed` more bytes on the GPU where the session holds `held`. Raises OutOfMemory."""
        if needed + held > self.gpu_bytes:
            raise OutOfMemory(
                f"these input shapes need {needed:,} bytes on the GPU and the session holds {held:,}; the limit "
                f"`gpu_bytes` is {self.gpu_bytes:,}. {how_to_raise('gpu_bytes')} where the device has more memory, use "
                "smaller inputs, or the CPUExecutionProvider"
            )

    def check_host(self, node: str, nbytes: int) -> None:
        """Refuse a node whose outputs on the host take `nbytes`. Raises OutOfMemory."""
        if nbytes > self.node_bytes:
            raise OutOfMemory(
                f"{node}: outputs of {nbytes:,} bytes on the host, the limit `node_bytes` is {self.node_bytes:,}. "
                f"{how_to_raise('node_bytes')}"
            )


def how_to_raise(name: str) -> str:
    """Return the sentence that says how to raise limit `name`."""
    return f"Raise it with `options.limits.{name} = ...` or the config entry '{PREFIX}{name}'"


def deadline(seconds: float, terminated: Callable[[], bool], released: Callable[[], bool]) -> Callable[[], None]:
    """Return a check that raises Fail: the run took more than `seconds`, was terminated, or lost its session."""
    end = time.monotonic() + seconds

    def check() -> None:
        if terminated():
            raise run_terminated()
        if released():
            raise Fail("the run was ended: its session was released")
        if time.monotonic() > end:
            raise too_long(seconds)

    return check


def too_long(seconds: float) -> Fail:
    """Return the exception of a run that took more than `seconds`."""
    return Fail(f"the run took more than {seconds:g} s, the limit `run_seconds`. {how_to_raise('run_seconds')}")
