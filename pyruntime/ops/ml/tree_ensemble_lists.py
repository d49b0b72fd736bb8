"""TreeEnsembleClassifier, TreeEnsembleRegressor: forests given as parallel lists of nodes and votes.

Source: ONNX operators ai.onnx.ml.TreeEnsembleClassifier, TreeEnsembleRegressor.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np

from pyruntime.ir import Array, Constant, DType, Floats, Ints, Strings, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.ops.base import Op, Unsupported, attributes, op
from pyruntime.ops.ml.forest import LEAF, MODES, Forest, by_owner, indexed, integers, lowered
from pyruntime.ops.ml.node_places import Places
from pyruntime.ops.ml.shared import (
    ALL,
    Labels,
    as_float,
    binary_scores,
    class_labels,
    matrix,
    transformed,
    transformed_alone,
)

_TENSORS = " ".join(
    f"{name}_as_tensor" for name in ("base_values", "class_weights", "nodes_hitrates", "nodes_values", "target_weights")
)
"""Double-precision attributes, which opsets 1 and 2 lack."""


@attributes
class _Trees(Op):
    """Base of TreeEnsembleClassifier and TreeEnsembleRegressor.

    The first node with a tree id is that tree's root. If there is a single score per row, only the first vote of a leaf
    counts, as in onnxruntime: sklearn-onnx writes paths through a tree as leaf numbers, once for each class.
    """

    votes: ClassVar[str] = ""
    """Prefix of the attributes of votes."""

    base_values: tuple[float, ...] | None = None
    nodes_falsenodeids: Ints | None = None
    nodes_featureids: Ints | None = None
    nodes_hitrates: Floats | None = None
    nodes_missing_value_tracks_true: Ints | None = None
    nodes_modes: Strings[str] | None = None
    nodes_nodeids: Ints | None = None
    nodes_treeids: Ints | None = None
    nodes_truenodeids: Ints | None = None
    nodes_values: Floats | None = None
    post_transform: Annotated[str, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"] = "NONE"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._forest.depth  # made when a model is loaded, not in its first run

    @cached_property
    def _forest(self) -> Forest:
        return self._built()

    def _numbers(self, name: str) -> Array:
        """Return attribute `name`, or `name`_as_tensor (double precision) where that is given."""
        tensor: Constant | None = getattr(self, f"{name}_as_tensor")
        if tensor is not None:
            return tensor.numpy().reshape(-1)
        return np.asarray(getattr(self, name) or (), np.float32)

    def _built(self) -> Forest:
        """Build the forest, with the votes in `<votes>_treeids`, `_nodeids`, `_ids` and `_weights`."""
        tree, identity = integers(self.nodes_treeids), integers(self.nodes_nodeids)
        modes = Strings.of(self.nodes_modes or ())
        lists = {
            "nodes_treeids": tree,
            "nodes_nodeids": identity,
            "nodes_featureids": integers(self.nodes_featureids),
            "nodes_modes": modes.codes.array,
            "nodes_values": self._numbers("nodes_values"),
            "nodes_truenodeids": integers(self.nodes_truenodeids),
            "nodes_falsenodeids": integers(self.nodes_falsenodeids),
        }
        if self.nodes_missing_value_tracks_true:
            lists["nodes_missing_value_tracks_true"] = integers(self.nodes_missing_value_tracks_true)
        nodes = indexed(lists, "nodes")
        allowed = [m for m in MODES if m != "BRANCH_MEMBER"]
        if not set(modes.distinct) <= set(allowed):
            self.fail(f"nodes_modes in {', '.join(allowed)}", sorted(set(modes.distinct) - set(allowed)))
        places = Places(tree, identity)
        mode = np.array([MODES.index(m) for m in modes.distinct], np.int8)[lists["nodes_modes"]]
        inner = np.flatnonzero(mode != LEAF)
        follow = np.zeros((nodes, 2), np.int32)
        for column, branch in enumerate(("nodes_falsenodeids", "nodes_truenodeids")):
            follow[inner, column] = places.of(tree[inner], lists[branch][inner])
        first_vote, target, weight = self._votes(places, nodes)
        return Forest(
            feature=lists["nodes_featureids"].astype(np.int32, copy=False),
            mode=mode,
            split=lists["nodes_values"],
            follow=follow,
            nan_is_yes=lists["nodes_missing_value_tracks_true"] != 0
            if self.nodes_missing_value_tracks_true
            else np.broadcast_to(np.False_, nodes),
            roots=_roots(tree).astype(np.int32),
            first_member=np.broadcast_to(np.int32(0), nodes + 1),
            members=np.zeros(0, np.float32),
            first_vote=first_vote,
            vote_target=target.astype(np.int32, copy=False),
            vote_weight=weight,
        )

    def _votes(self, places: Places, nodes: int) -> tuple[Array, Array, Array]:
        """Return the start of each node's votes, and the targets and weights of the votes."""
        parts = {part: integers(getattr(self, f"{self.votes}_{part}")) for part in ("treeids", "nodeids", "ids")}
        targets, weights = parts["ids"], self._numbers(f"{self.votes}_weights")
        indexed({f"{self.votes}_{name}": values for name, values in {**parts, "weights": weights}.items()}, "votes")
        owners = places.of(parts["treeids"], parts["nodeids"])
        strangers = np.flatnonzero(owners < 0)
        if strangers.size:
            tree, node = (int(parts[part][strangers[0]]) for part in ("treeids", "nodeids"))
            self.fail("votes of nodes that exist", f"node {node} of tree {tree}")
        if self._scores(targets) == 1:
            first = np.sort(np.unique(owners, return_index=True)[1])
            owners, targets, weights = owners[first], targets[first], weights[first]
        begins, order = by_owner(nodes, owners)
        return begins, targets[order], weights[order]

    def _scores(self, voted: Array) -> int:
        """Return the number of scores per row. `voted`: targets of the votes."""
        raise NotImplementedError

    def _check(self, forest: Forest, features: int, targets: int) -> None:
        problem = forest.problem(features, targets)
        if problem:
            self.fail("a valid forest", problem)


