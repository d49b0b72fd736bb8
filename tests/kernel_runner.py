"""Runs what an operator lowered to on a GPU: each operand gets a buffer of its own, and nothing is planned.

As in most models, the first input is an activation and the others are constants, which kernels bind as memory that is
only read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.ir.encoding import decode, encode
from pyruntime.kernels import Dispatch, Operand, Role, Target
from pyruntime.kernels.legalize import legalize

__all__ = ["Buffer", "KernelRunner", "Step"]


@dataclass(frozen=True)
class Buffer:
    """A buffer of `size` bytes that begins with `data`; the rest is poisoned."""

    size: int
    data: bytes


@dataclass(frozen=True)
class Step:
    """A dispatch: numbers of the buffers bound, in order; `params`: the uniform's bytes, if there is one."""

    source: str
    entry: str
    bound: list[int]
    params: bytes | None
    grid: tuple[int, int, int]


class KernelRunner(ABC):
    """A GPU for tests of kernels.

    Attributes:
        runs_fallback: run kernels by their fallback entry points, where they have one (`kernels.ir.fallback`).
    """

    target: Target
    runs_fallback = False

    @abstractmethod
    def execute(self, buffers: Sequence[Buffer], steps: Sequence[Step], reads: Sequence[int]) -> list[bytes]:
        """Run the steps in order; the bytes of the buffers with the numbers `reads`.

        Raises:
            AssertionError: the compiler or the device refused, with the message and the source.
        """

    def run(
        self,
        dispatches: Sequence[Dispatch],
        inputs: Sequence[Array | None],
        types: Sequence[Any],
        outs: Sequence[Any],
        overwrites: Mapping[int, int] | None = None,
    ) -> list[Array]:
        """Run one node's dispatches on `inputs` (carriers of `types`); returns arrays of the types `outs` but None.

        Output memory is poisoned first, so an unwritten element shows; `overwrites`: outputs that begin as inputs.
        """
        buffers: list[Buffer] = []
        slots: dict[tuple[Role, int], int] = {}

        def slot(operand: Operand) -> int:
            key = (operand.role, operand.index)
            if key not in slots:
                whole: TensorType = operand.type
                data = b""
                if operand.role is Role.INPUT:
                    whole = types[operand.index]
                    array = inputs[operand.index]
                    assert array is not None
                    data = encode(array, whole.dtype).tobytes()
                elif operand.role is Role.CONSTANT:
                    assert operand.data is not None
                    data = bytes(operand.data.raw())
                elif operand.role is Role.OUTPUT:
                    whole = outs[operand.index]
                    before = inputs[overwrites[operand.index]] if overwrites and operand.index in overwrites else None
                    data = b"" if before is None else encode(before, whole.dtype).tobytes()
                slots[key] = len(buffers)
                buffers.append(Buffer(max(256, -(-whole.nbytes // 256) * 256), data))
            return slots[key]

        steps = []
        for dispatch in legalize(self.target, [d for d in dispatches if not d.is_empty]):
            given = [slot(operand) for operand in dispatch.operands]
            bound = list(dict.fromkeys(given))
            first = tuple(given.index(index) for index in given)
            constants = frozenset(i for i, o in enumerate(dispatch.operands) if _is_constant(o))
            source = dispatch.kernel.wgsl(first, constants)
            entry = "fallback" if self.runs_fallback and "// <fallback>" in source else "main"
            x, y, z = dispatch.grid
            params = dispatch.params if dispatch.kernel.has_params else None
            steps.append(Step(source, entry, bound, params, (int(x), int(y), int(z))))
        named = [(i, t) for i, t in enumerate(outs) if t is not None]
        raws = self.execute(buffers, steps, [slot(Operand(Role.OUTPUT, i, t)) for i, t in named])
        return [
            decode(np.frombuffer(raw, np.uint8)[: t.nbytes], t.dtype, t.shape)
            for raw, (_, t) in zip(raws, named, strict=True)
        ]


def _is_constant(operand: Operand) -> bool:
    return operand.role is Role.CONSTANT or (operand.role is Role.INPUT and operand.index > 0)
