"""Inputs on the device, moved into the memory that a plan expects, and the outputs that stay in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.compiler.plan import RunRows
from pyruntime.device.tensor import DeviceTensor, Move
from pyruntime.ir import HostTensor
from pyruntime.ops.host import HostValue
from pyruntime.session.run.stages import Run, Stage

__all__ = ["move_inputs"]


async def move_inputs(stage: Stage, run: Run, sizes: Sequence[int], numbers: Sequence[int]) -> None:
    """Move `run.tensors` into memory with the rows that the plan expects, and add the outputs that stay in it.

    Args:
        sizes: values of the plan's dynamic sizes. numbers: the values of its expressions for these.
    """
    kept = {k.input: k for k in stage.executable.plan.kept if k.capacity >= 0}
    moves = dict[str, Move]()
    for name, tensor in list(run.tensors.items()):
        state = kept.get(name)
        if state is not None:
            grown = tensor.grown(state.sized(numbers), state.axis, sizes[state.capacity])
            if isinstance(grown, Move):
                moves[name] = grown
            else:
                run.tensors[name] = grown
        elif tensor.reserved is not None:
            moves[name] = Move(tensor, tensor.type, None)
    run.tensors.update(zip(moves, await DeviceTensor.moved(list(moves.values())), strict=True))
    for state in stage.executable.plan.kept:
        source = run.tensors[state.input]
        if state.first is not None and state.end is not None:
            first, end = (_rows(rows, run.values, numbers) for rows in (state.first, state.end))
            source = await source.rewritten(min(first, default=0), max(end, default=0))
            run.tensors[state.input] = run.tensors[state.name] = source
        else:
            run.tensors[state.name] = source if state.capacity >= 0 else source.again()


def _rows(rows: RunRows, values: Mapping[str, HostValue], numbers: Sequence[int]) -> list[int]:
    """Return the numbers that `rows` stands for in a run with these values and sizes."""
    given = values.get(rows.input)
    elements = given.array().reshape(-1).tolist() if isinstance(given, HostTensor) else []
    return rows.numbers(elements, numbers)
