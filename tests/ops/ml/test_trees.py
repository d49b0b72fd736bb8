"""ai.onnx.ml: decision forests on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from pyruntime import errors
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def forest(trees: int, depth: int, modes: list[str], features: int = 4, seed: int = 1) -> dict[str, Any]:
    """Complete random trees as parallel lists; leaves are the last 2**depth nodes of each."""
    random = np.random.default_rng(seed)
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    lists: dict[str, Any] = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "modes", "values")}
    lists |= {f"nodes_{k}": [] for k in ("truenodeids", "falsenodeids", "missing_value_tracks_true")}
    for tree in range(trees):
        for node in range(nodes):
            leaf = node >= inner
            lists["nodes_treeids"].append(tree)
            lists["nodes_nodeids"].append(node)
            lists["nodes_featureids"].append(0 if leaf else int(random.integers(features)))
            lists["nodes_modes"].append("LEAF" if leaf else modes[int(random.integers(len(modes)))])
            lists["nodes_values"].append(0.0 if leaf else float(random.integers(-2, 3)) / 2)
            lists["nodes_truenodeids"].append(0 if leaf else 2 * node + 1)
            lists["nodes_falsenodeids"].append(0 if leaf else 2 * node + 2)
            lists["nodes_missing_value_tracks_true"].append(int(random.integers(2)))
    return lists


def votes(trees: int, depth: int, targets: int, prefix: str, positive: bool = False, seed: int = 2) -> dict[str, Any]:
    """One vote for every target in every leaf."""
    random = np.random.default_rng(seed)
    made: dict[str, Any] = {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        for leaf in range(2**depth - 1, 2 ** (depth + 1) - 1):
            for target in range(targets):
                made[f"{prefix}_treeids"].append(tree)
                made[f"{prefix}_nodeids"].append(leaf)
                made[f"{prefix}_ids"].append(target)
                weight = float(random.random())
                made[f"{prefix}_weights"].append(weight if positive else weight - 0.5)
    return made


def check(op_type: str, x: Array, outputs: int = 1, opset: int = 1, **attributes: Any) -> None:
    check_against_ort(op_type, [x], opset=15, outputs=outputs, domain=ML, domain_opset=opset, **attributes)


def run(op_type: str, x: Array, outputs: int = 1, opset: int = 1, **attributes: Any) -> list[Any]:
    return run_op(make_op(node_of(op_type, [x], outputs, ML, **attributes), {"": 15, ML: opset}), [x])


# Halves, so that comparisons meet equal values.
X = np.round(noise(40, 4) * 2) / 2


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], ["BRANCH_LT"], MODES])
@pytest.mark.parametrize("targets", [1, 3])
def test_tree_regressor__modes_and_aggregates__as_onnxruntime(aggregate: str, modes: list[str], targets: int) -> None:
    trees = forest(5, 3, modes) | votes(5, 3, targets, "target")
    base = [0.5, 1.0, -1.0][:targets]
    check("TreeEnsembleRegressor", X, n_targets=targets, aggregate_function=aggregate, **trees)
    check("TreeEnsembleRegressor", X, n_targets=targets, aggregate_function=aggregate, base_values=base, **trees)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_tree_regressor__input_types__as_float(dtype: Any) -> None:
    trees = forest(3, 2, ["BRANCH_LEQ"]) | votes(3, 2, 2, "target")
    x = (X * 2).astype(dtype)
    if dtype is np.float64:
        check_against_ort("TreeEnsembleRegressor", [x], opset=15, domain=ML, tolerance=(0, 0), n_targets=2, **trees)
        return
    got = run("TreeEnsembleRegressor", x, n_targets=2, **trees)[0]
    np.testing.assert_array_equal(got, run("TreeEnsembleRegressor", x.astype(np.float32), n_targets=2, **trees)[0])


def test_tree_regressor__missing_values__as_onnxruntime() -> None:
    x = X.copy()
    x[::2, ::2] = np.nan
    trees = forest(5, 3, ["BRANCH_LEQ"]) | votes(5, 3, 2, "target")
    check("TreeEnsembleRegressor", x, n_targets=2, **trees)


def test_tree_regressor__doubles_as_tensors__thresholds_in_double_precision() -> None:
    trees = forest(1, 1, ["BRANCH_LT"], features=1)
    del trees["nodes_values"]
    threshold = onnx.numpy_helper.from_array(np.array([0.1, 0, 0]))
    weights = onnx.numpy_helper.from_array(np.array([1.0, 2.0]))
    leaves = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0]}
    attributes = trees | leaves | {"nodes_values_as_tensor": threshold, "target_weights_as_tensor": weights}
    x = np.array([[0.1], [np.nextafter(0.1, 0)], [np.float64(np.float32(0.1))]])
    got = run("TreeEnsembleRegressor", x, opset=3, n_targets=1, **attributes)[0]
    assert got.ravel().tolist() == [2, 1, 2]


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_tree_classifier__three_classes__as_onnxruntime(transform: str) -> None:
    trees = forest(4, 3, ["BRANCH_LEQ"]) | votes(4, 3, 3, "class")
    base: dict[str, Any] = {"base_values": [0.1, 0.2, 0.3]}
    check("TreeEnsembleClassifier", X, 2, classlabels_int64s=[4, 5, 6], post_transform=transform, **trees)
    check(
        "TreeEnsembleClassifier", X, 2, classlabels_strings=["a", "b", "c"], post_transform=transform, **trees, **base
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("labels", [{"classlabels_int64s": [7, 9]}, {"classlabels_strings": ["n", "p"]}])
def test_tree_classifier__two_labels_one_voted__as_onnxruntime(transform: str, positive: bool, labels: Any) -> None:
    trees = forest(3, 2, ["BRANCH_LEQ"]) | votes(3, 2, 1, "class", positive)
    trees["class_weights"] = [w / 3 for w in trees["class_weights"]]
    check("TreeEnsembleClassifier", X, 2, post_transform=transform, **labels, **trees)
    check("TreeEnsembleClassifier", X, 2, post_transform=transform, base_values=[0.25], **labels, **trees)
    trees["class_ids"] = [1] * len(trees["class_ids"])
    if transform == "NONE":
        check("TreeEnsembleClassifier", X, 2, **labels, **trees)


def test_tree_classifier__negative_votes_for_one_label_of_three__lose_to_labels_without_votes() -> None:
    """As in ONNX's reference; onnxruntime leaves these labels out (docs/DIFFERENCES.md)."""
    trees = forest(1, 1, ["BRANCH_LEQ"])
    trees |= {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [1, 0], "class_weights": [-0.5, 0.3]}
    x = np.array([[-9, -9, -9, -9], [9, 9, 9, 9]], np.float32)
    labels, scores = run("TreeEnsembleClassifier", x, 2, classlabels_int64s=[4, 5, 6], **trees)
    assert labels.tolist() == [4, 4]
    np.testing.assert_array_equal(scores, np.array([[0, -0.5, 0], [0.3, 0, 0]], np.float32))


