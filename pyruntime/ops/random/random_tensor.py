"""Random tensors: RandomNormal, RandomUniform, their -Like variants, Bernoulli and Multinomial. Source: ONNX.

Numbers come from NumPy's RandomState, on the host. A node with a seed draws the same numbers in every run; one without
draws others each time, unless `randomness.set_seed` was called. The nodes are neither folded nor merged.
"""

from __future__ import annotations

import numpy as np

from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.base import LATEST, Op, attributes, op
from pyruntime.ops.elementwise.elementwise import FLOATS, NUMBERS
from pyruntime.ops.interpreter import current


@attributes
class _Random(Op):
    """Base of random operators: their generator and result type."""

    pure = False
    seed: float | None = None
    dtype: int | None = None

    def generator(self) -> np.random.RandomState:
        """Return a generator seeded by `seed`, truncated to an integer, by `set_seed`, or by the system."""
        return current().random.generator(self, None if self.seed is None else int(self.seed))

    def result(self, default: DType, allowed: frozenset[DType]) -> DType:
        """Return the result type. Raises InvalidGraph if it is not in `allowed`."""
        try:
            dtype = default if self.dtype is None else DType.from_code(self.dtype)
        except KeyError:
            self.fail("dtype to be the code of an ONNX type", self.dtype)
        if dtype not in allowed:
            self.fail(" or ".join(sorted(d.onnx_name for d in allowed)), dtype.type_string)
        return dtype


class _Drawn(_Random):
    """Base of tensors of independent random numbers."""

    def draw(self, shape: tuple[int, ...]) -> Array:
        """Draw random numbers in float64."""
        raise NotImplementedError(self.op_type)


@attributes
class _OfShape(_Drawn):
    """Base of operators with the shape in an attribute."""

    shape: tuple[int, ...]
    dtype: int | None = 1

    def infer(self) -> tuple[TensorType, ...]:
        return (TensorType(self.result(DType.FLOAT, FLOATS), self.shape),)

    def evaluate(self) -> tuple[Array, ...]:
        return (np.asarray(self.draw(self.shape)).astype(self.result(DType.FLOAT, FLOATS).numpy),)


class _Like(_Drawn):
    """Base of operators with the shape of x, and by default its type."""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (TensorType(self.result(x.dtype, FLOATS), x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        dtype = x.dtype if self.dtype is None else DType.from_code(self.dtype).numpy
        return (np.asarray(self.draw(x.shape)).astype(dtype),)


@attributes
class _Normal(_Drawn):
    """Normal distribution."""

    mean: float = 0.0
    scale: float = 1.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.generator().standard_normal(shape)) * self.scale + self.mean


@attributes
class _Uniform(_Drawn):
    """Uniform distribution."""

    low: float = 0.0
    high: float = 1.0

    def draw(self, shape: tuple[int, ...]) -> Array:
        return np.asarray(self.generator().uniform(self.low, self.high, shape))


@op("RandomNormal", opsets=range(1, LATEST + 1))
class RandomNormal(_OfShape, _Normal):
    """y ~ N(mean, scale^2)"""


@op("RandomUniform", opsets=range(1, LATEST + 1))
class RandomUniform(_OfShape, _Uniform):
    """y ~ U[low, high)"""


@op("RandomNormalLike", opsets=range(1, LATEST + 1))
class RandomNormalLike(_Like, _Normal):
    """y ~ N(mean, scale^2), of the shape of x"""


@op("RandomUniformLike", opsets=range(1, LATEST + 1))
class RandomUniformLike(_Like, _Uniform):
    """y ~ U[low, high), of the shape of x"""


@op("Bernoulli", opsets=range(15, LATEST + 1))
class Bernoulli(_Random):
    """y = 1 with probability x, else 0"""

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.dtype not in FLOATS:
            self.fail("probabilities of a float type", x.dtype.type_string)
        return (TensorType(self.result(x.dtype, NUMBERS | {DType.BOOL}), x.shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        dtype = x.dtype if self.dtype is None else DType.from_code(self.dtype).numpy
        return (np.asarray(self.generator().uniform(size=x.shape) < x).astype(dtype),)


@op("Multinomial", opsets=range(7, LATEST + 1))
class Multinomial(_Random):
    """y[b, s] = c with probability proportional to e^x[b, c], for `sample_size` samples s"""

    dtype: int | None = 6
    sample_size: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 2 or x.shape[1] == 0 or x.dtype not in FLOATS:
            self.fail("a float tensor [batch, classes] of one class or more", str(x))
        dtype = self.result(DType.INT32, frozenset((DType.INT32, DType.INT64)))
        return (TensorType(dtype, (x.shape[0], self.sample_size)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        weight = np.exp(x.astype(np.float64) - np.max(x, axis=1, keepdims=True))
        reached = np.cumsum(weight, axis=1)
        points = self.generator().uniform(size=(x.shape[0], self.sample_size)) * reached[:, -1:]
        drawn = (points[:, :, None] >= reached[:, None, :]).sum(axis=2)
        return (np.minimum(drawn, x.shape[1] - 1).astype(self.result(DType.INT32, NUMBERS).numpy),)
