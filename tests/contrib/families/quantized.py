"""Products with packed weights."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from pyruntime.ir import Array
from tests.contrib.case import Case, Draw
from tests.oracle import OPTIONS

ROWS = ((1,), (2,), (5,), (8,), (9,), (33,), (2, 3), (3, 1, 4), ())


def one(rng: np.random.Generator, *types: Any) -> Any:
    """One of these."""
    return types[rng.integers(len(types))]


def unpacked(data: Array, bits: int) -> Array:
    """[..., bytes] to [..., bytes * 8 / bits], low bits first, bit by bit."""
    lanes = np.unpackbits(data, axis=-1, bitorder="little").reshape(*data.shape, 8 // bits, bits)
    values: Array = (lanes * (1 << np.arange(bits))).sum(-1)
    return values.reshape(*data.shape[:-1], -1)


def weights(
    b: Array, scales: Array, zeros: Array | None, groups: Array | None, n: int, k: int, bits: int, block: int
) -> Array:
    """float64 [n, k], written down from the specification, a block at a time."""
    count = -(-k // block)
    q = unpacked(b.reshape(n, count, -1), bits).reshape(n, -1)
    made = np.zeros((n, k))
    table = None if zeros is None or zeros.dtype != np.uint8 else unpacked(zeros.reshape(n, -1), bits)
    for column in range(k):
        at = column // block if groups is None else int(groups[column])
        if zeros is None:
            zero = np.full(n, float(1 << (bits - 1)))
        else:
            zero = table[:, at] if table is not None else zeros.reshape(n, count)[:, at].astype(np.float64)
        made[:, column] = (q[:, column] - zero) * scales.reshape(n, count)[:, at].astype(np.float64)
    return made


def held_by_8_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Rows that are the same when they are rounded to 8 bits, a scale for each 32 numbers: 64ths, one of them 127."""
    whole = rng.integers(-127, 128, shape)
    whole[..., ::32] = 127
    return whole / 64


