"""Samples of every operator by seed and number."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from tests.contrib.case import Case, draws
from tests.contrib.float_types import in_type
from tests.oracle import exact_inputs

__all__ = ["GPU", "NATIVE", "SOFTWARE", "each", "failures", "sample"]

NATIVE = range(12)
"""The samples of an operator that tests run on NumPy."""
GPU, SOFTWARE = range(4), range(4, 8)
"""Those that they run in the browser, with the kernels of a GPU and with those of a software adapter."""


def sample(op_type: str, seed: int, number: int) -> Case:
    """A case of an operator: the same for the same numbers."""
    made = draws()[op_type](np.random.default_rng([seed, zlib.crc32(op_type.encode()), number]))
    return replace(made, inputs=exact_inputs(made.op_type, made.inputs))


def failures(
    op_type: str, seed: int, numbers: Iterable[int], test: Callable[[Case, int], None], kind: str = ""
) -> Iterator[tuple[str, Exception]]:
    """Samples that fail a test, told with all that is needed to see it again, and how.

    Args:
        kind: a name of `float_types.TYPES`: the samples in this type.
    """
    for number in numbers:
        case: Case | None = sample(op_type, seed, number)
        assert case is not None
        try:
            case = in_type(case, kind) if kind else case
            if case is not None:
                test(case, number)
        except Exception as error:
            given = sample(op_type, seed, number)
            inputs = [None if x is None else (x.dtype.name, x.shape) for x in given.inputs]
            where = f"seed {seed}, sample {number}{f' in {kind}' if kind else ''}"
            yield f"{where}: {op_type} {inputs} {dict(given.attributes)}", error


def each(op_type: str, seed: int, numbers: Iterable[int], test: Callable[[Case, int], None], kind: str = "") -> None:
    """Raise AssertionError for the first failure."""
    for told, error in failures(op_type, seed, numbers, test, kind):
        raise AssertionError(told) from error
