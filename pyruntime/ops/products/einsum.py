"""Einsum: sums of products in Einstein notation. Source: ONNX operator Einsum; numpy.einsum.

On the GPU, operands are contracted pairwise, the cheapest pair first. A pair that is a matrix product uses its kernels;
others use a kernel that computes each output element separately.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, TensorType
from pyruntime.kernels import Dispatch, Target, inp, out
from pyruntime.kernels.products.einsum import contract_all
from pyruntime.ops.base import LATEST, Op, Unsupported, op, refuse_float64


@dataclass(frozen=True, slots=True)
class Equation:
    """A parsed equation: labels of the terms and of the output, with ellipses replaced by unused labels."""

    terms: tuple[str, ...]
    output: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def dims(self) -> dict[str, int]:
        """Label -> size."""
        return dict(self.sizes)


@op("Einsum", opsets=range(12, LATEST + 1))
class Einsum(Op):
    """`equation` has letters, commas, at most one `...` per term, and optionally `->` with the output's labels."""

    equation: str

    def parse(self, *shapes: tuple[int, ...]) -> Equation:
        """Parse the equation for operands of these shapes. Raises InvalidGraph if it is malformed or does not match."""
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        terms = left.split(",")
        if len(terms) != len(shapes):
            self.fail(f"{len(terms)} operands for '{self.equation}'", len(shapes))
        for term in [*terms, right]:
            letters = term.replace("...", "", 1)
            if any(c not in string.ascii_letters for c in letters):
                self.fail("letters and at most one '...' in every term", f"'{self.equation}'")
        free = [c for c in _extra_labels() if c not in left]
        widths = [len(shape) - len(t.replace("...", "")) for t, shape in zip(terms, shapes, strict=True)]
        if any(w < 0 or (w > 0 and "..." not in t) for t, w in zip(terms, widths, strict=True)):
            self.fail(f"operands of the ranks in '{self.equation}'", [list(s) for s in shapes])
        broad = "".join(free[: max(widths)])
        full = tuple(t.replace("...", broad[len(broad) - w :]) for t, w in zip(terms, widths, strict=True))
        if arrow:
            output = right.replace("...", broad)
        else:
            letters = left.replace(",", "").replace("...", "")
            output = broad + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        sizes = self._sizes(full, shapes)
        if len(set(output)) != len(output) or any(c not in sizes for c in output):
            self.fail("output labels that are distinct and occur in a term", f"'{self.equation}'")
        return Equation(full, output, tuple(sizes.items()))

    def _sizes(self, terms: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """Return label -> size; size 1 broadcasts."""
        sizes: dict[str, int] = {}
        for term, shape in zip(terms, shapes, strict=True):
            for label, dim in zip(term, shape, strict=True):
                if sizes.get(label, 1) == 1:
                    sizes[label] = dim
                elif dim not in (1, sizes[label]):
                    self.fail(f"one size for every label of '{self.equation}'", [list(s) for s in shapes])
        return sizes

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        dtype = self.same_dtype(*inputs)
        equation = self.parse(*(x.shape for x in inputs))
        return (TensorType(dtype, tuple(equation.dims[c] for c in equation.output)),)

    def evaluate(self, *inputs: Array) -> tuple[Array, ...]:
        equation = self.parse(*(x.shape for x in inputs))
        dtype = inputs[0].dtype
        # 16-bit floats are summed in float32 and rounded once.
        wide = np.dtype(np.float32) if dtype == np.float16 else dtype
        operands: list[Any] = []
        number = {label: i for i, (label, _) in enumerate(equation.sizes)}
        for x, term in zip(inputs, equation.terms, strict=True):
            operands += [x.astype(wide, copy=False), [number[c] for c in term]]
        y = np.einsum(*operands, [number[c] for c in equation.output], optimize=len(inputs) > 1)
        return (np.asarray(y).astype(dtype, copy=False),)

    def lower(self, target: Target, *inputs: TensorType) -> tuple[Dispatch, ...]:
        (y,) = self.infer(*inputs)
        refuse_float64(y)
        equation = self.parse(*(x.shape for x in inputs))
        terms = [(inp(i, x), term) for i, (x, term) in enumerate(zip(inputs, equation.terms, strict=True))]
        try:
            return contract_all(target, out(0, y), terms, equation.output, equation.dims)
        except ValueError as reason:
            raise Unsupported(str(reason)) from reason


def _extra_labels() -> list[str]:
    """Return labels for the dimensions of ellipses, letters first, because NumPy accepts only these as strings."""
    return [*string.ascii_letters, *(chr(0x3B1 + i) for i in range(24))]
