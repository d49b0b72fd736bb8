"""Split: split a tensor along an axis. Source: ONNX operator Split.

Flattened at the axis, input and outputs are matrices [outer, width], as in Concat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, Unit, for_each, inp, out, strided_copy
from pyruntime.ops.base import LATEST, Op, op
from pyruntime.ops.by_attribute import ByAttribute


def _distribute(
    target: Target, unit: Unit, x: Operand, outputs: Sequence[Operand], columns: Sequence[tuple[int, int]], row: int
) -> Dispatch:
    """Return the dispatch that writes columns [start, end) of x's `row` to each output; in elements."""
    first, width = columns[0][0], columns[-1][1] - columns[0][0]
    bounds = [(bound - first) // unit.width for pair in columns for bound in pair]
    lines = ["let row = i / params.width;", "let col = i - row * params.width;"]
    lines.append(f"let v = {unit.load}_x(row * params.row + params.offset + col);")
    for k, _ in enumerate(outputs):
        start, end = (f"params.bounds_{j // 4}[{j % 4}]" for j in (2 * k, 2 * k + 1))
        store = unit.store(f"y{k}", f"row * ({end} - {start}) + col - {start}", "v")
        lines.append(f"if (col >= {start} && col < {end}) {{ {store} }}")
    words = range(-(-len(bounds) // 4))
    values: dict[str, int | list[int]] = {f"bounds_{k}": bounds[4 * k : 4 * k + 4] for k in words}
    values |= {"width": width // unit.width, "row": row // unit.width, "offset": first // unit.width}
    return for_each(
        target,
        f"split{len(outputs)}_{unit.bits}",
        x.type.size // row * width // unit.width,
        {"x": unit.view(x)},
        {f"y{k}": unit.view(o) for k, o in enumerate(outputs)},
        "\n  ".join(lines),
        values,
    )


class _Split(Op):
    """x: rank 1 or more; split: int64 [number of outputs], an input of some versions."""

    axis: int | None

    def along(self, rank: int) -> int:
        """Return the axis as a non-negative index."""
        return self.axis_of(self.axis or 0, rank)

    def sizes(self, dim: int, given: Sequence[int] | None) -> list[int]:
        """Return the sizes of the outputs along the axis, equal ones by default. Raises InvalidGraph."""
        count = len(self.present)
        if not given:
            if dim % count:
                self.fail(f"an axis that is divisible by {count} outputs", dim)
            return [dim // count] * count
        if len(given) != count or sum(given) != dim or any(size < 0 for size in given):
            self.fail(f"{count} sizes of at least 0 with the sum {dim}", list(given))
        return list(given)

    def infer(self, x: TensorType, split: TensorType | None = None) -> tuple[TensorType, ...]:
        if x.rank == 0:
            self.fail("an input of rank 1 or more", x)
        axis = self.along(x.rank)
        sizes = self.sizes(x.shape[axis], None if split is None else split.ints())
        return tuple(x.with_shape(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes)

    def evaluate(self, x: Array, split: Array | None = None) -> tuple[Array, ...]:
        axis = self.along(x.ndim)
        sizes = self.sizes(x.shape[axis], None if split is None else split.reshape(-1).tolist())
        before = (slice(None),) * axis
        return tuple(x[(*before, slice(a, b))] for a, b in pairwise([0, *accumulate(sizes)]))

    def alias(self, x: TensorType, split: TensorType | None = None) -> int | None:
        """Return 0 where the first output is the whole input and no other output is used."""
        parts = self.infer(x, split)
        others = any(self.wants(k) for k in range(1, len(parts)))
        return 0 if parts[0].size == x.size and not others else None

    def lower(self, target: Target, x: TensorType, split: TensorType | None = None) -> tuple[Dispatch, ...]:
        """Return one dispatch per group of outputs that the device can bind; one per output without word alignment."""
        parts = self.infer(x, split)
        outer = math.prod(x.shape[: self.along(x.rank)])
        widths = [y.size // max(outer, 1) for y in parts]
        row, ends = sum(widths), list(accumulate(widths))
        wanted = [k for k, y in enumerate(parts) if self.wants(k) and y.size]
        unit = Unit.widest(x.dtype, *widths)
        source, made = inp(0, x), []
        if not unit.is_words or len(wanted) == 1:
            for k in wanted:
                y = out(k, parts[k].with_shape(outer, widths[k]))
                made.append(strided_copy(target, "split", y, source, ends[k] - widths[k], (row, 1)))
            return tuple(made)
        most = target.limits.storage_buffers - 1
        for first in range(0, len(wanted), most):
            chunk = wanted[first : first + most]
            columns = [(ends[k] - widths[k], ends[k]) for k in chunk]
            made.append(_distribute(target, unit, source, [out(k, parts[k]) for k in chunk], columns, row))
        return tuple(made)


@op("Split", opsets=range(18, LATEST + 1), earlier={range(13, 18): "num_outputs"})
class Split(_Split):
    """Sizes are an input, or `num_outputs` of ceil(dim / num_outputs), the last one smaller."""

    axis: int = 0
    num_outputs: int | None = None

    def sizes(self, dim: int, given: Sequence[int] | None) -> list[int]:
        if self.num_outputs is None or given is not None:
            if self.num_outputs is not None:
                self.fail("either the input split or num_outputs", "both")
            return super().sizes(dim, given)
        count = self.num_outputs
        if count != len(self.present) or count < 1:
            self.fail(f"num_outputs to be the number of outputs, {len(self.present)}", count)
        size = -(-dim // count)
        if size * (count - 1) > dim:
            self.fail(f"an axis of which {count} outputs each have {size} elements, the last fewer", dim)
        return [size] * (count - 1) + [dim - size * (count - 1)]


@op("Split", opsets=range(2, 13))
class SplitByAttribute(ByAttribute):
    """x: rank 1 or more; sizes are an attribute, by default equal."""

    later, moved = Split, ("split",)

    axis: int = 0
    split: tuple[int, ...] | None = None


@op("Split", opsets=range(1, 2))
class SplitByEither(_Split):
    """Sizes are the attribute, or else the input; by default equal."""

    axis: int | None = None
    split: tuple[int, ...] | None = None

    def sizes(self, dim: int, given: Sequence[int] | None) -> list[int]:
        return super().sizes(dim, given if self.split is None else self.split)
