"""TreeEnsemble: regression by decision forests. Source: ONNX operator ai.onnx.ml.TreeEnsemble."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.ops._forest import AGGREGATES, MODES, Forest, indexed, lowered, votes_of
from pyruntime.ops._ml import ALL, TRANSFORMS, transformed
from pyruntime.ops.base import Op, Unsupported, op


@op("TreeEnsemble", domain="ai.onnx.ml", opsets=range(5, ALL.stop))
class TreeEnsemble(Op):
    """y[n, t]: the weights of the leaves x[n] reaches that belong to target t, aggregated over the trees.

    x: float, double or float16 [N, F]; y: the same type, [N, n_targets]. An inner node's children are nodes or, where
    `nodes_trueleafs` (`nodes_falseleafs`) is 1, leaves.
    """

    leaf_targetids: tuple[int, ...]
    leaf_weights: Constant
    nodes_falseleafs: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_modes: Constant
    nodes_splits: Constant
    nodes_trueleafs: tuple[int, ...]
    nodes_truenodeids: tuple[int, ...]
    tree_roots: tuple[int, ...]
    aggregate_function: int = 1
    membership_values: Constant | None = None
    n_targets: int | None = None
    nodes_hitrates: Constant | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    post_transform: int = 0

    @property
    def _targets(self) -> int:
        return self.n_targets if self.n_targets is not None else max(self.leaf_targetids, default=0) + 1

    @cached_property
    def _forest(self) -> Forest:
        """Inner nodes first, then the leaves."""
        lists = {
            "nodes_modes": self.nodes_modes.numpy().reshape(-1).astype(np.intp),
            "nodes_splits": self.nodes_splits.numpy().reshape(-1),
            "nodes_featureids": np.array(self.nodes_featureids, np.intp),
            "nodes_truenodeids": np.array(self.nodes_truenodeids, np.intp),
            "nodes_falsenodeids": np.array(self.nodes_falsenodeids, np.intp),
            "nodes_trueleafs": np.array(self.nodes_trueleafs, np.intp),
            "nodes_falseleafs": np.array(self.nodes_falseleafs, np.intp),
        }
        inner = indexed(lists, "nodes")
        weights = self.leaf_weights.numpy().reshape(-1)
        targets = np.array(self.leaf_targetids, np.intp)
        leaves = indexed({"leaf_weights": weights, "leaf_targetids": targets}, "leaves")
        tracks = np.array(self.nodes_missing_value_tracks_true or (0,) * inner, bool)
        indexed({"nodes_missing_value_tracks_true": tracks, "nodes_modes": lists["nodes_modes"]}, "nodes")
        if inner and not 0 <= lists["nodes_modes"].min() <= lists["nodes_modes"].max() < len(MODES) - 1:
            self.fail(f"nodes_modes below {len(MODES) - 1}", int(lists["nodes_modes"].max()))
        first, target, weight = votes_of(inner + leaves, inner + np.arange(leaves), targets, weights)
        yes, no = (lists[f"nodes_{b}nodeids"] + inner * (lists[f"nodes_{b}leafs"] != 0) for b in ("true", "false"))
        return Forest(
            feature=_and(lists["nodes_featureids"], leaves, 0),
            mode=_and(lists["nodes_modes"], leaves, MODES.index("LEAF")),
            split=_and(lists["nodes_splits"], leaves, 0),
            yes=_and(yes, leaves, 0),
            no=_and(no, leaves, 0),
            nan_is_yes=_and(tracks, leaves, False),
            roots=np.array(self.tree_roots, np.intp),
            members=self._members(lists["nodes_modes"]),
            first_vote=first,
            vote_target=target,
            vote_weight=weight,
        )

    def _members(self, modes: Array) -> dict[int, Array]:
        """The sets of the BRANCH_MEMBER nodes: `membership_values` in order of the nodes, a NaN after each."""
        nodes = np.flatnonzero(modes == MODES.index("BRANCH_MEMBER"))
        values = self.membership_values.numpy().reshape(-1) if self.membership_values is not None else np.zeros(0)
        ends = np.flatnonzero(np.isnan(values))
        sets = [part[~np.isnan(part)] for part in np.split(values, ends + 1)]
        sets = sets[:-1] if len(sets) > len(nodes) and not sets[-1].size else sets
        if len(sets) != len(nodes) and (len(nodes) or values.size):
            self.fail(f"membership_values of {len(nodes)} sets", len(sets))
        return {int(node): part for node, part in zip(nodes, sets, strict=False)}

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        if x.rank != 2 or x.dtype not in (DType.FLOAT, DType.DOUBLE, DType.FLOAT16):
            self.fail("a float tensor [N, F]", x)
        if not 0 <= self.aggregate_function < len(AGGREGATES) or not 0 <= self.post_transform < len(TRANSFORMS):
            self.fail(
                "aggregate_function below 4, post_transform below 5",
                f"{self.aggregate_function}, {self.post_transform}",
            )
        problem = self._forest.problem(x.shape[1], self._targets)
        if problem:
            self.fail("a forest", problem)
        return (x.with_shape(x.shape[0], self._targets),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        scores = self._forest.aggregate(x, self._targets, AGGREGATES[self.aggregate_function])
        return (transformed(scores, TRANSFORMS[self.post_transform]).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if self.post_transform:
            raise Unsupported("post_transform runs on the host")
        (y,) = self.infer(x)
        return (lowered(self._forest, target, x, out(0, y), AGGREGATES[self.aggregate_function]),)


def _and(values: Array, more: int, fill: float) -> Array:
    return np.concatenate([values, np.full(more, fill, values.dtype)])
