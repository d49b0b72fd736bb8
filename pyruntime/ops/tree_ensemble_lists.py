"""TreeEnsembleClassifier, TreeEnsembleRegressor: forests as parallel lists of nodes and votes.

Source: ONNX operators ai.onnx.ml.TreeEnsembleClassifier, TreeEnsembleRegressor.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Target, out
from pyruntime.ops._forest import AGGREGATES, MODES, Forest, indexed, lowered, votes_of
from pyruntime.ops._ml import (
    ALL,
    Labels,
    as_float,
    binary_scores,
    check_transform,
    class_labels,
    matrix,
    transformed,
)
from pyruntime.ops.base import Op, Unsupported, op


class _Trees(Op):
    """Shared by both. The node with the first place among those of a tree id is the tree's root.

    Where a row has a single score, the first vote of a leaf counts alone, as in onnxruntime: sklearn-onnx writes paths
    through a tree as the leaf's number, once for every class.
    """

    nodes_falsenodeids: tuple[int, ...] | None
    nodes_featureids: tuple[int, ...] | None
    nodes_missing_value_tracks_true: tuple[int, ...] | None
    nodes_modes: tuple[str, ...] | None
    nodes_nodeids: tuple[int, ...] | None
    nodes_treeids: tuple[int, ...] | None
    nodes_truenodeids: tuple[int, ...] | None
    post_transform: str

    def _numbers(self, name: str) -> Array:
        """Attribute `name`, or `name`_as_tensor where that is given (double precision)."""
        tensor: Constant | None = getattr(self, f"{name}_as_tensor", None)
        if tensor is not None:
            return tensor.numpy().reshape(-1)
        return np.array(getattr(self, name) or (), np.float32)

    def _built(self, prefix: str) -> Forest:
        """The forest; `<prefix>_treeids`, `_nodeids`, `_ids` and `_weights` are its votes."""
        tree, identity = _ints(self.nodes_treeids), _ints(self.nodes_nodeids)
        modes, splits = self.nodes_modes or (), self._numbers("nodes_values")
        lists = {
            "nodes_treeids": tree,
            "nodes_nodeids": identity,
            "nodes_featureids": _ints(self.nodes_featureids),
            "nodes_modes": np.array(modes, object),
            "nodes_values": splits,
            "nodes_truenodeids": _ints(self.nodes_truenodeids),
            "nodes_falsenodeids": _ints(self.nodes_falsenodeids),
        }
        nodes = indexed(lists, "nodes")
        unknown = set(modes) - set(MODES)
        if unknown or "BRANCH_MEMBER" in modes:
            self.fail(f"nodes_modes in {', '.join(m for m in MODES if m != 'BRANCH_MEMBER')}", sorted(unknown))
        place = {key: i for i, key in reversed(list(enumerate(zip(tree.tolist(), identity.tolist(), strict=True))))}
        tracks = _ints(self.nodes_missing_value_tracks_true or (0,) * nodes) != 0
        indexed({"nodes_missing_value_tracks_true": tracks, "nodes_modes": lists["nodes_modes"]}, "nodes")
        mode = np.array([MODES.index(m) for m in modes], np.intp)
        inner = mode != MODES.index("LEAF")
        yes, no = (self._children(place, tree, lists[f"nodes_{b}nodeids"], inner) for b in ("true", "false"))
        return Forest(
            feature=lists["nodes_featureids"],
            mode=mode,
            split=splits,
            yes=yes,
            no=no,
            nan_is_yes=tracks,
            roots=np.sort(np.unique(tree, return_index=True)[1]),
            members={},
            **dict(zip(("first_vote", "vote_target", "vote_weight"), self._votes(prefix, place, nodes), strict=True)),
        )

    def _children(self, place: dict[tuple[int, int], int], tree: Array, identity: Array, inner: Array) -> Array:
        keys = zip(tree.tolist(), identity.tolist(), inner.tolist(), strict=True)
        return np.array([place.get((t, i), -1) if used else 0 for t, i, used in keys], np.intp)

    def _votes(self, prefix: str, place: dict[tuple[int, int], int], nodes: int) -> tuple[Array, Array, Array]:
        trees, identities = (_ints(getattr(self, f"{prefix}_{part}")) for part in ("treeids", "nodeids"))
        targets, weights = _ints(getattr(self, f"{prefix}_ids")), self._numbers(f"{prefix}_weights")
        lists = {"treeids": trees, "nodeids": identities, "ids": targets, "weights": weights}
        indexed({f"{prefix}_{name}": values for name, values in lists.items()}, "votes")
        keys = list(zip(trees.tolist(), identities.tolist(), strict=True))
        strangers = [key for key in keys if key not in place]
        if strangers:
            self.fail("votes of nodes that exist", f"node {strangers[0][1]} of tree {strangers[0][0]}")
        owners = _ints([place[key] for key in keys])
        if self._scores(targets) == 1:
            first = np.sort(np.unique(owners, return_index=True)[1])
            owners, targets, weights = owners[first], targets[first], weights[first]
        return votes_of(nodes, owners, targets, weights)

    def _scores(self, voted: Array) -> int:
        """How many scores a row has; `voted`: for which of them there are votes."""
        raise NotImplementedError

    def _check(self, forest: Forest, features: int, targets: int) -> None:
        check_transform(self, self.post_transform)
        problem = forest.problem(features, targets)
        if problem:
            self.fail("a forest", problem)


def _ints(values: Sequence[int] | None) -> Array:
    return np.array(values or (), np.intp)


class _Classifier(_Trees):
    """Scores: base values plus the votes for each class. x: [N, F]; y: labels [N]; z: float32 scores [N, E].

    Two classes of which one alone has votes (class number 0, as exporters write it): its sum s belongs to the second.
    Where no weight is negative s is a probability: the second is chosen above 1/2 and the scores are (1 - s, s);
    else it is chosen above 0 and they are (-s, s). LOGISTIC and the softmaxes are applied to (-s, s). Votes for class
    number 1 alone give (0, s), chosen alike. A single class: label 1 where s > 0, else 0.
    """

    classlabels_int64s: tuple[int, ...] | None
    classlabels_strings: tuple[str, ...] | None

    @cached_property
    def _forest(self) -> Forest:
        return self._built("class")

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
        voted = np.unique(forest.vote_target)
        if len(labels) == 2 and len(voted) == 1 and base.size < 2:
            score = scores[:, voted] + (base[0] if base.size else 0)
            probability = bool((forest.vote_weight >= 0).all())
            chosen = labels[(score[:, 0] > (0.5 if probability else 0)).astype(np.intp)]
            if voted[0] == 0:
                return chosen, binary_scores(score, self.post_transform, probability)
            return chosen, transformed(np.concatenate([np.zeros_like(score), score], axis=1), self.post_transform)
        scores = scores + (base if base.size else 0)
        if len(labels) == 1:
            chosen = (scores[:, 0] > 0).astype(np.intp)
            return (chosen if labels.dtype is DType.INT64 else chosen.astype(str).astype(object)), scores
        return labels[scores.argmax(axis=1)], transformed(scores, self.post_transform)


@op("TreeEnsembleClassifier", domain="ai.onnx.ml", opsets=range(3, ALL.stop))
class TreeEnsembleClassifier(_Classifier):
    """Thresholds, weights and base values may be tensors of doubles."""

    base_values: tuple[float, ...] | None = None
    base_values_as_tensor: Constant | None = None
    class_ids: tuple[int, ...] | None = None
    class_nodeids: tuple[int, ...] | None = None
    class_treeids: tuple[int, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    class_weights_as_tensor: Constant | None = None
    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    nodes_falsenodeids: tuple[int, ...] | None = None
    nodes_featureids: tuple[int, ...] | None = None
    nodes_hitrates: tuple[float, ...] | None = None
    nodes_hitrates_as_tensor: Constant | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, ...] | None = None
    nodes_nodeids: tuple[int, ...] | None = None
    nodes_treeids: tuple[int, ...] | None = None
    nodes_truenodeids: tuple[int, ...] | None = None
    nodes_values: tuple[float, ...] | None = None
    nodes_values_as_tensor: Constant | None = None
    post_transform: str = "NONE"


@op("TreeEnsembleClassifier", domain="ai.onnx.ml", opsets=range(1, 3))
class TreeEnsembleClassifierFloat(_Classifier):
    """All numbers are floats."""

    base_values: tuple[float, ...] | None = None
    class_ids: tuple[int, ...] | None = None
    class_nodeids: tuple[int, ...] | None = None
    class_treeids: tuple[int, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    classlabels_int64s: tuple[int, ...] | None = None
    classlabels_strings: tuple[str, ...] | None = None
    nodes_falsenodeids: tuple[int, ...] | None = None
    nodes_featureids: tuple[int, ...] | None = None
    nodes_hitrates: tuple[float, ...] | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, ...] | None = None
    nodes_nodeids: tuple[int, ...] | None = None
    nodes_treeids: tuple[int, ...] | None = None
    nodes_truenodeids: tuple[int, ...] | None = None
    nodes_values: tuple[float, ...] | None = None
    post_transform: str = "NONE"


class _Regressor(_Trees):
    """y = post_transform(base values + aggregated votes), float32 [N, n_targets]; x: [N, F]."""

    aggregate_function: str
    n_targets: int | None

    @cached_property
    def _forest(self) -> Forest:
        return self._built("target")

    def _scores(self, voted: Array) -> int:
        return self.n_targets if self.n_targets is not None else int(voted.max(initial=0)) + 1

    @property
    def _targets(self) -> int:
        return self._scores(self._forest.vote_target)

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        rows, features = matrix(self, x)
        self._check(self._forest, features, self._targets)
        if self.aggregate_function not in AGGREGATES:
            self.fail(f"aggregate_function in {', '.join(AGGREGATES)}", self.aggregate_function)
        base = len(self._numbers("base_values"))
        if base not in (0, self._targets):
            self.fail(f"{self._targets} base_values", base)
        return (TensorType(DType.FLOAT, (rows, self._targets)),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        scores = self._forest.aggregate(as_float(x), self._targets, self.aggregate_function)
        base = self._numbers("base_values")
        return (transformed(scores + (base if base.size else 0), self.post_transform),)

    def lower(self, target: Target, x: TensorType) -> tuple[Dispatch, ...]:
        base = self._numbers("base_values")
        if self.post_transform != "NONE" or base.any() or x.rank != 2:
            raise Unsupported("base values and post_transform are applied on the host")
        (y,) = self.infer(x)
        return (lowered(self._forest, target, x, out(0, y), self.aggregate_function),)


@op("TreeEnsembleRegressor", domain="ai.onnx.ml", opsets=range(3, ALL.stop))
class TreeEnsembleRegressor(_Regressor):
    """Thresholds, weights and base values may be tensors of doubles."""

    aggregate_function: str = "SUM"
    base_values: tuple[float, ...] | None = None
    base_values_as_tensor: Constant | None = None
    n_targets: int | None = None
    nodes_falsenodeids: tuple[int, ...] | None = None
    nodes_featureids: tuple[int, ...] | None = None
    nodes_hitrates: tuple[float, ...] | None = None
    nodes_hitrates_as_tensor: Constant | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, ...] | None = None
    nodes_nodeids: tuple[int, ...] | None = None
    nodes_treeids: tuple[int, ...] | None = None
    nodes_truenodeids: tuple[int, ...] | None = None
    nodes_values: tuple[float, ...] | None = None
    nodes_values_as_tensor: Constant | None = None
    post_transform: str = "NONE"
    target_ids: tuple[int, ...] | None = None
    target_nodeids: tuple[int, ...] | None = None
    target_treeids: tuple[int, ...] | None = None
    target_weights: tuple[float, ...] | None = None
    target_weights_as_tensor: Constant | None = None


@op("TreeEnsembleRegressor", domain="ai.onnx.ml", opsets=range(1, 3))
class TreeEnsembleRegressorFloat(_Regressor):
    """All numbers are floats."""

    aggregate_function: str = "SUM"
    base_values: tuple[float, ...] | None = None
    n_targets: int | None = None
    nodes_falsenodeids: tuple[int, ...] | None = None
    nodes_featureids: tuple[int, ...] | None = None
    nodes_hitrates: tuple[float, ...] | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, ...] | None = None
    nodes_nodeids: tuple[int, ...] | None = None
    nodes_treeids: tuple[int, ...] | None = None
    nodes_truenodeids: tuple[int, ...] | None = None
    nodes_values: tuple[float, ...] | None = None
    post_transform: str = "NONE"
    target_ids: tuple[int, ...] | None = None
    target_nodeids: tuple[int, ...] | None = None
    target_treeids: tuple[int, ...] | None = None
    target_weights: tuple[float, ...] | None = None
