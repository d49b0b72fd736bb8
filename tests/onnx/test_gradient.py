"""Gradient nodes against central differences in float64, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

import pyruntime as ort
from pyruntime.errors import Fail, InvalidGraph, NotImplemented
from pyruntime.ir import Array
from pyruntime.onnx.importer.gradient import RULES

TRAINING = "ai.onnx.preview.training"
STEP = 1e-5


def model(body: str, inputs: dict[str, Array], gradient: str, outputs: Sequence[str]) -> bytes:
    """`body` in ONNX's text syntax over double inputs, then the gradient node."""
    of = ", ".join(f"double[{','.join(map(str, a.shape))}] {n}" for n, a in inputs.items())
    made = ", ".join(f"double {name}" for name in outputs)
    text = f'<ir_version: 10, opset_import: ["": 21, "{TRAINING}": 1]> g ({of}) => ({made}) {{ {body} {gradient} }}'
    proto = parser.parse_model(text)
    for value in proto.graph.output:
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.DOUBLE, None))
    return bytes(proto.SerializeToString())


def evaluate(data: bytes, inputs: dict[str, Array]) -> dict[str, Array]:
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def differences(body: str, inputs: dict[str, Array], x: str, y: str = "y") -> Array:
    """d sum(y) / dx by central differences."""
    data = model(body, inputs, "", [y])
    result = np.zeros_like(inputs[x])
    for place in np.ndindex(result.shape):
        ends = []
        for step in (STEP, -STEP):
            moved = inputs[x].copy()
            moved[place] += step
            ends.append(evaluate(data, {**inputs, x: moved})[y].sum())
        result[place] = (ends[0] - ends[1]) / (2 * STEP)
    return result


def values(*shape: int, low: float = -2, high: float = 2) -> Array:
    return np.random.default_rng(sum(shape) + len(shape)).uniform(low, high, shape)


