"""Products of packed weights: what onnxruntime rounds to 8 bits, and that it stays float32 here."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from pyruntime.ir import Array
from tests.contrib.families.quantized import unpacked
from tests.harness import make_op, run_op
from tests.oracle import OPTIONS, node_of, ort_run

X64 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="what is rounded is the processor's")
NEAR = (1e-5, 1e-5)


def rounded(rows: Array, block: int) -> Array:
    """Rows whose blocks of numbers are int8 times a scale, the largest of a block being 127."""
    blocks = rows.reshape(rows.shape[0], -1, block)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    return np.asarray(np.rint(blocks / scale) * scale).reshape(rows.shape)


def ort_with_constants(op_type: str, inputs: list[Array | None], fed: int, **attributes: Any) -> Array:
    """onnxruntime's output where all inputs but the first `fed` are initializers, which it packs."""
    node = node_of(op_type, inputs, 1, "com.microsoft", **attributes)
    named = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    feed = {name: x for i, (name, x) in enumerate(named.items()) if i < fed}
    declared = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, x.shape) for n, x in feed.items()]
    constants = [numpy_helper.from_array(x, n) for n, x in named.items() if n not in feed]
    graph = helper.make_graph([node], "one", declared, [onnx.ValueInfoProto(name="y0")], constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    session = onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])
    made: Array = session.run(None, feed)[0]
    return made


def ours(op_type: str, inputs: list[Array | None], **attributes: Any) -> Array:
    op = make_op(node_of(op_type, inputs, 1, "com.microsoft", **attributes), {"": 21, "com.microsoft": 1})
    return run_op(op, inputs)[0]


def product(bits: int, block: int) -> tuple[list[Array | None], dict[str, Any]]:
    """A product of 5 rows of 128 by 24 columns."""
    rng = np.random.default_rng(bits)
    q = rng.integers(0, 256, (24, 128 // block, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.03, 24 * 128 // block).astype(np.float32)
    rows = rng.standard_normal((5, 128)).astype(np.float32)
    return [rows, q, scales], {"K": 128, "N": 24, "bits": bits, "block_size": block}


def experts(bits: int, block: int) -> tuple[list[Array | None], dict[str, Any]]:
    """Five tokens of 64 numbers for three experts without activation."""
    rng = np.random.default_rng(bits)
    x, logits = rng.standard_normal((5, 64)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
    weights: list[Array | None] = []
    for _ in range(2):
        data = rng.integers(0, 256, (3, 64, 64 * bits // 8)).astype(np.uint8)
        weights += [data, rng.uniform(0.01, 0.03, (3, 64, 64 // block)).astype(np.float32), None]
    kind = {"k": 2, "activation_type": "identity", "expert_weight_bits": bits, "block_size": block}
    return [x, logits, *weights[:5]], kind


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32, 64])
def test_matmul_nbits__accuracy_level_4__float32_as_onnxruntime_without_packed_weights(bits: int, block: int) -> None:
    inputs, attributes = product(bits, block)
    got = ours("MatMulNBits", inputs, accuracy_level=4, **attributes)
    (fed,) = ort_run("MatMulNBits", inputs, 21, accuracy_level=4, domain="com.microsoft", **attributes)
    np.testing.assert_allclose(got, fed, *NEAR)
    np.testing.assert_allclose(got, ort_with_constants("MatMulNBits", inputs, 1, **attributes), *NEAR)


@X64
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [32, 64])
def test_matmul_nbits__accuracy_level_4_in_onnxruntime__rows_of_int8_by_blocks(bits: int, block: int) -> None:
    inputs, attributes = product(bits, block)
    theirs = ort_with_constants("MatMulNBits", inputs, 1, accuracy_level=4, **attributes)
    rows = inputs[0]
    assert rows is not None
    np.testing.assert_allclose(theirs, ours("MatMulNBits", [rounded(rows, block), *inputs[1:]], **attributes), *NEAR)
    assert not np.allclose(theirs, ours("MatMulNBits", inputs, **attributes), *NEAR)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32])
def test_qmoe__blocks__float32_as_onnxruntime_without_packed_weights(bits: int, block: int) -> None:
    inputs, attributes = experts(bits, block)
    (fed,) = ort_run("QMoE", inputs, 21, domain="com.microsoft", **attributes)
    np.testing.assert_allclose(ours("QMoE", inputs, **attributes), fed, rtol=1e-4, atol=1e-4)


@X64
@pytest.mark.parametrize(("bits", "level"), [(8, 0), (8, 4), (4, 4)])
@pytest.mark.parametrize("block", [16, 32])
def test_qmoe__blocks_in_onnxruntime__rows_of_int8_by_blocks(bits: int, level: int, block: int) -> None:
    inputs, attributes = experts(bits, block)
    x, logits, first, scales, _, second, scales2 = inputs
    assert x is not None and logits is not None
    theirs = ort_with_constants("QMoE", inputs, 2, accuracy_level=level, **attributes)
    shares = np.exp(logits)
    expected = np.zeros_like(x)

    def by(rows: Array, data: Any, scale: Any, expert: int) -> Array:
        levels = unpacked(data[expert], bits).astype(np.float32) - (1 << (bits - 1))
        weights = (levels.reshape(64, -1, block) * scale[expert][..., None]).reshape(64, 64)
        return np.asarray(rounded(rows, block) @ weights.T)

    for token in range(5):
        chosen = np.argsort(-logits[token])[:2]
        for expert in chosen:
            share = shares[token, expert] / shares[token, chosen].sum()
            hidden = by(x[token : token + 1], first, scales, expert)
            expected[token] += share * by(hidden, second, scales2, expert)[0]
    np.testing.assert_allclose(theirs, expected, rtol=1e-3, atol=2e-3)
    assert np.abs(ours("QMoE", inputs, **attributes) - theirs).max() > 5e-3
