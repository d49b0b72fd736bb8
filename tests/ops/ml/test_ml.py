"""ai.onnx.ml: encoders, scalers, linear models and support vector machines on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC, SVR, OneClassSVM

from pyruntime import errors
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.models import run_model
from tests.oracle import check_against_ort, node_of

ML = "ai.onnx.ml"
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def check(op_type: str, inputs: list[Array], outputs: int = 1, opset: int = 1, **attributes: Any) -> None:
    check_against_ort(op_type, inputs, opset=15, outputs=outputs, domain=ML, domain_opset=opset, **attributes)


def run(op_type: str, inputs: list[Any], outputs: int = 1, opset: int = 1, **attributes: Any) -> list[Any]:
    op = make_op(node_of(op_type, inputs, outputs, ML, **attributes), {"": 15, ML: opset})
    return run_op(op, inputs)


def tensor(array: Any) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(np.asarray(array))


def strings(*texts: str) -> Array:
    return np.array(texts, object)


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("shape", "indices"), [((4,), [[1, 3]]), ((3, 4), [1, 3]), ((2, 3, 4), [[1, 3], [0, 0]])])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, object])
def test_array_feature_extractor__ranks_and_types__as_onnxruntime(shape: Any, indices: Any, dtype: Any) -> None:
    x = np.arange(np.prod(shape)).reshape(shape)
    check(
        "ArrayFeatureExtractor",
        [x.astype(str).astype(object) if dtype is object else x.astype(dtype), np.array(indices)],
    )


def test_array_feature_extractor__index_outside__runtime_exception() -> None:
    with pytest.raises(errors.RuntimeException, match=r"indices in \[0, 4\), got -1"):
        run("ArrayFeatureExtractor", [noise(4), np.array([-1])])


def test_binarizer__every_type__one_above_the_threshold() -> None:
    check("Binarizer", [noise(3, 4)], threshold=0.25)
    x = np.array([np.nan, 1.0, 2.0])
    assert run("Binarizer", [x], threshold=1.0)[0].tolist() == [0, 0, 1]
    assert run("Binarizer", [np.array([1, 2])], threshold=1.5)[0].tolist() == [0, 1]


def test_category_mapper__both_directions__as_onnxruntime() -> None:
    categories: dict[str, Any] = {"cats_strings": ["a", "b"], "cats_int64s": [4, 5]}
    check("CategoryMapper", [strings("a", "q", "b")], **categories)
    check("CategoryMapper", [np.array([[4, 9], [5, 5]])], **categories, default_string="?")


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        (np.float32, {"imputed_value_floats": [9.0, 8.0], "replaced_value_float": float("nan")}),
        (np.float32, {"imputed_value_floats": [9.0], "replaced_value_float": 2.0}),
        (np.int64, {"imputed_value_int64s": [9, 8], "replaced_value_int64": 2}),
    ],
)
def test_imputer__missing_values__as_onnxruntime(dtype: Any, attributes: dict[str, Any]) -> None:
    x = np.array([[1, 2], [2, 4]], dtype)
    if dtype is np.float32:
        x[0, 1] = attributes["replaced_value_float"]
    check("Imputer", [x], **attributes)


@pytest.mark.parametrize(("shape", "count"), [((5,), 5), ((3, 5), 5), ((3, 5), 1), ((2, 3, 5), 1), ((0, 5), 5)])
def test_scaler__offsets_of_features_or_one__as_onnxruntime(shape: Any, count: int) -> None:
    offset, scale = noise(count).tolist(), noise(count, seed=1).tolist()
    for dtype in (np.float32, np.float64, np.int64, np.int32):
        check("Scaler", [(noise(*shape) * 4).astype(dtype)], offset=offset, scale=scale)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_normalizer__zero_and_negative_rows__as_onnxruntime(norm: str, dtype: Any) -> None:
    x = np.array([[1, 2, 5], [-1, -3, -2], [0, 0, 0], [3, -4, 0]], dtype)
    check("Normalizer", [x], norm=norm)
    check("Normalizer", [x[1]], norm=norm)


def test_feature_vectorizer__cut_and_padded__as_onnxruntime() -> None:
    check("FeatureVectorizer", [noise(4, 2), noise(4, 1)], inputdimensions=[2, 1])
    check("FeatureVectorizer", [noise(4, 2), noise(4, 1)], inputdimensions=[1, 3])
    check("FeatureVectorizer", [np.arange(3), np.arange(2)], inputdimensions=[3, 2])


def test_one_hot_encoder__types__as_onnxruntime() -> None:
    for x in (np.array([1, 2, 5]), np.array([[1.0, 2.7]], np.float32), np.array([3.0])):
        check("OneHotEncoder", [x], cats_int64s=[1, 2, 3])
    check("OneHotEncoder", [strings("a", "z")], cats_strings=["a", "b"])
    with pytest.raises(errors.RuntimeException, match=r"one of \[1, 2\], got 5"):
        run("OneHotEncoder", [np.array([1, 5])], cats_int64s=[1, 2], zeros=0)


def test_label_encoder__opset_1__as_onnxruntime() -> None:
    check("LabelEncoder", [strings("a", "q", "b")], classes_strings=["a", "b"])
    check("LabelEncoder", [np.array([1, 7, -1, 0])], classes_strings=["a", "b"])


@pytest.mark.parametrize("opset", [2, 4])
def test_label_encoder__lists__as_onnxruntime(opset: int) -> None:
    check("LabelEncoder", [strings("a", "q")], opset=opset, keys_strings=["a", "b"], values_floats=[1.5, 2.0])
    check("LabelEncoder", [np.array([[1], [7]])], opset=opset, keys_int64s=[1, 2], values_strings=["x", "y"])
    x = np.array([1.5, 7], np.float32)
    check("LabelEncoder", [x], opset=opset, keys_floats=[1.5, 2.0], values_int64s=[5, 6], default_int64=-3)


def test_label_encoder__tensors__as_onnxruntime() -> None:
    keys, values, other = tensor([1.5, 2.0]), tensor([3.0, 4.0]), tensor([42.0])
    check("LabelEncoder", [np.array([1.5, 7])], opset=4, keys_tensor=keys, values_tensor=values, default_tensor=other)


def test_label_encoder__nan_and_repeated_keys__nan_found_and_the_last_counts() -> None:
    x = np.array([np.nan, 1, 2], np.float32)
    got = run("LabelEncoder", [x], opset=4, keys_floats=[float("nan"), 1.0, 1.0], values_int64s=[5, 6, 7])
    assert got[0].tolist() == [5, 7, -1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("labels", [{"classlabels_ints": [7, 9]}, {"classlabels_strings": ["n", "p"]}])
def test_linear_classifier__one_function_two_labels__as_onnxruntime(dtype: Any, transform: str, labels: Any) -> None:
    x = (noise(6, 3) * 3).astype(dtype)
    check(
        "LinearClassifier", [x], 2, coefficients=[0.2, 0.1, -0.3], intercepts=[0.05], post_transform=transform, **labels
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_classifier__three_classes__as_onnxruntime(transform: str) -> None:
    weights = noise(9, seed=3).tolist()
    attributes: dict[str, Any] = {"classlabels_ints": [4, 5, 6], "intercepts": [0.1, 0.2, -0.3]}
    check("LinearClassifier", [noise(7, 3)], 2, coefficients=weights, post_transform=transform, **attributes)


@pytest.mark.parametrize("classes", [2, 4])
def test_linear_classifier__logistic_regression__as_scikit_learn(classes: int) -> None:
    x, y = noise(60, 3), np.arange(60) % classes
    model = LogisticRegression().fit(x, y)
    transform = "LOGISTIC" if classes == 2 else "SOFTMAX"
    label, score = run(
        "LinearClassifier",
        [x],
        2,
        coefficients=model.coef_.ravel().tolist(),
        intercepts=model.intercept_.tolist(),
        classlabels_ints=list(range(classes)),
        post_transform=transform,
    )
    np.testing.assert_array_equal(label, model.predict(x))
    np.testing.assert_allclose(score, model.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms__single_score__as_onnxruntime(transform: str) -> None:
    x = np.array([[0.3], [0.7], [-2.0]], np.float32)
    attributes: dict[str, Any] = {"coefficients": [1.0], "post_transform": transform}
    machine: dict[str, Any] = {"rho": [0.0], "kernel_params": [0.5, 0.5, 2.0]}
    check("LinearRegressor", [x], 1, **attributes)
    check("SVMRegressor", [x], 1, n_supports=1, support_vectors=[1.0], **machine, **attributes)
    check("LinearClassifier", [x], 2, intercepts=[0.0], **attributes)
    if transform != "PROBIT":  # which overwrites scores that onnxruntime has not read
        for labels in ({"classlabels_ints": [7, 8]}, {"classlabels_strings": ["n", "p"]}):
            check("LinearClassifier", [x], 2, intercepts=[0.0], **labels, **attributes)
        pair: dict[str, Any] = {"vectors_per_class": [1, 1], "support_vectors": [1.0, 2.0], "classlabels_ints": [7, 8]}
        check("SVMClassifier", [x], 2, **machine, **pair, **{**attributes, "coefficients": [1.0, -0.7]})


def test_softmax_zero__zeros_among_scores__left_out() -> None:
    x = np.array([[2, -1, 0], [0, 0, 0]], np.float32)
    got = run(
        "LinearClassifier",
        [x],
        2,
        coefficients=np.eye(3).ravel().tolist(),
        classlabels_ints=[0, 1, 2],
        post_transform="SOFTMAX_ZERO",
    )[1]
    np.testing.assert_allclose(got, [[0.95257413, 0.04742587, 0], [0.5, 0.5, 0.5]], rtol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_regressor__two_targets__as_onnxruntime(transform: str) -> None:
    x = np.abs(noise(5, 2)) * 0.2
    attributes: dict[str, Any] = {"coefficients": [0.2, 0.1, 0.3, 0.4], "intercepts": [0.1, 0.2]}
    check("LinearRegressor", [x], targets=2, post_transform=transform, **attributes)


def test_probit__every_part_of_the_line__as_onnxruntime() -> None:
    x = np.concatenate([np.linspace(0, 1, 101), [-0.1, 1.2, 1e-30, 1 - 6e-8, np.nan]]).astype(np.float32)
    check("LinearRegressor", [x[:, None]], coefficients=[1.0], post_transform="PROBIT")


KERNELS = {"LINEAR": [0.0, 0.0, 0.0], "POLY": [0.5, 0.3, 2.0], "RBF": [0.5, 0.0, 0.0], "SIGMOID": [0.4, 0.2, 0.0]}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("probabilities", [False, True])
def test_svm_classifier__kernels_and_probabilities__as_onnxruntime(
    kernel: str, classes: int, probabilities: bool
) -> None:
    per_class = [2, 3, 1][:classes]
    vectors, pairs = sum(per_class), classes * (classes - 1) // 2
    attributes: dict[str, Any] = {"prob_a": [-1.0, -2.0, -0.5][:pairs], "prob_b": [0.1, 0.2, 0.3][:pairs]}
    check(
        "SVMClassifier",
        [noise(9, 4)],
        2,
        kernel_type=kernel,
        kernel_params=KERNELS[kernel],
        coefficients=noise((classes - 1) * vectors, seed=5).tolist(),
        support_vectors=noise(vectors * 4, seed=6).tolist(),
        vectors_per_class=per_class,
        rho=noise(pairs, seed=7).tolist(),
        classlabels_strings=["a", "b", "c"][:classes],
        **(attributes if probabilities else {}),
    )


def test_svm_classifier__linear_functions__as_onnxruntime() -> None:
    attributes: dict[str, Any] = {"classlabels_ints": [7, 8, 9], "kernel_params": [0.0, 0.0, 0.0]}
    check("SVMClassifier", [noise(6, 4)], 2, coefficients=noise(12, seed=5).tolist(), rho=[0.1, 0.2, 0.3], **attributes)


@pytest.mark.parametrize("classes", [2, 4])
def test_svm_classifier__svc__as_scikit_learn(classes: int) -> None:
    x = noise(80, 3)
    y = (np.abs(x[:, 0]) * 10).astype(int) % classes
    model = SVC(kernel="rbf", gamma=0.3).fit(x, y)
    label = run(
        "SVMClassifier",
        [x],
        2,
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 3.0],
        coefficients=(model.dual_coef_ if classes > 2 else -model.dual_coef_).ravel().tolist(),
        support_vectors=model.support_vectors_.ravel().tolist(),
        vectors_per_class=model.n_support_.tolist(),
        rho=(model.intercept_ if classes > 2 else -model.intercept_).tolist(),
        classlabels_ints=list(range(classes)),
    )[0]
    np.testing.assert_array_equal(label, model.predict(x))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor__kernels__as_onnxruntime(kernel: str, one_class: int) -> None:
    machine: dict[str, Any] = {"kernel_type": kernel, "kernel_params": KERNELS[kernel], "rho": [0.1], "n_supports": 3}
    machine |= {"coefficients": noise(3, seed=5).tolist(), "support_vectors": noise(12, seed=6).tolist()}
    check("SVMRegressor", [noise(9, 4)], one_class=one_class, **machine)


@pytest.mark.parametrize("model", [SVR(gamma=0.5), OneClassSVM(gamma=0.5)])
def test_svm_regressor__fitted__as_scikit_learn(model: Any) -> None:
    x = noise(40, 3)
    model.fit(x, x[:, 0])
    y = run(
        "SVMRegressor",
        [x],
        kernel_type="RBF",
        kernel_params=[0.5, 0.0, 0.0],
        coefficients=model.dual_coef_.ravel().tolist(),
        support_vectors=model.support_vectors_.ravel().tolist(),
        n_supports=len(model.support_vectors_),
        rho=model.intercept_.tolist(),
        one_class=int(isinstance(model, OneClassSVM)),
    )[0]
    np.testing.assert_allclose(y[:, 0], model.predict(x), atol=1e-5)


def model_of(node: onnx.NodeProto, x: Any, y: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node], "g", [onnx.ValueInfoProto(name="x", type=x)], [onnx.ValueInfoProto(name="y", type=y)]
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 15), helper.make_opsetid(ML, 1)], ir_version=10
    )


def float_tensor(*shape: Any) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)


def map_type(key: int, value: int) -> onnx.TypeProto:
    return helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 4]}, {"classlabels_strings": ["a", "b"]}])
def test_zip_map__labels__a_map_per_row(labels: dict[str, Any]) -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain=ML, **labels)
    key = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    model = model_of(node, float_tensor("n", 2), helper.make_sequence_type_proto(map_type(key, onnx.TensorProto.FLOAT)))
    (keys,) = labels.values()
    x = np.array([[0.25, 0.75], [1, 0]], np.float32)
    assert run_model(model, {"x": x}) == [[{keys[0]: 0.25, keys[1]: 0.75}, {keys[0]: 1.0, keys[1]: 0.0}]]


def test_dict_vectorizer__vocabulary__values_in_its_order() -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=["a", "c", "b", "z"])
    model = model_of(node, map_type(onnx.TensorProto.STRING, onnx.TensorProto.INT64), onnx.TypeProto())
    got = run_model(model, {"x": {"a": 4, "c": 8}})[0]
    assert got.dtype == np.int64
    assert got.tolist() == [[4, 8, 0, 0]]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [[2.5, 1.5]]),
        ({"map_form": "SPARSE", "max_map": 5}, [[0, 2.5, 0, 0, 1.5]]),
        ({"cast_to": "TO_INT64"}, [[2, 1]]),
        ({"cast_to": "TO_STRING"}, [["2.500000", "1.500000"]]),
    ],
)
def test_cast_map__forms_and_types__values_by_key(attributes: dict[str, Any], expected: Any) -> None:
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML, **attributes)
    model = model_of(node, map_type(onnx.TensorProto.INT64, onnx.TensorProto.FLOAT), onnx.TypeProto())
    assert run_model(model, {"x": {4: 1.5, 1: 2.5}})[0].tolist() == expected


def test_cast_map__key_beyond_the_sparse_length__runtime_exception() -> None:
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML, map_form="SPARSE", max_map=2)
    model = model_of(node, map_type(onnx.TensorProto.INT64, onnx.TensorProto.FLOAT), onnx.TypeProto())
    with pytest.raises(errors.RuntimeException, match=r"keys in \[0, 2\), got \[4\]"):
        run_model(model, {"x": {4: 1.5}})
