"""MultiHeadAttention. The CPU provider has no packed inputs: theirs is the case with the parts given one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from pyruntime.ir import Array
from tests.contrib.case import Case
from tests.oracle import OPTIONS, ort_run

__all__ = ["DRAWS", "mask_of", "run_with_scores"]


def _numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def mask_of(rng: np.random.Generator, batch: int, queries: int, total: int) -> Array | None:
    """A key padding mask of any form, or none."""
    form = rng.integers(6)
    lengths = rng.integers(0, total + 1, batch)
    if form == 0:
        return np.asarray(lengths, np.int32)
    if form == 1:
        offsets = np.arange(batch + 1)
        return np.concatenate((lengths, offsets * queries, offsets * total)).astype(np.int32)
    if form == 2:
        return (rng.random((batch, total)) < 0.7).astype(np.int32)
    if form == 3:
        return (rng.random((batch, queries, total)) < 0.7).astype(np.int32)
    return None


def draw(rng: np.random.Generator) -> Case:
    """Self and cross attention with every optional input."""
    batch, heads = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    size, v_size = int(rng.choice([4, 8, 5, 64])), int(rng.choice([4, 8, 7, 64]))
    queries = int(rng.choice([1, 2, 7, 40]))
    kind = rng.choice(["self", "cross", "heads", "past", "shared"])
    v_size = size if kind in ("heads", "past", "shared") else v_size
    new = queries if kind in ("self", "past", "shared") else int(rng.choice([1, 3, 9, 300]))
    past = int(rng.choice([0, 1, 6, 70])) if kind in ("past", "shared") else 0
    attributes: dict[str, Any] = {"num_heads": heads}
    if rng.random() < 0.3:
        attributes["scale"] = float(rng.uniform(0.1, 0.6))
    if rng.random() < 0.3:
        attributes["mask_filter_value"] = float(rng.choice([-2.0, -1e4, -3.4e38]))
    if rng.random() < 0.3 and new <= queries:
        # The CPU provider lets the last query see all keys, also later ones.
        attributes["unidirectional"] = 1
    query, k_width, v_width = _numbers(rng, batch, queries, heads * size), heads * size, heads * v_size
    key: Array = _numbers(rng, batch, new, k_width)
    value: Array = _numbers(rng, batch, new, v_width)
    if kind == "heads":
        key, value = _numbers(rng, batch, heads, new, size), _numbers(rng, batch, heads, new, v_size)
    bias = _numbers(rng, 2 * k_width + v_width) if rng.random() < 0.4 else None
    total = past + new
    mask = mask_of(rng, batch, queries, total)
    added = None
    if rng.random() < 0.3:
        added = _numbers(rng, int(rng.choice([1, batch])), int(rng.choice([1, heads])), queries, total)
    caches: list[Array | None] = [None, None]
    # With a past but without presents the CPU provider computes nothing of meaning.
    outputs = 3 if kind in ("past", "shared") else int(rng.choice([1, 3]))
    if kind == "past":
        caches = [_numbers(rng, batch, heads, past, size), _numbers(rng, batch, heads, past, v_size)]
    elif kind == "shared":
        rows = total + int(rng.integers(0, 4))
        caches = [_numbers(rng, batch, heads, rows, size) for _ in range(2)]
    length = np.array([past], np.int32) if kind == "shared" else None
    inputs = [query, key, value, bias, mask, added, *caches, length]
    if length is not None and rng.random() < 0.3:  # one beam
        rows = 0 if caches[0] is None else caches[0].shape[2]
        inputs.append(np.zeros((batch, 1, rows), np.int32))
    # Where all keys of a query are masked, scores are near -10000, of which float32 has three decimals.
    tolerance = (2e-3, 2e-3) if mask is not None else None
    return Case("MultiHeadAttention", inputs, outputs, attributes, tolerance=tolerance)


def draw_packed(rng: np.random.Generator) -> Case:
    """Query, key and value in one tensor, or key and value."""
    batch, heads, size = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.choice([4, 8, 6]))
    queries = int(rng.integers(1, 9))
    whole = rng.random() < 0.5
    new = queries if whole else int(rng.integers(1, 9))
    bias = _numbers(rng, 3 * heads * size) if rng.random() < 0.5 else None
    mask = mask_of(rng, batch, queries, new)
    attributes = {"num_heads": heads}
    pack = _numbers(rng, batch, new, heads, 3 if whole else 2, size)
    query = pack if whole else _numbers(rng, batch, queries, heads * size)

    def reference(*inputs: Any) -> tuple[Array, ...]:
        given = [*inputs]
        parts = [pack[:, :, :, i].reshape(batch, new, -1) for i in range(pack.shape[3])]
        given[:3] = parts if whole else [query, *parts]
        return tuple(ort_run("MultiHeadAttention", given, 21, 1, "com.microsoft", **attributes))

    inputs = [query, None if whole else pack, None, bias, mask]
    return Case("MultiHeadAttention", inputs, 1, attributes, reference=reference)


def draw_scores(rng: np.random.Generator) -> Case:
    """With the scores as an output, of which only a model that declares its type tells onnxruntime the type."""
    case = draw(rng)

    def reference(*inputs: Any) -> tuple[Array, ...]:
        return run_with_scores("MultiHeadAttention", inputs, ["y0", "y1", "y2", "y3"], case.attributes)

    # The CPU provider adds the lowest number to the score of a hidden key, here it is the lowest number.
    return replace(case, outputs=4, reference=reference, tolerance=(2e-3, 2e-3))


def run_with_scores(
    op_type: str, inputs: Sequence[Array | None], outputs: Sequence[str], attributes: Mapping[str, Any]
) -> tuple[Array, ...]:
    """What the CPU provider computes for a node of attention; outputs: names, all float32, empty where not wanted."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op_type, names, outputs, domain="com.microsoft", **attributes)
    feed = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feed.items()
    ]
    made = [helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None) for y in outputs if y]
    graph = helper.make_graph([node], "one", declared, made)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    return tuple(session.run(None, feed))


def _any(rng: np.random.Generator) -> Case:
    choice = rng.random()
    return draw_packed(rng) if choice < 0.2 else draw_scores(rng) if choice < 0.35 else draw(rng)


DRAWS = {"MultiHeadAttention": _any}