def draw_n_bits(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has no bfloat16, no 8 bits with float zero points, and reads g_idx with 4 bits alone."""
    dtype = one(rng, np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
    bits, block = int(rng.choice([2, 4, 4, 8])), int(rng.choice([16, 32, 32, 64, 128, 256]))
    n, k = int(rng.integers(1, 70)), int(rng.integers(1, 600))
    if rng.random() < 0.5:
        n, k = -(-n // 4) * 4, -(-k // 8) * 8
    rows = ROWS[rng.integers(len(ROWS))]
    blocks = -(-k // block)
    a = rng.standard_normal((*rows, k)).astype(dtype)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, (n, blocks)) * 2.0 ** (2 - bits) * rng.choice([-1, 1], (n, blocks))).astype(dtype)
    if rng.random() < 0.3:
        scales = scales.reshape(-1)
    zeros: Array | None = None
    kind = rng.choice(["none", "packed", "float", "default"])
    pitch = -(-blocks * bits // 8)
    if kind == "packed":
        zeros = rng.integers(0, 256, (n, pitch)).astype(np.uint8)
        zeros = zeros.reshape(-1) if rng.random() < 0.3 else zeros
    elif kind == "float":
        zeros = (rng.uniform(0, 1, (n, blocks)) * (1 << bits)).astype(dtype)
    elif kind == "default":
        zeros = np.full((n, pitch), {2: 0xAA, 4: 0x88, 8: 0x80}[bits], np.uint8)
    groups = rng.integers(0, blocks, k).astype(np.int32) if rng.random() < 0.15 else None
    bias = rng.standard_normal(n).astype(dtype) if rng.random() < 0.4 else None
    level = int(rng.choice([0, 1, 2, 3, 4]))
    if level == 4:
        a = held_by_8_bits(rng, a.shape).astype(dtype)
    attributes = {"K": k, "N": n, "block_size": block, "bits": bits, "accuracy_level": level}
    own = dtype == ml_dtypes.bfloat16 or level >= 2 or groups is not None
    own = own or (kind == "float" and bits == 8)

    def reference(*inputs: Array) -> tuple[Array, ...]:
        y = a.astype(np.float64) @ weights(b, scales, zeros, groups, n, k, bits, block).T
        return ((y if bias is None else y + bias.astype(np.float64)).astype(dtype),)

    # Sums of k products, each a half of the range large.
    spread = float(np.sqrt(k))
    tolerance = {2: (2e-3, 1e-3 * spread), 4: (1e-4, 2e-6 * spread)}[np.dtype(dtype).itemsize]
    if dtype == ml_dtypes.bfloat16:
        tolerance = (2e-2, 1e-2 * spread)
    given = [a, b, scales, zeros, groups, bias]
    while given[-1] is None:
        given.pop()
    return Case("MatMulNBits", given, 1, attributes, reference=reference if own else None, tolerance=tolerance)


def draw_gather(rng: np.random.Generator) -> Case:
    """onnxruntime takes bytes along axis 0 with blocks along the last one; its Python takes no feeds of 4 bits."""
    kind = rng.choice(["bytes", "int4", "uint4", "float8"])
    rank = int(rng.integers(2, 4))
    shape = [int(rng.integers(1, 9)) for _ in range(rank - 1)] + [int(rng.integers(1, 12)) * 8]
    bits = int(rng.choice([2, 4, 8])) if kind == "bytes" else 8 if kind == "float8" else 4
    block = int(rng.choice([16, 32, 64]))
    gather = 0 if kind == "bytes" else int(rng.integers(rank))
    quantize = rank - 1 if kind == "bytes" else int(rng.integers(rank))
    if kind != "bytes":
        shape[-1] -= int(rng.integers(0, 4))
    wide = [*shape[:quantize], -(-shape[quantize] // block), *shape[quantize + 1 :]]
    scales = rng.uniform(0.5, 1.5, wide).astype(one(rng, np.float32, np.float16))
    zeros: Array | None = None
    if kind == "bytes":
        x: Array = rng.integers(0, 256, (*shape[:-1], shape[-1] * bits // 8)).astype(np.uint8)
        if rng.random() < 0.5:
            zeros = rng.integers(0, 256, (*wide[:-1], -(-wide[-1] * bits // 8))).astype(np.uint8)
    elif kind == "float8":
        x = rng.standard_normal(shape).astype(one(rng, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
    else:
        dtype, low = (ml_dtypes.int4, -8) if kind == "int4" else (ml_dtypes.uint4, 0)
        x = rng.integers(low, low + 16, shape).astype(dtype)
        zeros = rng.integers(low, low + 16, wide).astype(dtype) if rng.random() < 0.5 else None
    # A third of the indices of some cases are out of range: these elements are zeros.
    length = shape[gather]
    reach = length + (length // 2 if rng.random() < 0.3 else 0)
    count = [(), (3,), (2, 5), (0,)][rng.integers(4)]
    indices = rng.integers(-reach, reach, count).astype(one(rng, np.int32, np.int64))
    attributes = {"block_size": block, "gather_axis": gather, "quantize_axis": quantize, "bits": bits}
    given = [x, indices, scales, *([zeros] if zeros is not None else [])]

    def reference(*_: Array) -> tuple[Array, ...]:
        return tuple(run_with_initializers("GatherBlockQuantized", given, {1}, attributes))

    return Case("GatherBlockQuantized", list(given), 1, attributes, reference=reference)


NF4 = """-1 -0.6961928 -0.52507305 -0.3949175 -0.28444138 -0.18477343 -0.091050036 0
0.0795803 0.1609302 0.2461123 0.33791524 0.44070983 0.562617 0.72295684 1"""
"""QLoRA, appendix E."""
FP4 = "0 0.0052083333 0.6666667 1 0.33333334 0.5 0.16666667 0.25"


def draw_bnb4(rng: np.random.Generator) -> Case:
    """onnxruntime's CPU has float32 alone, and multiplies by b^T (of K columns past its rows) where transB is 0."""
    dtype = one(rng, np.float32, np.float32, np.float16, ml_dtypes.bfloat16)
    n, k, block = int(rng.integers(1, 70)), int(rng.integers(1, 200)), int(rng.choice([16, 32, 64, 128]))
    if rng.random() < 0.5:
        k = -(-k // 32) * 32
    turned, kind = int(rng.random() < 0.2), int(rng.integers(2))
    rows = ROWS[rng.integers(len(ROWS) - 1)]
    a = rng.standard_normal((*rows, n if turned else k)).astype(dtype)
    b = rng.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    absmax = rng.uniform(0.5, 1.5, -(-n * k // block)).astype(dtype)
    attributes = {"K": k, "N": n, "block_size": block, "quant_type": kind, "transB": 1 - turned}
    if rng.random() < 0.5:
        attributes["training_mode"] = int(rng.integers(2))

    def reference(*_: Array) -> tuple[Array, ...]:
        table = np.array((NF4 if kind else FP4).split(), float)
        table = table if kind else np.concatenate([table, -table])
        whole = np.array([table[b[i // 2] >> 4 if i % 2 == 0 else b[i // 2] & 15] for i in range(n * k)])
        scales = absmax.astype(np.float64)[np.arange(n * k) // block]
        matrix = (whole * scales).reshape(n, k)
        return ((a.astype(np.float64) @ (matrix if turned else matrix.T)).astype(dtype),)

    own = dtype != np.float32 or bool(turned)
    spread = float(np.sqrt(max(n, k)))
    tolerance = {2: (2e-3, 1e-3 * spread), 4: (1e-4, 2e-6 * spread)}[np.dtype(dtype).itemsize]
    if dtype == ml_dtypes.bfloat16:
        tolerance = (2e-2, 1e-2 * spread)
    return Case("MatMulBnb4", [a, b, absmax], 1, attributes, reference=reference if own else None, tolerance=tolerance)


def run_with_initializers(
    op_type: str, inputs: list[Array], fed: set[int], attributes: dict[str, Any], domain: str = "com.microsoft"
) -> list[Array]:
    """onnxruntime's outputs with all inputs but `fed` in the model, as users' files have weights."""
    node = helper.make_node(op_type, [f"x{i}" for i in range(len(inputs))], ["y"], domain=domain, **attributes)
    held = [numpy_helper.from_array(x, f"x{i}") for i, x in enumerate(inputs) if i not in fed]
    feeds = {f"x{i}": inputs[i] for i in sorted(fed)}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()
    ]
    graph = helper.make_graph([node], "one", declared, [onnx.ValueInfoProto(name="y")], held)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, feeds)
    return found


DRAWS: dict[str, Draw] = {"MatMulNBits": draw_n_bits, "GatherBlockQuantized": draw_gather, "MatMulBnb4": draw_bnb4}
