"""TreeEnsemble: regression with decision forests. Source: ONNX operator ai.onnx.ml.TreeEnsemble."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pyruntime.ir import Array, Constant, DType, Ints, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.ops.base import Op, Unsupported, op
from pyruntime.ops.ml.forest import AGGREGATES, LEAF, MEMBER, Forest, indexed, integers, lowered
from pyruntime.ops.ml.shared import ALL, TRANSFORMS, transformed_alone


@op("TreeEnsemble", domain="ai.onnx.ml", opsets=range(5, ALL.stop))
class TreeEnsemble(Op):
    """y[n, t]: aggregate over the trees of the weights of the leaves that x[n] reaches and that belong to target t.

    x: float, double or float16 [N, F]; y: the same type, [N, n_targets]. A child of an inner node is a leaf if
    `nodes_trueleafs` (`nodes_falseleafs`) is 1, else a node. For a single target only PROBIT applies.
    """

    leaf_targetids: Ints
    leaf_weights: Constant
    nodes_falseleafs: Ints
    nodes_falsenodeids: Ints
    nodes_featureids: Ints
    nodes_modes: Constant
    nodes_splits: Constant
    nodes_trueleafs: Ints
    nodes_truenodeids: Ints
    tree_roots: Ints
    aggregate_function: int = 1
    membership_values: Constant | None = None
    n_targets: int | None = None
    nodes_hitrates: Constant | None = None
    nodes_missing_value_tracks_true: Ints | None = None
    post_transform: int = 0

    @property
    def _targets(self) -> int:
        return self.n_targets if self.n_targets is not None else max(self._forest.voted_range[1], 0) + 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._forest.depth  # made when a model is loaded, not in its first run

    @cached_property
    def _forest(self) -> Forest:
        """The forest, with inner nodes before leaves."""
        lists = {
            "nodes_modes": self.nodes_modes.numpy().reshape(-1).astype(np.int8),
            "nodes_splits": self.nodes_splits.numpy().reshape(-1),
            "nodes_featureids": integers(self.nodes_featureids),
            "nodes_truenodeids": integers(self.nodes_truenodeids),
            "nodes_falsenodeids": integers(self.nodes_falsenodeids),
            "nodes_trueleafs": integers(self.nodes_trueleafs),
            "nodes_falseleafs": integers(self.nodes_falseleafs),
        }
        if self.nodes_missing_value_tracks_true:
            lists["nodes_missing_value_tracks_true"] = integers(self.nodes_missing_value_tracks_true)
        inner = indexed(lists, "nodes")
        weights = self.leaf_weights.numpy().reshape(-1)
        targets = integers(self.leaf_targetids)
        leaves = indexed({"leaf_weights": weights, "leaf_targetids": targets}, "leaves")
        tracks = lists.get("nodes_missing_value_tracks_true", np.zeros(inner, np.int8)) != 0
        if inner and not 0 <= lists["nodes_modes"].min() <= lists["nodes_modes"].max() < LEAF:
            self.fail(f"nodes_modes below {LEAF}", int(lists["nodes_modes"].max()))
        follow = np.zeros((inner + leaves, 2), np.int32)
        for column, branch in enumerate(("false", "true")):
            follow[:inner, column] = lists[f"nodes_{branch}nodeids"] + inner * (lists[f"nodes_{branch}leafs"] != 0)
        first_member, members = self._members(lists["nodes_modes"], leaves)
        return Forest(
            feature=_and(lists["nodes_featureids"].astype(np.int32, copy=False), leaves, 0),
            mode=_and(lists["nodes_modes"], leaves, LEAF),
            split=_and(lists["nodes_splits"], leaves, 0),
            follow=follow,
            nan_is_yes=_and(tracks, leaves, False),
            roots=integers(self.tree_roots).astype(np.int32, copy=False),
            first_member=first_member,
            members=members,
            first_vote=np.maximum(np.arange(inner + leaves + 1, dtype=np.int32) - inner, 0),
            vote_target=targets.astype(np.int32, copy=False),
            vote_weight=weights,
        )

    def _members(self, modes: Array, leaves: int) -> tuple[Array, Array]:
        """Return the sets of the BRANCH_MEMBER nodes: `membership_values` in node order, each set terminated by NaN."""
        nodes = np.flatnonzero(modes == MEMBER)
        first = np.zeros(len(modes) + leaves + 1, np.int32)
        if self.membership_values is None and not len(nodes):
            return first, np.zeros(0, np.float32)
        values = self.membership_values.numpy().reshape(-1) if self.membership_values is not None else np.zeros(0)
        ends = np.flatnonzero(np.isnan(values))
        sizes = np.diff(np.concatenate([[-1], ends, [len(values)]])) - 1
        sizes = sizes[:-1] if len(sizes) > len(nodes) and not sizes[-1] else sizes
        if len(sizes) != len(nodes) and (len(nodes) or values.size):
            self.fail(f"membership_values of {len(nodes)} sets", len(sizes))
        first[nodes + 1] = sizes
        return np.cumsum(first, dtype=np.int32), values[~np.isnan(values)]

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
            self.fail("a valid forest", problem)
        return (x.with_shape(x.shape[0], self._targets),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        scores = self._forest.aggregate(x, self._targets, AGGREGATES[self.aggregate_function])
        return (transformed_alone(scores, TRANSFORMS[self.post_transform]).astype(x.dtype),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        if self.post_transform:
            raise Unsupported("post_transform runs on the host")
        (y,) = self.infer(x)
        return (lowered(self._forest, target, x, out(0, y), AGGREGATES[self.aggregate_function]),)


def _and(values: Array, more: int, fill: float) -> Array:
    return np.concatenate([values, np.full(more, fill, values.dtype)])
