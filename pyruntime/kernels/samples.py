"""Kernels of a family without a model around them, for measuring: operands are whole tensors, numbers do not matter."""

from __future__ import annotations

from dataclasses import replace

from pyruntime.ir import DType, TensorType
from pyruntime.kernels.candidates import Noted
from pyruntime.kernels.dispatch import Dispatch, Target, Winners, inp, out
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.matmul import matmul, product_of
from pyruntime.kernels.matmul_candidates import PRODUCTS, TILES, ProductProblem
from pyruntime.kernels.rows import Norm, normalize_rows, rows_of
from pyruntime.kernels.split_norm import sum_and_normalize

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
    forced = replace(target, winners=Winners({(PRODUCTS.name, p.key): candidate}), norm_follows=p.norm_follows)
    product = product_of(a.shape, b.shape, trans_b=p.trans_b)
    made = matmul(forced, out(0, y), inp(0, a), inp(1, b), product, tiling=tiling)
    return legalize(target, _with_norm(target, made, y) if p.norm_follows else made)


def _with_norm(target: Target, made: tuple[Dispatch, ...], kind: TensorType) -> tuple[Dispatch, ...]:
    """The dispatches of a product with a normalisation behind, as `ops.with_norm` joins them."""
    y, p = out(1, kind), out(0, kind)
    norm = Norm(1e-5, False, inp(2, TensorType(DType.FLOAT, kind.shape[-1:])), None)
    joined = sum_and_normalize(target, made, y, None, norm)
    rows = rows_of(kind.shape, kind.rank - 1, flatten=True)
    return joined if joined is not None else (*made, normalize_rows(target, y, p, rows, norm))