def _roots(tree: Array) -> Array:
    """Return the first node of each tree."""
    changes = np.diff(tree)
    if (changes < 0).any():
        return np.sort(np.unique(tree, return_index=True)[1])
    return np.concatenate([np.zeros(min(1, len(tree)), np.intp), np.flatnonzero(changes) + 1])


@op("TreeEnsembleClassifier", opsets=range(3, ALL.stop), domain="ai.onnx.ml", earlier={range(1, 3): _TENSORS})
class TreeEnsembleClassifier(_Trees):
    """Scores: base values plus the votes for each class. x: [N, F]; y: labels [N]; z: float32 scores [N, E].

    With two classes of which only class 0 has votes (as exporters write them), the sum s belongs to class 1. If no
    weight is negative, s is a probability: class 1 is selected above 1/2, and the scores are (1 - s, s). Otherwise it
    is selected above 0, and the scores are (-s, s). LOGISTIC and the softmaxes apply to (-s, s). If only class 1 has
    votes, the scores are (0, s) and the selection is the same. A single class: label 1 where s > 0, else 0; only PROBIT
    applies to s.
    """

    votes = "class"

    base_values_as_tensor: Constant | None = None
    class_ids: Ints | None = None
    class_nodeids: Ints | None = None
    class_treeids: Ints | None = None
    class_weights: Floats | None = None
    class_weights_as_tensor: Constant | None = None
    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    nodes_hitrates_as_tensor: Constant | None = None
    nodes_values_as_tensor: Constant | None = None

    def _scores(self, voted: Array) -> int:
        return len(self._labels())

    def _labels(self) -> Labels:
        classes = max(len(self.classlabels_int64s or self.classlabels_strings or ()), 1)
        return class_labels(self, self.classlabels_int64s, self.classlabels_strings, classes)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        labels = self._labels()
        self._check(self._forest, features, len(labels))
        base = len(self._numbers("base_values"))
        if base not in (0, len(labels)) and not (base == 1 and len(labels) == 2):
            self.fail(f"{len(labels)} base_values", base)
        return TensorType(labels.dtype, (rows,)), TensorType(DType.FLOAT, (rows, len(labels)))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        labels, forest = self._labels(), self._forest
        base = self._numbers("base_values")
        scores = forest.aggregate(as_float(x), len(labels), "SUM")
        voted, greatest = forest.voted_range
        if len(labels) == 2 and voted == greatest and base.size < 2:
            score = scores[:, [voted]] + (base[0] if base.size else 0)
            probability = not forest.has_negative_votes
            chosen = labels[(score[:, 0] > (0.5 if probability else 0)).astype(np.intp)]
            if voted == 0:
                return chosen, binary_scores(score, self.post_transform, probability)
            return chosen, transformed(np.concatenate([np.zeros_like(score), score], axis=1), self.post_transform)
        scores = scores + (base if base.size else 0)
        if len(labels) == 1:
            chosen = (scores[:, 0] > 0).astype(np.intp)
            label = chosen if labels.dtype is DType.INT64 else chosen.astype(str).astype(object)
            return label, transformed_alone(scores, self.post_transform)
        return labels[scores.argmax(axis=1)], transformed(scores, self.post_transform)


@op("TreeEnsembleRegressor", opsets=range(3, ALL.stop), domain="ai.onnx.ml", earlier={range(1, 3): _TENSORS})
class TreeEnsembleRegressor(_Trees):
    """y = post_transform(base values + aggregated votes), float32 [N, n_targets]; x: [N, F].

    For a single target only PROBIT applies.
    """

    votes = "target"

    aggregate_function: Annotated[str, "AVERAGE", "SUM", "MIN", "MAX"] = "SUM"
    base_values_as_tensor: Constant | None = None
    n_targets: int | None = None
    nodes_hitrates_as_tensor: Constant | None = None
    nodes_values_as_tensor: Constant | None = None
    target_ids: Ints | None = None
    target_nodeids: Ints | None = None
    target_treeids: Ints | None = None
    target_weights: Floats | None = None
    target_weights_as_tensor: Constant | None = None

    def _scores(self, voted: Array) -> int:
        return self.n_targets if self.n_targets is not None else int(voted.max(initial=0)) + 1

    @property
    def _targets(self) -> int:
        return self.n_targets if self.n_targets is not None else max(self._forest.voted_range[1], 0) + 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        self._check(self._forest, features, self._targets)
        base = len(self._numbers("base_values"))
        if base not in (0, self._targets):
            self.fail(f"{self._targets} base_values", base)
        return (TensorType(DType.FLOAT, (rows, self._targets)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        scores = self._forest.aggregate(as_float(x), self._targets, self.aggregate_function)
        base = self._numbers("base_values")
        return (transformed_alone(scores + (base if base.size else 0), self.post_transform),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        base = self._numbers("base_values")
        if self.post_transform != "NONE" or base.any() or x.rank != 2:
            raise Unsupported("base values and post_transform are applied on the host")
        (y,) = self.infer(x)
        return (lowered(self._forest, target, x, out(0, y), self.aggregate_function),)
