"""Runs of several sizes on the null device, with what plans say of sizes compared with what NumPy computes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.compiler.plan import GpuSegment, Plan
from pyruntime.device.null import NullDevice
from pyruntime.ir import HostTensor, TensorType, ValueType, evaluate
from pyruntime.kernels import Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.interpreter import interpret
from pyruntime.session.run.program import Program, Run
from pyruntime.session.run.stages import Stage, type_of
from tests.models import value_of

__all__ = ["Watched", "disagreements"]


UNIT = 16
"""Bytes that kernels move at once: an operand may have the rest of its last ones, too."""


class Watched(Program):
    """A program whose stages begin with what NumPy says, since the device answers with zeros.

    Attributes:
        truth: the value of each name in the run in progress.
        found: where the plan's sizes and numbers are not those of `truth`.
    """

    truth: Mapping[str, ValueType]
    found: list[str]

    async def _run_stage(self, stage: Stage, run: Run, sizes: Sequence[int] = ()) -> None:
        self.found += _wrong(stage.executable.plan, sizes, self.truth)
        await super()._run_stage(stage, run, sizes)
        for name in [n for n in run.values if n in self.truth]:
            kind = self.truth[name]
            if isinstance(kind, TensorType) and isinstance(run.values[name], HostTensor):
                run.values[name] = HostTensor.of(kind.value(), kind.dtype)


def disagreements(model: bytes, runs: Iterable[Mapping[str, Any]], target: Target) -> list[str]:
    """Run `model` with each of these feeds in turn; what of its plans, or of the outputs' types, NumPy contradicts."""
    graph = import_model(read_model(model)).graph
    program = Watched(graph, NullDevice(target))
    every = [n for node in graph.nodes for n in node.outputs if n]
    names = [v.name for v in graph.outputs]
    found: list[str] = []
    for feeds in runs:
        known = {n: value_of(x) for n, x in feeds.items()}
        program.truth, program.found = interpret(graph, known, every), []
        given = {n: HostTensor.of(k.value(), k.dtype) for n, k in known.items() if isinstance(k, TensorType)}
        made = asyncio.run(program.run(given, names))
        where = ", ".join(f"{n} {k}" for n, k in known.items())
        for name in names:
            got, wanted = str(type_of(made[name], "")), program.truth[name]
            if got != str(replace(wanted, name="")):
                program.found.append(f"output '{name}' is {got}, not {wanted}")
        found += [f"{where}: {text}" for text in program.found]
    program.release()
    return found


def _wrong(plan: Plan, sizes: Sequence[int], truth: Mapping[str, ValueType]) -> Iterable[str]:
    numbers = [evaluate(e, sizes) for e in plan.expressions]
    states = {name for kept in plan.kept for name in (kept.name, kept.input)}
    for step in plan.steps:
        if not isinstance(step, GpuSegment):
            continue
        for made in step.numbers:
            kind = truth.get(made.transfer.name)
            got = [e if n < 0 else numbers[n] for e, n in zip(made.elements, made.expressions, strict=True)]
            if isinstance(kind, TensorType) and got != kind.value().reshape(-1).tolist():
                yield f"'{made.transfer.name}' is {got}, not {kind.value().reshape(-1).tolist()}"
        for command in step.commands:
            for access in command.accesses:
                kind = truth.get(access.value)
                nbytes = access.nbytes if access.scaled < 0 else numbers[access.scaled]
                if not isinstance(kind, TensorType) or access.value in states:
                    continue
                if -(-nbytes // UNIT) != -(-kind.nbytes // UNIT):
                    yield f"{command.kernel} takes '{access.value}' to have {nbytes} bytes, not {kind.nbytes}"
