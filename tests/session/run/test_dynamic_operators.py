"""One operator at a time, every dimension in another size from run to run, on the desktop's GPU against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import pyruntime as ort
from pyruntime.ir import Array
from tests.models import compare
from tests.oracle import OPTIONS

SIZES = ((1, 2, 6, 3, 4), (2, 4, 7, 1, 8), (1, 3, 5, 3, 6), (2, 8, 9, 2, 16), (1, 2, 6, 3, 4))
"""Of each run: batch, channels, side, kernel, output channels."""


@dataclass(frozen=True)
class Case:
    """An operator, its attributes, and its inputs for the sizes of a run."""

    op_type: str
    inputs: Callable[..., Sequence[Array | None]]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    domain: str = ""


def normal(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def bytes_of(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 20, shape).astype(np.uint8)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


SCALE, ZERO = np.array(0.1, np.float32), np.array(3, np.uint8)
MS = "com.microsoft"

CASES = {
    "conv": Case("Conv", lambda n, c, s, k, m: (normal(n, c, s, s), normal(m, c, k, k), normal(m))),
    "conv of rows": Case("Conv", lambda n, c, s, k, m: (normal(n, c, s), normal(m, c, k)), {"strides": [2]}),
    "conv, padded alike": Case(
        "Conv",
        lambda n, c, s, k, m: (normal(n, c, s, s), normal(m, c, k, k)),
        {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "conv in groups": Case(
        "Conv", lambda n, c, s, k, m: (normal(n, 2 * c, s, s), normal(2 * m, c, k, k)), {"group": 2}
    ),
    "transposed conv": Case(
        "ConvTranspose", lambda n, c, s, k, m: (normal(n, c, s, s), normal(c, m, k, k)), {"strides": [2, 2]}
    ),
    "integer conv": Case("ConvInteger", lambda n, c, s, k, m: (bytes_of(n, c, s, s), bytes_of(m, c, k, k))),
    "quantized conv": Case(
        "QLinearConv",
        lambda n, c, s, k, m: (bytes_of(n, c, s, s), SCALE, ZERO, bytes_of(m, c, k, k), SCALE, ZERO, SCALE, ZERO),
    ),
    "integer product": Case("MatMulInteger", lambda n, c, s, k, m: (bytes_of(n, s, c), bytes_of(c, m))),
    "gemm": Case("Gemm", lambda n, c, s, k, m: (normal(s, c), normal(m, c), normal(m)), {"transB": 1}),
    "gru": Case(
        "GRU", lambda n, c, s, k, m: (normal(s, n, c), normal(1, 12, c), normal(1, 12, 4)), {"hidden_size": 4}, 2
    ),
    "group norm": Case(
        "GroupNormalization",
        lambda n, c, s, k, m: (normal(n, 2 * c, s), normal(2 * c), normal(2 * c)),
        {"num_groups": 2},
    ),
    "deformed conv": Case(
        "DeformConv", lambda n, c, s, k, m: (normal(n, c, s, s), normal(m, c, 1, 1), normal(n, 2, s, s))
    ),
    "stft": Case("STFT", lambda n, c, s, k, m: (normal(n, 20 + s, 1), np.array(2), normal(4 + k))),
    "stft, given a length": Case(
        "STFT", lambda n, c, s, k, m: (normal(n, 20 + s, 1), np.array(2), None, np.array(4 + k))
    ),
    "dft": Case("DFT", lambda n, c, s, k, m: (normal(n, s + 2, 1), np.array(s + k))),
    "col2im": Case("Col2Im", lambda n, c, s, k, m: (normal(n, c * k * k, (s - k + 1) ** 2), ints(s, s), ints(k, k))),
    "attention": Case("Attention", lambda n, c, s, k, m: (normal(n, c, s, m), normal(n, c, k, m), normal(n, c, k, m))),
    "attention with a mask": Case(
        "Attention", lambda n, c, s, k, m: (normal(n, c, s, m), normal(n, c, k, m), normal(n, c, k, m), normal(s, k))
    ),
    "packed attention": Case(
        "Attention", lambda n, c, s, k, m: (normal(n, s, m), normal(m, 3 * m), normal(3 * m)), {"num_heads": 2}, 1, MS
    ),
    "rotary": Case(
        "RotaryEmbedding",
        lambda n, c, s, k, m: (
            normal(n, c, s, m),
            normal(9, m // 2),
            normal(9, m // 2),
            np.arange(n * s).reshape(n, s) % 9,
        ),
    ),
    "one hot": Case("OneHot", lambda n, c, s, k, m: (np.arange(s), np.array(m), np.array([0, 1], np.float32))),
    "reshape": Case("Reshape", lambda n, c, s, k, m: (normal(c, m), ints(m, c))),
    "pad": Case("Pad", lambda n, c, s, k, m: (normal(c, m), ints(0, k, n, 0))),
    "tile": Case("Tile", lambda n, c, s, k, m: (normal(c, s), ints(k, n))),
    "slice": Case("Slice", lambda n, c, s, k, m: (normal(s, m), ints(k - 1, 0), ints(s, m - 1), ints(0, 1))),
    "top k": Case("TopK", lambda n, c, s, k, m: (normal(n, s), ints(k)), {}, 2),
    "skip norm": Case(
        "SkipLayerNormalization", lambda n, c, s, k, m: (normal(n, s, m), normal(n, s, m), normal(m)), {}, 1, MS
    ),
}


def model_of(case: Case) -> bytes:
    """The operator alone, of inputs whose dimensions are open."""
    given = {f"x{i}": x for i, x in enumerate(case.inputs(*SIZES[0])) if x is not None}
    names = [f"x{i}" if f"x{i}" in given else "" for i in range(len(case.inputs(*SIZES[0])))]
    node = helper.make_node(case.op_type, names, [f"y{i}" for i in range(case.outputs)], **case.attributes)
    node.domain = case.domain
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), [None] * x.ndim)
        for n, x in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    imports = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())


@pytest.mark.parametrize("kernels", ["gpu", "software"])
@pytest.mark.parametrize("name", CASES)
def test_operator__every_dimension_in_another_size__as_onnxruntime(name: str, kernels: str, desktop_gpu: None) -> None:
    case = CASES[name]
    model = model_of(case)
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "software" if kernels == "gpu" else "")
    session = ort.InferenceSession(model, options)
    theirs = onnxruntime.InferenceSession(model, OPTIONS, providers=["CPUExecutionProvider"])
    for sizes in SIZES:
        feeds = {f"x{i}": x for i, x in enumerate(case.inputs(*sizes)) if x is not None}
        for mine, wanted in zip(session.run(None, feeds), theirs.run(None, feeds), strict=True):
            compare(mine, wanted, 2e-3, 2e-3)