POSITIVE = values(2, 3, low=0.5)
UNARY = ("Abs", "Cos", "Exp", "Identity", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sin", "Tanh")
A, B = values(2, 3), values(3, low=0.5)
BODIES: dict[str, tuple[str, dict[str, Array]]] = {
    **{name: (f"t = {name}(a) y = Mul(t, a)", {"a": A}) for name in UNARY},
    **{name: (f"t = {name}(a) y = Mul(t, t)", {"a": POSITIVE}) for name in ("Log", "Sqrt")},
    **{name: (f"t = {name}(a, b) y = Mul(t, t)", {"a": A, "b": B}) for name in ("Add", "Sub", "Mul", "Div")},
    **{name: (f"t = {name}(a) y = Mul(t, a)", {"a": A}) for name in ("Ceil", "Floor", "Sign")},
    "CastLike": ("t = CastLike(a, b) y = Mul(t, t)", {"a": A, "b": B}),
    "Pow": ("y = Pow(a, b)", {"a": POSITIVE, "b": B}),
    "Sum": ("t = Sum(a, b, a) y = Mul(t, t)", {"a": A, "b": B}),
    "Where": ("c = Greater(a, b) t = Where(c, a, b) y = Mul(t, t)", {"a": A, "b": B}),
    "MatMul": ("t = MatMul(a, b) y = Mul(t, t)", {"a": values(2, 2, 3), "b": values(3, 4)}),
    "Softmax": ("t = Softmax<axis=0>(a) y = Mul(t, a)", {"a": A}),
    "Transpose": ("t = Transpose<perm=[1,2,0]>(a) y = Mul(t, t)", {"a": values(2, 3, 4)}),
    "Transpose reversed": ("t = Transpose(a) y = Mul(t, t)", {"a": A}),
    "Reshape": ("s = Constant<value_ints=[3,2]>() t = Reshape(a, s) y = Mul(t, t)", {"a": A}),
    "Flatten": ("t = Flatten(a) y = Mul(t, t)", {"a": values(2, 3, 2)}),
    "Squeeze": ("s = Constant<value_ints=[0]>() t = Squeeze(a, s) y = Mul(t, t)", {"a": values(1, 3)}),
    "Unsqueeze": ("s = Constant<value_ints=[0]>() t = Unsqueeze(a, s) y = Mul(t, t)", {"a": A}),
    "Expand": ("s = Constant<value_ints=[2,2,3]>() t = Expand(a, s) y = Mul(t, t)", {"a": A}),
    "Shape": ("s = Shape(a) t = Expand(b, s) y = Mul(t, a)", {"a": A, "b": B}),
    "Size": ("s = Size(a) t = CastLike(s, a) y = Mul(t, a)", {"a": A}),
    "ReduceSum": ("s = Constant<value_ints=[1]>() t = ReduceSum<keepdims=0>(a, s) y = Mul(t, t)", {"a": A}),
    "ReduceMean": ("s = Constant<value_ints=[0]>() t = ReduceMean(a, s) y = Mul(t, t)", {"a": A}),
    "ReduceMean of all": ("t = ReduceMean<keepdims=0>(a) y = Mul(t, t)", {"a": A}),
    **{
        f"Gemm {ta}{tb}": (
            f"t = Gemm<alpha=0.5, beta=3.0, transA={ta}, transB={tb}>(a, b, c) y = Mul(t, t)",
            {"a": values(*((3, 2) if ta else (2, 3))), "b": values(*((4, 3) if tb else (3, 4))), "c": values(4)},
        )
        for ta in (0, 1)
        for tb in (0, 1)
    },
}


def gradient_of(y: str, inputs: dict[str, Array], prefix: str = "d") -> tuple[str, list[str]]:
    xs = ", ".join(f'"{name}"' for name in inputs)
    outputs = [f"{prefix}{name}" for name in inputs]
    return f'{", ".join(outputs)} = {TRAINING}.Gradient<xs=[{xs}], y="{y}">({", ".join(inputs)})', outputs


@pytest.mark.parametrize("name", BODIES)
def test_gradient__of_operator__is_the_limit_of_differences(name: str) -> None:
    body, inputs = BODIES[name]
    node, outputs = gradient_of("y", inputs)
    found = evaluate(model(body, inputs, node, outputs), inputs)
    for x in inputs:
        np.testing.assert_allclose(found[f"d{x}"], differences(body, inputs, x), rtol=1e-6, atol=1e-7)


def test_rules__each__has_a_case_above() -> None:
    tested = {name.split()[0] for name in BODIES}
    assert set(RULES) - tested == {"Einsum", "SumTo"}  # what rules write: tested by the second derivatives


@pytest.mark.parametrize("name", ["Mul", "Div", "MatMul", "Tanh", "Softmax", "Gemm 01", "ReduceMean"])
def test_gradient__of_gradient__is_the_limit_of_differences(name: str) -> None:
    body, inputs = BODIES[name]
    first, firsts = gradient_of("y", inputs)
    body = f"{body} {first}"
    second, outputs = gradient_of(firsts[0], inputs, "e")
    found = evaluate(model(body, inputs, second, outputs), inputs)
    for x in inputs:
        expected = differences(body, inputs, x, firsts[0])
        np.testing.assert_allclose(found[f"e{x}"], expected, rtol=1e-5, atol=1e-6)


def test_gradient__fed_other_tensors__is_taken_there() -> None:
    inputs = {"a": A, "b": B, "p": A + 1, "q": B + 2}
    node = f'd = {TRAINING}.Gradient<xs=["a"], zs=["b"], y="y">(p, q)'
    found = evaluate(model("t = Mul(a, a) y = Mul(t, b)", inputs, node, ["y", "d"]), inputs)
    np.testing.assert_allclose(found["y"], A * A * B)
    np.testing.assert_allclose(found["d"], 2 * (A + 1) * (B + 2))


def test_gradient__of_an_intermediate_tensor__stops_at_it() -> None:
    inputs = {"a": A}
    node = f'd = {TRAINING}.Gradient<xs=["t"], y="y">(t)'
    found = evaluate(model("t = Exp(a) y = Mul(t, t)", inputs, node, ["d"]), inputs)
    np.testing.assert_allclose(found["d"], 2 * np.exp(A))


def test_gradient__with_regard_to_what_y_does_not_read__is_zero() -> None:
    inputs = {"a": A, "b": B}
    node = f'd = {TRAINING}.Gradient<xs=["a", "b"], y="y">(a, b)'.replace("d =", "da, db =")
    found = evaluate(model("y = Exp(a)", inputs, node, ["db"]), inputs)
    np.testing.assert_array_equal(found["db"], np.zeros(3))


@pytest.mark.parametrize(
    ("body", "node", "error", "says"),
    [
        ("y = Erf(a)", 'Gradient<xs=["a"], y="y">(a)', NotImplemented, "'y' \\(Erf\\) cannot be differentiated"),
        ("y = Exp(a)", 'Gradient<xs=["a"], y="z">(a)', InvalidGraph, "'z' is not a value"),
        ("y = Exp(a)", 'Gradient<xs=["a", "y"], y="y">(a)', InvalidGraph, "for each of xs and zs, 2, got 1"),
    ],
)
def test_gradient__that_cannot_be__is_refused(body: str, node: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        evaluate(model(body, {"a": A}, f"d = {TRAINING}.{node}", ["d"]), {"a": A})


def test_gradient__inside_a_body__is_refused() -> None:
    inner = f'then () => (double[2,3] d) {{ t = Exp(a) d = {TRAINING}.Gradient<xs=["a"], y="t">(a) }}'
    other = "other () => (double[2,3] e) { e = Exp(a) }"
    body = f"f = Constant<value_int=1>() k = Cast<to=9>(f) y = If(k)<then_branch={inner}, else_branch={other}>"
    with pytest.raises(InvalidGraph, match="main graph"):
        evaluate(model(body, {"a": A}, "", ["y"]), {"a": A})


def test_gradients_of_gradients__without_end__meet_the_limit() -> None:
    nodes = [gradient_of("y", {"a": A}, "d0")[0]]
    nodes += [gradient_of(f"d{i}a", {"a": A}, f"d{i + 1}")[0] for i in range(40)]
    data = model("t = Tanh(a) y = Mul(t, t)", {"a": A}, " ".join(nodes), ["d40a"])
    options = ort.SessionOptions()
    options.limits.nodes = 2000
    with pytest.raises(Fail, match="more than 2000 nodes, with its gradients"):
        ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
