"""Decision forests: what the tree operators share. Source: ONNX operators ai.onnx.ml.TreeEnsemble*."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pyruntime import errors
from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Dispatch, Operand, Target, constant, inp, params_of, template
from pyruntime.ops.base import Unsupported

__all__ = ["AGGREGATES", "MODES", "Forest", "indexed", "lowered", "votes_of"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
"""Comparisons of a node, by TreeEnsemble's code; a leaf compares nothing."""

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

_LEAF, _MEMBER = MODES.index("LEAF"), MODES.index("BRANCH_MEMBER")
_COMPARISONS = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over nodes 0 .. n - 1; a leaf casts votes.

    Attributes:
        feature, mode, split: per node; an inner node compares x[feature] with split as MODES says.
        yes, no: the nodes that follow, per node.
        nan_is_yes: per node, where a missing value (NaN) goes.
        roots: one node per tree.
        members: the set of every node of mode BRANCH_MEMBER, by node.
        first_vote: votes of node i are first_vote[i] .. first_vote[i + 1] - 1.
        vote_target, vote_weight: per vote.

    Integers are np.intp, which has 32 bits under WebAssembly: NumPy counts and repeats with nothing else.
    """

    feature: Array
    mode: Array
    split: Array
    yes: Array
    no: Array
    nan_is_yes: Array
    roots: Array
    members: dict[int, Array]
    first_vote: Array
    vote_target: Array
    vote_weight: Array

    def problem(self, features: int, targets: int) -> str | None:
        """What is wrong with the forest for x of `features` columns, or None. Trees must not have cycles."""
        nodes = len(self.mode)
        inner = self.mode != _LEAF
        for name, values, most in (
            ("feature", self.feature[inner], features),
            ("child", np.concatenate([self.yes[inner], self.no[inner]]), nodes),
            ("root", self.roots, nodes),
            ("target", self.vote_target, targets),
        ):
            outside = values[(values < 0) | (values >= most)]
            if outside.size:
                return f"{name} {int(outside[0])} is not below {most}"
        return None if self.depth is not None else "its nodes form a cycle"

    @cached_property
    def depth(self) -> int | None:
        """The longest way from a root to a leaf, in nodes; None where there is a cycle."""
        inner = self.mode != _LEAF
        parents = np.bincount(np.concatenate([self.yes[inner], self.no[inner]]), minlength=len(inner))
        here, left, depth = np.flatnonzero(parents == 0), len(inner), 0
        while here.size:
            left -= here.size
            depth += 1
            inside = here[inner[here]]
            children, edges = np.unique(np.concatenate([self.yes[inside], self.no[inside]]), return_counts=True)
            parents[children] -= edges
            here = children[parents[children] == 0]
        return None if left else depth

    def leaves(self, x: Array) -> Array:
        """The leaf that every row of x reaches in every tree, [N, trees]."""
        at = np.broadcast_to(self.roots, (len(x), len(self.roots))).copy()
        row = np.broadcast_to(np.arange(len(x))[:, None], at.shape)
        active = self.mode[at] != _LEAF
        while active.any():
            node = at[active]
            value = x[row[active], self.feature[node]]
            answer = np.where(np.isnan(value), self.nan_is_yes[node], self._answer(node, value))
            at[active] = np.where(answer, self.yes[node], self.no[node])
            active = self.mode[at] != _LEAF
        return at

    def _answer(self, node: Array, value: Array) -> Array:
        mode = self.mode[node]
        answer = np.zeros(node.shape, bool)
        for code, compare in enumerate(_COMPARISONS):
            chosen = mode == code
            if chosen.any():
                answer[chosen] = compare(value[chosen], self.split[node[chosen]])
        for place in np.flatnonzero(mode == _MEMBER):
            answer[place] = value[place] in self.members[int(node[place])]
        return answer

    def aggregate(self, x: Array, targets: int, how: str) -> Array:
        """What the votes of the leaves come to, float64 [N, targets]; targets without votes are 0.

        AVERAGE divides the sum by the number of trees.
        """
        rows = max(1, _CHUNK // max(1, len(self.roots)))
        parts = [self._aggregate(x[i : i + rows], targets, how) for i in range(0, len(x), rows)]
        return np.concatenate(parts) if parts else np.zeros((0, targets))

    def _aggregate(self, x: Array, targets: int, how: str) -> Array:
        leaf = self.leaves(x)
        count = self.first_vote[leaf + 1] - self.first_vote[leaf]
        row = np.repeat(np.arange(len(x)), count.sum(axis=1))
        flat, start = count.reshape(-1), self.first_vote[leaf].reshape(-1)
        vote = np.repeat(start - (np.cumsum(flat) - flat), flat) + np.arange(flat.sum())
        place = row * targets + self.vote_target[vote]
        weight = self.vote_weight[vote].astype(np.float64)
        size = len(x) * targets
        if how in ("SUM", "AVERAGE"):
            total = np.bincount(place, weight, size)
            return (total / len(self.roots) if how == "AVERAGE" else total).reshape(len(x), targets)
        result = np.full(size, np.inf if how == "MIN" else -np.inf)
        (np.minimum if how == "MIN" else np.maximum).at(result, place, weight)
        voted = np.bincount(place, minlength=size) > 0
        return np.where(voted, result, 0).reshape(len(x), targets)


def lowered(forest: Forest, target: Target, x: TensorType, y: Operand, how: str) -> Dispatch:
    """The kernel that computes `aggregate` into y, a float tensor [N, targets], from input 0.

    Raises:
        Unsupported: thresholds that are no float32, or no float input.
    """
    if x.dtype.compute != "f32":
        raise Unsupported(f"{x.dtype.onnx_name} is compared on the host")
    sets = [forest.members.get(node, np.zeros(0)) for node in range(len(forest.mode))]
    compared = np.concatenate([forest.split[forest.mode < _MEMBER], *sets])
    if (compared.astype(np.float32) != compared).any():
        raise Unsupported("thresholds in double precision are compared on the host")
    ends = np.cumsum([0, *(len(s) for s in sets)])
    nodes = np.stack(
        [
            forest.feature,
            forest.mode + 8 * forest.nan_is_yes,
            forest.yes,
            forest.no,
            forest.first_vote[:-1],
            forest.first_vote[1:],
            ends[:-1],
            ends[1:],
        ],
        axis=1,
    )
    table = np.concatenate([nodes.reshape(-1), forest.roots, forest.vote_target]).astype(np.int32)
    numbers = np.concatenate([forest.split, forest.vote_weight, *sets]).astype(np.float32)
    kernel = template(
        "forest", {"x": x.dtype, "table": DType.INT32, "y": y.type.dtype}, AGGREGATE=AGGREGATES.index(how)
    )
    params = params_of(
        kernel,
        size=y.type.size,
        targets=y.type.shape[1],
        features=x.shape[1],
        nodes=len(forest.mode),
        trees=len(forest.roots),
        depth=forest.depth or 0,
        votes=len(forest.vote_weight),
    )
    operands = (inp(0, x), constant(Constant.from_array(table)), constant(Constant.from_array(numbers)), y)
    return Dispatch(kernel, operands, target.grid(y.type.size), params)


def votes_of(nodes: int, owner: Array, target: Array, weight: Array) -> tuple[Array, Array, Array]:
    """(first_vote, vote_target, vote_weight) from votes in any order; `owner` is the node each belongs to."""
    order = np.argsort(owner, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=nodes))]).astype(np.intp)
    return first, target[order], weight[order]


def indexed(lists: dict[str, Array], what: str) -> int:
    """The one length of parallel lists. Raises InvalidGraph where they differ."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) != 1:
        raise errors.InvalidGraph(f"expected lists of one length for {what}, got {lengths}")
    return next(iter(lengths.values()))
