"""SparseAttention. The CPU provider wants caches in the memory they come in, and has entries of other lengths than the
longest wrong: every entry is run alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from pyruntime.ir import Array
from tests.contrib.case import Case
from tests.contrib.drawing import chance, floats, pick
from tests.oracle import OPTIONS, node_of

__all__ = ["DRAWS"]

_NAME = "SparseAttention"


def _layouts(rng: np.random.Generator, count: int, blocks: int) -> tuple[Array, Array]:
    """Rows and columns of blocks at random, of which a block always sees itself."""
    shown = np.tril(rng.random((count, blocks, blocks)) < rng.choice([0.3, 0.7, 1.0])) | np.eye(blocks, dtype=bool)
    rows = np.concatenate((np.zeros((count, 1), int), shown.sum(2).cumsum(1)), axis=1)
    columns = np.full((count, rows.max()), -1)
    for layout in range(count):
        columns[layout, : rows[layout, -1]] = np.nonzero(shown[layout])[1]
    return rows.astype(np.int32), columns.astype(np.int32)


def _run(inputs: list[Any], attributes: dict[str, Any]) -> list[Array]:
    feed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feed.items()
    ]
    node = node_of(_NAME, inputs, 3, "com.microsoft", **attributes)
    graph = helper.make_graph([node], "one", declared, [onnx.ValueInfoProto(name=f"y{i}") for i in range(3)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    values = {n: onnxruntime.OrtValue.ortvalue_from_numpy(x.copy()) for n, x in feed.items()}
    bound = session.io_binding()
    for name, value in values.items():
        bound.bind_ortvalue_input(name, value)
    bound.bind_output("y0")
    bound.bind_ortvalue_output("y1", values["x3"])
    bound.bind_ortvalue_output("y2", values["x4"])
    session.run_with_iobinding(bound)
    return [np.array(y) for y in bound.copy_outputs_to_cpu()]


def _by_entry(attributes: dict[str, Any]) -> Callable[..., tuple[Array, ...]]:
    def reference(*inputs: Any) -> tuple[Array, ...]:
        given = [*inputs, *[None] * (11 - len(inputs))]
        queries, made = given[0].shape[1], []
        for b, length in enumerate(given[8]):
            rows = min(queries, int(length))
            one = [None if x is None else np.ascontiguousarray(x[b : b + 1, :rows]) for x in given[:3]]
            one += [x[b : b + 1] for x in given[3:5]]
            size = np.array([length], np.int32)
            y, keys, values = _run([*one, *given[5:7], size, size, *given[9:]], attributes)
            made.append((np.pad(y, [(0, 0), (0, queries - rows), (0, 0)]), keys, values))
        return tuple(np.concatenate(parts) for parts in zip(*made, strict=True))

    return reference


def draw(rng: np.random.Generator) -> Case:
    """A first prompt, several tokens more, or one; layouts of some heads or of all."""
    groups, share, batch = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
    heads, size, block = groups * share, pick(rng, 16, 32, 48), pick(rng, 16, 32)
    count = pick(rng, *(n for n in range(1, heads + 1) if heads % n == 0))
    blocks = int(rng.integers(2, 6))
    stage = pick(rng, "prompt", "more", "one")
    total = int(rng.integers(3, blocks * block + 1))
    queries = total if stage == "prompt" else 1 if stage == "one" else int(rng.integers(2, min(total, 20)))
    lengths = rng.integers(1 if stage == "prompt" else queries, total + 1, batch).astype(np.int32)
    lengths[rng.integers(batch)] = total
    rows = pick(rng, total, blocks * block, blocks * block + 5)
    widths = [heads, groups, groups]
    x: list[Array | None] = [floats(rng, (batch, queries, n * size)) for n in widths]
    if chance(rng, 0.4):
        x = [floats(rng, (batch, queries, sum(widths) * size)), None, None]
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": groups, "sparse_block_size": block}
    if chance(rng, 0.3):
        attributes["scale"] = float(rng.uniform(0.1, 0.5))
    turn = []
    if chance(rng):
        angles = rng.uniform(-3, 3, (total + 3, pick(rng, 8, size // 2)))
        turn = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(rng.integers(2))}
    caches = [floats(rng, (batch, groups, rows, size)) for _ in range(2)]
    whole = np.array([total], np.int32)
    inputs = [*x, *caches, *_layouts(rng, count, blocks), whole, lengths, *turn]

    def defined(number: int, y: Array) -> Array:
        if number == 0:
            return np.concatenate([y[b, : min(queries, n)].reshape(-1) for b, n in enumerate(lengths)])
        return np.concatenate([y[b, :, :n].reshape(-1) for b, n in enumerate(lengths)])

    return Case(_NAME, inputs, 3, attributes, reference=_by_entry(attributes), defined=defined, tolerance=(2e-4, 5e-5))


DRAWS = {_NAME: draw}
