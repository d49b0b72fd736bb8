"""FlexAttention on the host."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from pyruntime import errors
from pyruntime.ir import Array
from tests.models import run_model


def model_of(score_mod: str | None = None) -> onnx.ModelProto:
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview")
    if score_mod:
        node.attribute.append(helper.make_attribute("score_mod", parser.parse_graph(score_mod)))
    infos = [helper.make_tensor_value_info(n, 1, [None] * 4) for n in ("q", "k", "v", "bias", "y")]
    graph = helper.make_graph([node], "g", infos[:4], infos[4:])
    imports = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def feeds(heads: int = 4) -> dict[str, Array]:
    q, k, v = noise(2, heads, 3, 8), noise(2, 2, 5, 8, seed=1), noise(2, 2, 5, 6, seed=2)
    return {"q": q, "k": k, "v": v, "bias": noise(3, 5, seed=3).reshape(1, 1, 3, 5)}


def test_flex_attention__bias_captured_by_a_body__added_to_the_scores() -> None:
    given = feeds()
    body = "add (float[b,h,l,s] x) => (float[b,h,l,s] z) { z = Add (x, bias) }"
    scores = given["q"] @ np.repeat(given["k"], 2, axis=1).swapaxes(2, 3) / np.sqrt(8) + given["bias"]
    weights = np.exp(scores) / np.exp(scores).sum(axis=3, keepdims=True)
    expected = weights @ np.repeat(given["v"], 2, axis=1)
    np.testing.assert_allclose(run_model(model_of(body), given)[0], expected, rtol=1e-4, atol=1e-5)


def test_flex_attention__body_of_another_shape__runtime_exception() -> None:
    body = "sum (float[b,h,l,s] x) => (float[n] z) { a = Constant <value_ints = [-1]> ()  z = Reshape (x, a) }"
    with pytest.raises(errors.RuntimeException, match=r"body 'sum' to give float\[2,4,3,5\], got float\[120\]"):
        run_model(model_of(body), feeds())


def test_flex_attention__heads_that_do_not_divide__invalid_graph() -> None:
    with pytest.raises(errors.InvalidGraph, match="multiple of 2 query heads, got 3"):
        run_model(model_of(), feeds(heads=3))
