"""Kernels of a family without a model around them, for measuring: operands are whole tensors, numbers do not matter."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.candidates import Noted
from pyruntime.kernels.dispatch import Dispatch, Target, Winners, inp, out
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.matmul import matmul, product_of
from pyruntime.kernels.matmul_candidates import PRODUCTS, TILES, ProductProblem

__all__ = ["sample"]


def sample(noted: Noted, candidate: str, target: Target) -> tuple[Dispatch, ...]:
    """The dispatches of a candidate for a problem.

    Raises:
        LookupError: a family that has no samples, or a candidate that it does not have.
    """
    family, problem = noted.family, noted.problem
    if family not in (PRODUCTS, TILES) or not isinstance(problem, ProductProblem):
        raise LookupError(f"kernels of {family.name} have no sample")
    p = problem
    stack = (p.batches,) if p.batches > 1 else ()
    b_shape = (p.n, p.k) if p.trans_b else (p.k, p.n)
    y, a, b = (TensorType(DType.FLOAT, (*stack, *shape)) for shape in ((p.m, p.n), (p.m, p.k), b_shape))
    tiling = family.named(candidate).way.tiling
    forced = replace(target, winners=Winners({(PRODUCTS.name, p.key): candidate}))
    product = product_of(a.shape, b.shape, trans_b=p.trans_b)
    return legalize(target, matmul(forced, out(0, y), inp(0, a), inp(1, b), product, tiling=tiling))
