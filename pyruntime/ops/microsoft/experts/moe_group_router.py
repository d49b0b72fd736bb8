"""MoEGroupRouter: select experts within groups for each token. Source: com.microsoft operator MoEGroupRouter."""

from __future__ import annotations

import numpy as np

from pyruntime.ir import DType, TensorType
from pyruntime.ops.base import op
from pyruntime.ops.decomposed import Decomposed, Expansion
from pyruntime.ops.registry import newest


@op("MoEGroupRouter", opsets=range(1, 2), domain="com.microsoft")
class MoEGroupRouter(Decomposed):
    """logits: [.., E]; expert_bias: float32 [E]; s = sigmoid(logits), c = s + expert_bias.

    router_probs [tokens, E] is ln(max(s, 1e-20)) for the `top_k` experts with the largest c in the `topk_group` groups
    with the largest sum of their `group_topk` largest c, and `router_sentinel` elsewhere. For a single group, the
    outputs may be c and s (float32) instead. With projection_weight W [E, width], logits = x Wᵀ of the input x.
    """

    top_k: int
    group_topk: int = 2
    n_group: int = 1
    router_sentinel: float = -10000.0
    topk_group: int = 1

    def expand(
        self, body: Expansion, logits: TensorType, bias: TensorType, projection: TensorType | None = None
    ) -> tuple[TensorType | None, ...]:
        experts, groups = bias.size, self.n_group
        size = experts // max(1, groups)
        fits = groups > 0 and size * groups == experts and 0 < self.topk_group <= groups and self.group_topk > 0
        if bias.rank != 1 or not fits or not 0 < self.top_k <= experts:
            self.fail(f"groups and top_k that fit {experts} experts", f"{self}")
        if self.wants(0) == (self.wants(1) or self.wants(2)) or (projection is not None and self.wants(0)):
            self.fail("router_probs alone, or selection_scores and router_weights", f"outputs {self.present}")
        wide = body.cast(logits, DType.FLOAT)
        if projection is not None:
            wide = body("MatMul", wide, body("Transpose", body.cast(projection, DType.FLOAT), perm=(1, 0)))
        scores = body("Sigmoid", body("Reshape", wide, body.ints(-1, experts)))
        chosen_by = body("Add", scores, bias)
        if not self.wants(0):
            if groups > 1:
                self.fail("one group with selection_scores", groups)
            return None, chosen_by, scores
        grouped = body("Reshape", chosen_by, body.ints(-1, groups, size))
        best = self._top(body, grouped, min(self.group_topk, size))[0]
        sums = body("ReduceSum", best, body.ints(-1), keepdims=0)
        within = body("Unsqueeze", self._chosen(body, sums, self.topk_group), body.ints(-1))
        least = body.number(-np.inf, DType.FLOAT)
        rest = body("Reshape", body("Where", within, grouped, least), body.ints(-1, experts))
        chosen = body("And", self._chosen(body, rest, self.top_k), body("Greater", rest, least))
        logarithm = body("Log", body("Max", scores, body.number(1e-20, DType.FLOAT)))
        y = body("Where", chosen, logarithm, body.number(self.router_sentinel, DType.FLOAT))
        return body.cast(y, logits.dtype), None, None

    @staticmethod
    def _top(body: Expansion, x: TensorType, k: int) -> tuple[TensorType, TensorType]:
        values, indices = body.apply(newest("TopK", axis=-1, present=(True, True)), x, body.ints(k))
        return values, indices

    def _chosen(self, body: Expansion, x: TensorType, k: int) -> TensorType:
        """Return a bool mask of the `k` largest elements along the last axis of x."""
        ends = body.constant(np.array([0, 1], np.float32), DType.FLOAT)
        one_hot = body("OneHot", self._top(body, x, k)[1], body.ints(x.shape[-1]), ends, axis=-1)
        return body.cast(body("ReduceMax", one_hot, body.ints(-2), keepdims=0), DType.BOOL)
