"""Where the time goes: timings of nodes and kernels, as Chrome-trace JSON and as tables.

The trace has onnxruntime's event names and keys, so its viewers and scripts read it:
https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyruntime.compiler.plan import Assignment, GpuSegment, HostStep, Plan
from pyruntime.compiler.repeated import order_of
from pyruntime.device.base import Measured
from pyruntime.ir import Node, TensorType, ValueType, evaluate, expression, is_dim
from pyruntime.session.environment import CPU, WEBGPU

__all__ = ["Recorder", "Timing", "Trace"]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long one kernel, or one node on the host, took.

    Attributes:
        kernel: name of the GPU kernel; empty on the host.
        begin, duration: seconds; `begin` as `time.perf_counter` counts.
        clock: 'gpu' for timestamps of the GPU, 'host' for wall time.
        flops: floating-point operations. nbytes: of all tensors the kernel binds, each once.
    """

    node: str
    op_type: str
    kernel: str
    begin: float
    duration: float
    clock: str
    outputs: tuple[ValueType | None, ...] = ()
    index: int = 0
    flops: int = 0
    nbytes: int = 0

    @property
    def provider(self) -> str:
        """The execution provider that ran it."""
        return WEBGPU if self.kernel else CPU


@dataclass(slots=True)
class Recorder:
    """Collects timings of a run, on the GPU and on the host."""

    timings: list[Timing] = field(default_factory=list)

    def step(self, plan: Plan, number: int, began: float, measured: Measured | None, sizes: Sequence[int] = ()) -> None:
        """Record a step of a plan; `PlanRuns.run` calls it after each."""
        step = plan.steps[number]
        if isinstance(step, HostStep):
            self._host(step.node, step.outputs, began, time.perf_counter() - began)
        elif measured is not None:
            self._segment(plan, step, began, measured, sizes)

    def _segment(self, plan: Plan, step: GpuSegment, began: float, measured: Measured, sizes: Sequence[int]) -> None:
        numbers = plan.numbers(sizes) if plan.sizes else ()
        order = order_of(len(step.commands), step.repeated, lambda r: r.trips(numbers))
        spans: dict[int, list[tuple[int, int]]] = {}
        for at, span in zip(order, measured.spans, strict=True):
            spans.setdefault(at, []).append(span)
        for at, each in sorted(spans.items()):
            command, begin, duration = step.commands[at], each[0][0], sum(took for _, took in each)
            owner: Assignment = plan.assignments[command.node]
            start, took = began + begin * 1e-9, duration * 1e-9
            work, nbytes = (len(each) * n for n in (command.flops, sum(r.nbytes for r in command.regions)))
            outputs = tuple(_of_run(kind, sizes) for kind in owner.outputs)
            shown = (owner.name, owner.op_type, command.kernel, start, took, measured.clock, outputs, command.node)
            self.timings.append(Timing(*shown, work, nbytes))

    def node(self, node: Node, outputs: Sequence[ValueType | None], seconds: float) -> None:
        """Record a node that the interpreter ran (`RunContext.on_node`)."""
        self._host(node, tuple(outputs), time.perf_counter() - seconds, seconds)

    def _host(self, node: Node, outputs: tuple[ValueType | None, ...], began: float, seconds: float) -> None:
        title = str(getattr(node.op, "title", node.op.op_type))
        name = node.name or next(filter(None, node.outputs), "")
        self.timings.append(Timing(name, title, "", began, seconds, "host", outputs, len(self.timings)))


class Trace:
    """Events of a session since it was made, in onnxruntime's format: times in microseconds."""

    def __init__(self, prefix: str) -> None:
        self.began = time.perf_counter()
        self.began_ns = time.time_ns()
        self.prefix = prefix
        self.events: list[dict[str, Any]] = []

    def session(self, name: str, began: float) -> None:
        """Add an event of the session itself, from `began` until now."""
        self._add("Session", name, began, time.perf_counter() - began, {})

    def run(self, timings: Sequence[Timing], began: float) -> None:
        """Add the nodes and kernels of a run."""
        grouped: dict[tuple[int, str, str], list[Timing]] = {}
        for timing in timings:
            grouped.setdefault((timing.index, timing.node, timing.op_type), []).append(timing)
        for group in grouped.values():
            self._node(group)
        self.session("model_run", began)

    def _node(self, group: list[Timing]) -> None:
        first = group[0]
        total = sum(t.duration for t in group)
        tensors = [t for t in first.outputs if isinstance(t, TensorType)]
        self._add(
            "Node",
            f"{first.node}_kernel_time",
            first.begin,
            total,
            {
                "op_name": first.op_type,
                "provider": first.provider,
                "node_index": str(first.index),
                "output_type_shape": [{t.dtype.onnx_name: list(t.shape)} for t in tensors],
                "output_size": str(sum(t.nbytes for t in tensors)),
                "clock": first.clock,
            },
        )
        for timing in group:
            if timing.kernel:
                self._add("Kernel", timing.kernel, timing.begin, timing.duration, {"node": timing.node}, thread=1)

    def _add(
        self, category: str, name: str, began: float, seconds: float, args: dict[str, Any], thread: int = 0
    ) -> None:
        self.events.append(
            {
                "cat": category,
                "pid": os.getpid(),
                "tid": thread,
                "dur": round(seconds * 1e6, 3),
                "ts": round((began - self.began) * 1e6, 3),
                "ph": "X",
                "name": name,
                "args": args,
            }
        )

    def write(self) -> str:
        """Write the file `<prefix>_<time>.json`; returns its name."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(now))
        name = f"{self.prefix}_{stamp}_{int(now * 1000) % 1000:03d}.json"
        with open(name, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(e) for e in self.events) + "\n]\n")
        return name


def _of_run(kind: ValueType, sizes: Sequence[int]) -> ValueType:
    """The type in a run of these dynamic dimensions."""
    if not isinstance(kind, TensorType) or not any(map(is_dim, kind.shape)):
        return kind
    return kind.with_shape(*(evaluate(expression(d), sizes) for d in kind.shape))