def listed(model: Any, prefix: str, binary: bool = False) -> dict[str, Any]:
    """A fitted scikit-learn forest as attributes; every leaf votes its value over the number of trees."""
    lists: dict[str, Any] = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "modes", "values")}
    lists |= {f"nodes_{k}": [] for k in ("truenodeids", "falsenodeids")}
    lists |= {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for number, estimator in enumerate(model.estimators_):
        tree = estimator.tree_
        for node in range(tree.node_count):
            leaf = tree.children_left[node] < 0
            lists["nodes_treeids"].append(number)
            lists["nodes_nodeids"].append(node)
            lists["nodes_featureids"].append(max(0, int(tree.feature[node])))
            lists["nodes_modes"].append("LEAF" if leaf else "BRANCH_LEQ")
            lists["nodes_values"].append(float(tree.threshold[node]))
            lists["nodes_truenodeids"].append(max(0, int(tree.children_left[node])))
            lists["nodes_falsenodeids"].append(max(0, int(tree.children_right[node])))
            for target, weight in enumerate(tree.value[node].ravel() if leaf else ()):
                lists[f"{prefix}_treeids"].append(number)
                lists[f"{prefix}_nodeids"].append(node)
                lists[f"{prefix}_ids"].append(target)
                lists[f"{prefix}_weights"].append(float(weight) / len(model.estimators_))
    return lists


def test_tree_regressor__random_forest__as_scikit_learn() -> None:
    x = noise(80, 4)
    model = RandomForestRegressor(n_estimators=8, random_state=0).fit(x, x[:, 0] * x[:, 1])
    got = run("TreeEnsembleRegressor", x, n_targets=1, **listed(model, "target"))[0]
    np.testing.assert_allclose(got[:, 0], model.predict(x), atol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_tree_classifier__random_forest__as_scikit_learn(classes: int) -> None:
    # With two classes that both have votes onnxruntime answers 1 whatever the scores.
    x = noise(80, 4)
    model = RandomForestClassifier(n_estimators=7, random_state=0).fit(x, (np.abs(x[:, 0]) * 5).astype(int) % classes)
    label, score = run(
        "TreeEnsembleClassifier", x, 2, classlabels_int64s=list(range(classes)), **listed(model, "class")
    )
    np.testing.assert_allclose(score, model.predict_proba(x), atol=1e-6)
    np.testing.assert_array_equal(label, model.predict(x))


def ensemble(dtype: Any, modes: list[int], **more: Any) -> dict[str, Any]:
    """Opset 5: three nodes, four leaves, one tree: node 0 tests feature 0, nodes 1 and 2 feature 1."""
    return {
        "tree_roots": [0],
        "nodes_modes": onnx.numpy_helper.from_array(np.array(modes, np.uint8)),
        "nodes_splits": onnx.numpy_helper.from_array(np.array([0, 0.5, -0.5], dtype)),
        "nodes_featureids": [0, 1, 1],
        "nodes_truenodeids": [1, 0, 2],
        "nodes_falsenodeids": [2, 1, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falseleafs": [0, 1, 1],
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": onnx.numpy_helper.from_array(np.array([1, 2, 3, 4], dtype)),
        "n_targets": 2,
        **more,
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", range(6))
def test_tree_ensemble__modes_and_types__as_onnxruntime(dtype: Any, mode: int) -> None:
    check("TreeEnsemble", X[:, :2].astype(dtype), opset=5, **ensemble(dtype, [mode] * 3))


def test_tree_ensemble__post_transforms__numbered_as_the_specification_says() -> None:
    # onnxruntime takes 1 for LOGISTIC and 2 for SOFTMAX.
    x = X[:, :2]
    score = run("TreeEnsemble", x, opset=5, **ensemble(np.float32, [0] * 3))[0]
    weights = np.exp(score)
    expected = [score, weights / weights.sum(axis=1, keepdims=True), weights / (1 + weights)]
    for number, y in enumerate(expected):
        got = run("TreeEnsemble", x, opset=5, post_transform=number, **ensemble(np.float32, [0] * 3))[0]
        np.testing.assert_allclose(got, y, rtol=1e-6)


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_tree_ensemble__two_trees__aggregated_as_onnxruntime(aggregate: int) -> None:
    trees = ensemble(np.float32, [0, 0, 1]) | {"tree_roots": [0, 1]}
    # onnxruntime wants trees apart: nodes 3 to 5 and leaves 4 to 7 are the second.
    trees |= {"tree_roots": [0, 3], "nodes_featureids": [0, 1, 1, 1, 0, 0], "leaf_targetids": [0, 1, 0, 1] * 2}
    trees |= {"nodes_truenodeids": [1, 0, 2, 4, 4, 6], "nodes_falsenodeids": [2, 1, 3, 5, 5, 7]}
    trees |= {"nodes_trueleafs": [0, 1, 1] * 2, "nodes_falseleafs": [0, 1, 1] * 2}
    trees["nodes_modes"] = onnx.numpy_helper.from_array(np.array([0, 0, 1] * 2, np.uint8))
    trees["nodes_splits"] = onnx.numpy_helper.from_array(np.array([0, 0.5, -0.5] * 2, np.float32))
    trees["leaf_weights"] = onnx.numpy_helper.from_array(np.arange(1, 9).astype(np.float32))
    check("TreeEnsemble", X[:, :2], opset=5, aggregate_function=aggregate, **trees)


def test_tree_ensemble__set_membership__members_go_true() -> None:
    sets = onnx.numpy_helper.from_array(np.array([0.5, 1.0, np.nan, -1.0, np.nan], np.float32))
    trees = ensemble(np.float32, [6, 0, 6], membership_values=sets)
    x = np.array([[0.5, 0.0], [1.0, 2.0], [0.0, -1.0], [0.0, 0.0], [np.nan, -1.0]], np.float32)
    got = run("TreeEnsemble", x, opset=5, **trees)[0]
    np.testing.assert_array_equal(got, [[1, 0], [0, 2], [3, 0], [0, 4], [3, 0]])


def test_tree_ensemble__float16__its_own_type() -> None:
    got = run("TreeEnsemble", X[:, :2].astype(np.float16), opset=5, **ensemble(np.float16, [0] * 3))[0]
    expected = run("TreeEnsemble", X[:, :2], opset=5, **ensemble(np.float32, [0] * 3))[0]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": [0, 0, 2]}, "cycle"),
        ({"nodes_truenodeids": [9, 0, 2]}, "child 9"),
        ({"nodes_featureids": [0, 7, 1]}, "feature 7"),
        ({"leaf_targetids": [0, 1, 0, 5]}, "target 5"),
        ({"tree_roots": [12]}, "root 12"),
        ({"nodes_featureids": [0, 1]}, "one length"),
    ],
)
def test_tree_ensemble__malformed__invalid_graph(change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidGraph, match=message):
        run("TreeEnsemble", X[:, :2], opset=5, **(ensemble(np.float32, [0] * 3) | change))


def test_tree_regressor__no_rows__empty() -> None:
    trees = forest(2, 2, ["BRANCH_LEQ"]) | votes(2, 2, 2, "target")
    assert run("TreeEnsembleRegressor", X[:0], n_targets=2, **trees)[0].shape == (0, 2)


def twice(lists: dict[str, Any]) -> dict[str, Any]:
    """Every vote once more, with another weight."""
    return {k: v + ([2 * w + 0.25 for w in v] if k.endswith("_weights") else v) for k, v in lists.items()}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_tree_regressor__two_votes_of_a_leaf_for_a_target__as_onnxruntime(targets: int, aggregate: str) -> None:
    trees = forest(3, 2, ["BRANCH_LEQ"]) | twice(votes(3, 2, targets, "target"))
    trees |= {"n_targets": targets, "aggregate_function": aggregate}
    check_against_ort("TreeEnsembleRegressor", [noise(9, 4)], opset=3, domain=ML, **trees)


def test_tree_classifier__two_votes_of_a_leaf_for_the_only_label__as_onnxruntime() -> None:
    trees = forest(3, 2, ["BRANCH_LEQ"]) | twice(votes(3, 2, 1, "class"))
    attributes = {**trees, "classlabels_int64s": [0]}
    check_against_ort("TreeEnsembleClassifier", [noise(9, 4)], opset=3, outputs=2, domain=ML, **attributes)


def test_tree_regressor__votes_of_a_node_that_is_not_there__invalid_graph() -> None:
    trees = forest(1, 1, ["BRANCH_LEQ"]) | votes(1, 1, 1, "target")
    trees["target_nodeids"] = [1, 8]
    with pytest.raises(errors.InvalidGraph, match="node 8 of tree 0"):
        run("TreeEnsembleRegressor", X, n_targets=1, **trees)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
def test_trees__post_transforms_of_one_score__as_onnxruntime(transform: str) -> None:
    trees = forest(2, 2, ["BRANCH_LEQ"])
    positive = votes(2, 2, 1, "target", positive=True)
    check("TreeEnsembleRegressor", X, n_targets=1, post_transform=transform, **trees, **positive)
    label: dict[str, Any] = {"classlabels_int64s": [1]}
    check("TreeEnsembleClassifier", X, 2, post_transform=transform, **label, **trees, **votes(2, 2, 1, "class"))
    single = ensemble(np.float32, [0] * 3, n_targets=1, leaf_targetids=[0] * 4)
    number = {"NONE": 0, "LOGISTIC": 1, "SOFTMAX": 2, "SOFTMAX_ZERO": 3, "PROBIT": 4}[transform]
    check("TreeEnsemble", X[:, :2], opset=5, post_transform=number, **single)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
def test_tree_regressor__many_trees__sums_in_the_order_of_onnxruntime(aggregate: str, dtype: Any) -> None:
    lists = forest(60, 3, MODES) | votes(60, 3, 2, "target") | {"n_targets": 2, "aggregate_function": aggregate}
    x = noise(500, 4).astype(dtype)
    check_against_ort("TreeEnsembleRegressor", [x], opset=15, domain=ML, domain_opset=3, tolerance=(0, 0), **lists)


def test_tree_classifier__sums_that_are_equal_in_float32__first_class_as_onnxruntime() -> None:
    weights = [0.14285714924335480, 0.14285714924335480, 0.14285714924335480, 0.071428574621677400]
    lists = forest(4, 0, MODES)
    lists |= {"class_treeids": [0, 1, 2, 3, 0], "class_nodeids": [0] * 5, "class_ids": [0, 0, 0, 0, 1]}
    lists |= {"class_weights": [*weights, 0.5], "classlabels_int64s": [7, 8, 9]}
    for order in (slice(None), slice(None, None, -1)):
        lists["class_weights"][:4] = weights[order]
        check_against_ort(
            "TreeEnsembleClassifier", [X], opset=15, outputs=2, domain=ML, domain_opset=1, tolerance=(0, 0), **lists
        )
