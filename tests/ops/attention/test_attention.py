"""Attention, FlexAttention, LinearAttention, RotaryEmbedding on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import pyruntime as ort
from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, DType, TensorType
from pyruntime.ops.attention.attention import Attention
from pyruntime.ops.attention.linear_attention import LinearAttention
from pyruntime.ops.attention.rotary_embedding import RotaryEmbedding
from pyruntime.ops.registry import op_class
from tests.harness import run_op
from tests.oracle import OPTIONS, check_against_ort, ort_run

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Array:
    """A float32 array to try."""
    return RNG.standard_normal(shape).astype(np.float32)


def test_attention__hidden_keys__may_hold_anything() -> None:
    q, k, v = normal(1, 1, 2, 4), normal(1, 1, 3, 4), normal(1, 1, 3, 4)
    mask = np.array([[True, True, False], [False, False, False]])
    clean = run_op(Attention(), [q, k, v, mask])[0]
    k[0, 0, 2], v[0, 0, 2] = np.inf, 7
    np.testing.assert_array_equal(run_op(Attention(), [q, k, v, mask])[0], clean)
    assert not clean[0, 0, 1].any()


def test_attention__one_key__its_value() -> None:
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 1, 8), normal(2, 3, 1, 5)
    np.testing.assert_allclose(run_op(Attention(), [q, k, v])[0], np.broadcast_to(v, (2, 3, 4, 5)), 1e-6)


def test_attention__window_of_zero__diagonal() -> None:
    q, k, v = normal(1, 2, 4, 8), normal(1, 2, 4, 8), normal(1, 2, 4, 5)
    op = Attention(left_window_size=0, right_window_size=0)
    np.testing.assert_allclose(run_op(op, [q, k, v])[0], v, 1e-6)


@pytest.mark.parametrize(
    ("shapes", "attributes", "message"),
    [
        (((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4)), {}, "fit q"),
        (((1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)), {}, "multiple"),
        (((1, 3, 8), (1, 3, 8), (1, 3, 8)), {}, "q_num_heads"),
        (((1, 3, 8), (1, 2, 3, 4), (1, 3, 8)), {}, "rank"),
        (((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (2, 3)), {}, "attn_mask"),
        (((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), None, (1, 2, 5, 4)), {}, "together"),
    ],
)
def test_attention__malformed__invalid_graph(
    shapes: tuple[tuple[int, ...] | None, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidGraph, match=message):
        Attention(**attributes).infer(*(None if s is None else TensorType(DType.FLOAT, s) for s in shapes))


def test_linear_attention__rule_without_decay__invalid_graph() -> None:
    x = TensorType(DType.FLOAT, (1, 2, 8))
    with pytest.raises(InvalidGraph, match="decay"):
        LinearAttention(kv_num_heads=2, q_num_heads=2, update_rule="gated").infer(x, x, x)


def test_rotary_embedding__quarter_turn__components_swapped() -> None:
    x = normal(1, 1, 2, 4)
    cos, sin = np.zeros((1, 2, 2), np.float32), np.ones((1, 2, 2), np.float32)
    (y,) = run_op(RotaryEmbedding(), [x, cos, sin])
    np.testing.assert_array_equal(y, np.concatenate((-x[..., 2:], x[..., :2]), axis=-1))


POSITIONS: list[tuple[str, list[list[int]] | list[int], str]] = [
    *(
        (domain, positions, rf"\[0, 15\], the rows of the caches, got {wrong} at")
        for domain in ("", "com.microsoft")
        for positions, wrong in (
            ([[0, 1, 16], [3, 4, 5]], 16),
            ([[0, 1, 2], [3, 99, 5]], 99),
            ([[0, -1, 2]] * 2, -1),
        )
    ),
    *(
        ("com.microsoft", [at], rf"\[0, 13\], from which on the caches have rows for all tokens, got {at} at \[0\]")
        for at in (14, 99)
    ),
]


@pytest.mark.parametrize(("domain", "positions", "message"), POSITIONS)
def test_rotary_embedding__position_outside_the_caches__is_named_as_onnxruntime_does(
    domain: str, positions: Any, message: str
) -> None:
    x, cos, sin, at = normal(2, 4, 3, 8), normal(16, 4), normal(16, 4), np.array(positions, np.int64)
    inputs: list[Array | None] = [x, at, cos, sin] if domain else [x, cos, sin, at]
    with pytest.raises(InvalidArgument, match="range"):
        ort_run("RotaryEmbedding", inputs, 23, domain=domain)
    with pytest.raises(RuntimeException, match=rf"positions in {message}"):
        run_op(op_class("RotaryEmbedding", domain, 23 if not domain else 1)(), inputs)


def test_rotary_embedding__last_row_of_the_caches__as_onnxruntime() -> None:
    x, cos, sin = normal(2, 4, 3, 8), normal(16, 4), normal(16, 4)
    check_against_ort("RotaryEmbedding", [x, cos, sin, np.array([[0, 1, 15], [3, 4, 5]])], opset=23)
    check_against_ort("RotaryEmbedding", [x, np.array([13]), cos, sin], domain="com.microsoft")


def test_group_query_attention__more_tokens_than_rows_of_the_caches__runtime_exception() -> None:
    kind = op_class("GroupQueryAttention", "com.microsoft", 1)
    op = kind(num_heads=2, kv_num_heads=1, do_rotary=1, present=(True,) * 3)  # type: ignore[call-arg]
    query, key, table = normal(1, 4, 32), normal(1, 4, 16), normal(3, 8)
    lengths, total = np.array([3], np.int32), np.array(4, np.int32)
    with pytest.raises(RuntimeException, match=r"positions in \[0, 2\].*got 3 at \[0\]"):
        run_op(op, [query, key, key, None, None, lengths, total, table, table])


def test_attention__no_keys__zeros() -> None:
    q, none = normal(2, 4, 3, 8), np.zeros((2, 4, 0, 8), np.float32)
    y, keys, *_ = run_op(Attention(present=(True, True)), [q, none, none])
    assert not y.any() and y.shape == q.shape and keys.shape == none.shape


@pytest.mark.parametrize(("dim", "cache"), [(3, (1, 2, 1)), (0, (1, 2, 3)), (6, (1, 2, 3))])
def test_rotary_embedding__sizes_that_do_not_fit__invalid_graph(dim: int, cache: tuple[int, ...]) -> None:
    x, c = TensorType(DType.FLOAT, (1, 1, 2, 4)), TensorType(DType.FLOAT, cache)
    with pytest.raises(InvalidGraph, match=r"components|caches"):
        RotaryEmbedding(rotary_embedding_dim=dim).infer(x, c, c)


@pytest.mark.parametrize("kernels", ["gpu", "software"])
@pytest.mark.parametrize(("op_type", "domain"), [("Attention", ""), ("MultiHeadAttention", "com.microsoft")])
def test_attention__heads_of_another_size_in_a_later_run__as_onnxruntime(
    op_type: str, domain: str, kernels: str, desktop_gpu: None
) -> None:
    """The size of a head is a constant of the kernels, and the default factor follows from it."""
    heads: dict[str, Any] = {"num_heads": 2} if domain else {"q_num_heads": 2, "kv_num_heads": 2}
    inputs = [helper.make_tensor_value_info(n, 1, [None] * 3) for n in "qkv"]
    node = helper.make_node(op_type, list("qkv"), ["y"], domain=domain, **heads)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)])
    imports = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "software" if kernels == "gpu" else "")
    session = ort.InferenceSession(model, options)
    theirs = onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])
    for size in (8, 16, 4, 6, 16):
        feeds = {n: normal(1, 5, 2 * size) for n in "qkv"}
        np.testing.assert_allclose(session.run(None, feeds)[0], theirs.run(None, feeds)[0], 1e-4, 1e-5)
