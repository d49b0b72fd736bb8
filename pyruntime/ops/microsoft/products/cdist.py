"""CDist: c[i, j] = sum over k of (a[i, k] - b[j, k])², or its root. Source: com.microsoft.CDist.

Computed as |a|² + |b|² - 2 a·b, as in onnxruntime, which is inaccurate for rows much closer to each other than to 0.
"""

from __future__ import annotations

from typing import Annotated

from pyruntime.ir import TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion


@op("CDist", opsets=range(1, 2), domain="com.microsoft")
class CDist(Decomposed):
    """a: [M, K], b: [N, K], float32 or float64; c: [M, N]. metric: sqeuclidean or euclidean, as in onnxruntime."""

    metric: Annotated[str, "sqeuclidean", "euclidean"] = "sqeuclidean"

    def expand(self, body: Expansion, a: TensorType, b: TensorType) -> tuple[TensorType | None, ...]:
        if a.rank != 2 or b.rank != 2:
            self.fail("two matrices", f"{a} and {b}")
        rows = body("ReduceSumSquare", a, body.ints(1), keepdims=1)
        columns = body("Transpose", body("ReduceSumSquare", b, body.ints(1), keepdims=1), perm=(1, 0))
        product = body("Gemm", a, b, alpha=-2.0, transB=1)
        squares = body("Relu", body("Add", body("Add", product, rows), columns))
        return (body("Sqrt", squares) if self.metric == "euclidean" else squares,)
