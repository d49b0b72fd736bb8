"""Decision forests: representation and evaluation for all tree operators. Source: ONNX ai.onnx.ml.TreeEnsemble*."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, Constant, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, constant, inp, launch
from pyruntime.ops.base import Unsupported

__all__ = ["AGGREGATES", "LEAF", "MEMBER", "MODES", "Forest", "by_owner", "indexed", "integers", "lowered"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
"""Comparisons of a node, indexed by TreeEnsemble's code; a leaf compares nothing."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

MEMBER, LEAF = MODES.index("BRANCH_MEMBER"), MODES.index("LEAF")
_COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over nodes 0 .. n - 1; leaves have weighted votes for targets.

    Attributes:
        feature, mode, split: per node; an inner node compares x[feature] with split as MODES[mode] says.
        follow: [n, 2], the next node if the comparison is false, and if it is true.
        nan_is_yes: per node, whether NaN (a missing value) counts as true.
        roots: one node per tree.
        first_member, members: for a BRANCH_MEMBER node i, the set members[first_member[i] : first_member[i + 1]].
        first_vote: node i has votes first_vote[i] .. first_vote[i + 1] - 1.
        vote_target, vote_weight: per vote.

    All integers are 32-bit, except for `mode` (8-bit).
    """

    feature: Array
    mode: Array
    split: Array
    follow: Array
    nan_is_yes: Array
    roots: Array
    first_member: Array
    members: Array
    first_vote: Array
    vote_target: Array
    vote_weight: Array

    def problem(self, features: int, targets: int) -> str | None:
        """Return why the forest is invalid for x of `features` columns, or None.

        Checks the ranges of indices, and that there are no cycles.
        """
        nodes = len(self.mode)
        for name, (least, greatest), most in (
            ("feature", self._feature_range, features),
            ("child", self._child_range, nodes),
            ("root", _range(self.roots), nodes),
            ("target", self.voted_range, targets),
        ):
            if least < 0 or greatest >= most:
                return f"{name} {least if least < 0 else greatest} is not below {most}"
        return None if self.depth is not None else "its nodes form a cycle"

    @cached_property
    def _inner(self) -> Array:
        return np.flatnonzero(self.mode != LEAF)

    @cached_property
    def _feature_range(self) -> tuple[int, int]:
        return _range(self.feature[self._inner])

    @cached_property
    def _child_range(self) -> tuple[int, int]:
        return _range(self.follow[self._inner])

    @cached_property
    def voted_range(self) -> tuple[int, int]:
        """Smallest and largest target with votes; (0, -1) if there are no votes."""
        return _range(self.vote_target)

    @cached_property
    def has_negative_votes(self) -> bool:
        """Whether any vote has a negative weight."""
        return bool((self.vote_weight < 0).any())

    @cached_property
    def depth(self) -> int | None:
        """Number of nodes on the longest path from a root to a leaf; None if there is a cycle or an invalid child."""
        is_inner = self.mode != LEAF
        if self._child_range[0] < 0 or self._child_range[1] >= len(is_inner):
            return None
        parents = np.bincount(self.follow[self._inner].reshape(-1), minlength=len(is_inner))
        is_plain = parents.max(initial=0) <= 1  # no node has two parents
        here, left, depth = np.flatnonzero(parents == 0), len(is_inner), 0
        while here.size:
            left -= here.size
            depth += 1
            children = self.follow[here[is_inner[here]]].reshape(-1)
            if is_plain:
                here = children
                continue
            children, edges = np.unique(children, return_counts=True)
            parents[children] -= edges
            here = children[parents[children] == 0]
        return None if left else depth

    @cached_property
    def _only_mode(self) -> int | None:
        """Comparison that all inner nodes share; None if they differ or test for membership."""
        modes = np.flatnonzero(np.bincount(self.mode, minlength=len(MODES))[:LEAF])
        return int(modes[0]) if len(modes) == 1 and modes[0] != MEMBER else None

    def leaves(self, x: Array) -> Array:
        """Return the leaf that each row of x reaches in each tree, [trees, N]."""
        rows, trees = len(x), len(self.roots)
        reached = np.repeat(self.roots, rows)
        values, follow = np.ascontiguousarray(x).reshape(-1), self.follow.reshape(-1)
        has_nan = bool(np.isnan(values).any())
        place = np.flatnonzero(self.mode[reached] != LEAF)
        node = reached[place]
        begin = np.tile(np.arange(rows) * x.shape[1], trees)[place]
        while node.size:
            value = values[begin + self.feature[node]]
            answer = self._answer(node, value)
            if has_nan:
                answer = np.where(np.isnan(value), self.nan_is_yes[node], answer)
            node = follow[2 * node.astype(np.intp) + answer]
            moves = self.mode[node] != LEAF
            if not moves.all():
                reached[place[~moves]] = node[~moves]
                place, node, begin = place[moves], node[moves], begin[moves]
        return reached.reshape(trees, rows)

    def _answer(self, node: Array, value: Array) -> Array:
        if self._only_mode is not None:
            return np.asarray(_COMPARISONS[self._only_mode](value, self.split[node]))
        mode = self.mode[node]
        answer = np.zeros(node.shape, bool)
        for code, compare in enumerate(_COMPARISONS):
            chosen = np.flatnonzero(mode == code)
            if chosen.size:
                answer[chosen] = compare(value[chosen], self.split[node[chosen]])
        chosen = np.flatnonzero(mode == MEMBER)
        if chosen.size:
            answer[chosen] = self._is_member(node[chosen], value[chosen])
        return answer

    @cached_property
    def _member_keys(self) -> tuple[Array, Array]:
        """Sorted distinct members of all sets, and sorted keys: node * number of distinct members + index of member."""
        distinct, number = np.unique(self.members, return_inverse=True)
        owner = np.repeat(np.arange(len(self.mode)), np.diff(self.first_member))
        return distinct, np.sort(owner.astype(np.int64) * len(distinct) + number)

    def _is_member(self, node: Array, value: Array) -> Array:
        distinct, keys = self._member_keys
        if not keys.size:
            return np.zeros(node.shape, bool)
        number = np.minimum(np.searchsorted(distinct, value), len(distinct) - 1)
        key = node.astype(np.int64) * len(distinct) + number
        found = keys[np.minimum(np.searchsorted(keys, key), len(keys) - 1)] == key
        return np.asarray(found & (distinct[number] == value))

    def aggregate(self, x: Array, targets: int, how: str) -> Array:
        """Aggregate the votes of the reached leaves, [N, targets]; targets without votes are 0.

        Votes are summed tree after tree in float32, of float64 rows in float64, as onnxruntime does: which of two
        classes with equal sums is chosen depends on it. AVERAGE divides the sum by the number of trees.
        """
        rows = max(1, _CHUNK // max(1, len(self.roots)))
        parts = [self._aggregate(x[i : i + rows], targets, how) for i in range(0, len(x), rows)]
        return np.concatenate(parts) if parts else np.zeros((0, targets))

    def _aggregate(self, x: Array, targets: int, how: str) -> Array:
        leaf = self.leaves(x)
        flat = leaf.reshape(-1)
        start = self.first_vote[flat].astype(np.intp)
        count = self.first_vote[flat + 1] - start
        row = np.broadcast_to(np.arange(len(x)), leaf.shape).reshape(-1)
        if count.size and count.min() == count.max() == 1:
            vote = start
        else:
            row = np.repeat(row, count)
            vote = np.repeat(start - (np.cumsum(count) - count), count) + np.arange(count.sum())
        place = row * targets + self.vote_target[vote]
        weight = self.vote_weight[vote].astype(np.float64 if x.dtype == np.float64 else np.float32)
        size = len(x) * targets
        if how in ("SUM", "AVERAGE"):
            total = np.zeros(size, weight.dtype)
            np.add.at(total, place, weight)
            return (total / weight.dtype.type(len(self.roots)) if how == "AVERAGE" else total).reshape(len(x), targets)
        result = np.full(size, np.inf if how == "MIN" else -np.inf, weight.dtype)
        (np.minimum if how == "MIN" else np.maximum).at(result, place, weight)
        voted = np.bincount(place, minlength=size) > 0
        return np.where(voted, result, 0).reshape(len(x), targets)


def _range(values: Array) -> tuple[int, int]:
    return (int(values.min()), int(values.max())) if values.size else (0, -1)


def lowered(forest: Forest, target: Target, x: TensorType, y: Operand, how: str) -> Dispatch:
    """Return the dispatch that writes `aggregate` of input 0 to y, a float tensor [N, targets].

    Raises:
        Unsupported: thresholds are not exact in float32, or the input is not a float tensor.
    """
    if x.dtype.compute != "f32":
        raise Unsupported(f"{x.dtype.onnx_name} is compared on the host")
    compared = np.concatenate([forest.split[forest.mode < MEMBER], forest.members])
    if compared.dtype != np.float32 and (compared.astype(np.float32) != compared).any():
        raise Unsupported("thresholds in double precision are compared on the host")
    nodes = (
        forest.feature,
        forest.mode.astype(np.int32) + 8 * forest.nan_is_yes,
        forest.follow[:, 1],
        forest.follow[:, 0],
        forest.first_vote[:-1],
        forest.first_vote[1:],
        forest.first_member[:-1],
        forest.first_member[1:],
    )
    table = np.concatenate([np.stack(nodes, axis=1).reshape(-1), forest.roots, forest.vote_target]).astype(np.int32)
    numbers = np.concatenate([forest.split, forest.vote_weight, forest.members]).astype(np.float32)
    values = {
        "size": y.type.size,
        "targets": y.type.shape[1],
        "features": x.shape[1],
        "nodes": len(forest.mode),
        "trees": len(forest.roots),
        "depth": forest.depth or 0,
        "votes": len(forest.vote_weight),
    }
    held = {n: constant(Constant.from_array(v)) for n, v in (("table", table), ("numbers", numbers))}
    tensors = {"x": inp(0, x), **held, "y": y}
    return launch("forest", tensors, target.grid(y.type.size), {"AGGREGATE": AGGREGATES.index(how)}, values)


def by_owner(nodes: int, owner: Array) -> tuple[Array, Array]:
    """Group elements by the node that owns them; returns where each node's group starts, and the element order."""
    first = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=nodes), out=first[1:])
    return first, np.argsort(owner, kind="stable") if (np.diff(owner) < 0).any() else np.arange(len(owner))


def integers(values: Sequence[int] | None) -> Array:
    """Return an integer list as an array, int32 [0] for an empty or absent list."""
    return np.asarray(values if values else np.zeros(0, np.int32))


def indexed(lists: Mapping[str, Array], what: str) -> int:
    """Return the common length of parallel lists. Raises InvalidGraph if lengths differ."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) != 1:
        raise errors.InvalidGraph(f"expected lists of one length for {what}, got {lengths}")
    return next(iter(lengths.values()))
