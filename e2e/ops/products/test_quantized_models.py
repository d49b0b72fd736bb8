"""Whole quantised models, node by node on the GPU, as the passes leave them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyruntime.ir import DType
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.repack import PackRows
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest, op_class
from tests.harness import run_op
from tests.quantized.cases import rngs
from tests.quantized.models import dynamic, encoder, residual_net, static
from tests.quantized.planned import planned
from tests.quantized.test_models import CALIBRATION, KINDS, ids, reference
from tests.quantized.test_packed_weights import conv_case, gather_case, product_case
from tests.quantized.test_qdq import STEP, chain_case, contrib_case
from tests.sampling import ALL


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("length", [1, 24])
def test_encoder__dynamically_quantised__as_onnxruntime(
    length: int, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    model = dynamic(encoder(2, 64, 4))
    feeds = {"ids": ids(1, length)}
    (mine,) = planned(model, {"ids": (1, length)}, gpu.target).run(feeds, gpu)
    (theirs,) = reference(model, feeds)
    # A value next to a tie may become the next byte: a step of an activation, which the following layers carry on.
    np.testing.assert_allclose(mine, theirs, atol=0.05)
    assert np.mean(np.abs(mine - theirs)) < 0.005


DEVICES = ["gpu", "software"]
NETS = [(kind, device) for i, kind in enumerate(KINDS) for j, device in enumerate(DEVICES) if ALL or (i + j) % 2 == 0]
"""The kernels of each device alternating, with PYRUNTIME_SOAK of both."""


@pytest.mark.parametrize(("kind", "device"), NETS)
def test_residual_net__statically_quantised__as_onnxruntime(
    kind: str, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    model = static(residual_net(32, 16), CALIBRATION, **KINDS[kind])
    feeds = {"x": CALIBRATION[0]}
    (mine,) = planned(model, {"x": (2, 3, 32, 32)}, gpu.target).run(feeds, gpu)
    (theirs,) = reference(model, feeds)
    scale = np.unique(np.abs(theirs))
    np.testing.assert_allclose(mine, theirs, atol=1.01 * float(np.diff(scale).min()))


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("case", [product_case, conv_case, gather_case])
def test_packed_weights__random_layouts__as_onnxruntime(case: Any, device: str, request: pytest.FixtureRequest) -> None:
    gpu: Any = request.getfixturevalue(device)
    for seed, rng in rngs(8 if ALL else 4):
        model, x, what = case(rng)
        (mine,) = planned(model, {"x": x.shape}, gpu.target).run({"x": x}, gpu)
        (theirs,) = reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-3, err_msg=f"PYRUNTIME_SEED={seed}: {what}")


@pytest.mark.parametrize("device", ["gpu", "software"])
def test_chains__random__as_onnxruntime_within_a_step(device: str, request: pytest.FixtureRequest) -> None:
    gpu: Any = request.getfixturevalue(device)
    for seed, rng in rngs(8 if ALL else 4):
        model, x, what = chain_case(rng)
        (mine,) = planned(model, {"x": x.shape}, gpu.target).run({"x": x}, gpu)
        (theirs,) = reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, atol=1.01 * STEP, err_msg=f"PYRUNTIME_SEED={seed}: {what}")


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("op", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products_with_float_results__random__as_onnxruntime(
    op: str, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    for seed, rng in rngs(6 if ALL else 3):
        model, x = contrib_case(rng, op)
        (mine,) = planned(model, {"x": x.shape}, gpu.target).run({"x": x}, gpu)
        (theirs,) = reference(model, {"x": x})
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-4, err_msg=f"PYRUNTIME_SEED={seed}")


@pytest.mark.parametrize("kind", ["int2", "uint2", "int4", "uint4", "int8", "uint8"])
def test_pack_rows__any_layout__as_numpy(kind: str, gpu: Any) -> None:
    dtype = np.dtype(getattr(ml_dtypes, kind) if kind[-1] != "8" else kind)
    bits = int(kind[-1])
    low = -(1 << (bits - 1)) if kind[0] == "i" else 0
    x = np.random.default_rng(0).integers(low, low + (1 << bits), (37, 21)).astype(dtype)
    forms: list[dict[str, Any]] = [
        {"rows": 21, "columns": 37, "step_n": 1, "step_c": 21},
        {"rows": 37, "columns": 21, "step_n": 21, "step_c": 1},
        {"rows": 21, "columns": 74, "step_n": 1, "step_c": 21, "share": 2},
    ]
    for form in forms:
        op = PackRows(**form, pitch=-(-form["columns"] * bits // 8) + 3, bits=bits)
        (mine,), (expected,) = run_op(op, [x], gpu), run_op(op, [x])
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("n", [44, 37])
def test_scaled_int8_product__any_number_of_rows__gives_the_same_bits(
    n: int, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    rng = np.random.default_rng(n)
    cast: Any = newest("Cast", to=DType.FLOAT.code)
    steps = (Step(cast, (0,)), Step(newest("Mul"), (-1, 1)), Step(newest("Add"), (-2, 2)))  # type: ignore[arg-type]
    whole = WithEpilogue(base=newest("MatMulInteger"), count=4, chain=FusedElementwise(steps=steps))
    a, b = rng.integers(0, 256, (8, 300)).astype(np.uint8), rng.integers(-128, 128, (300, n)).astype(np.int8)
    scale, bias = rng.uniform(0.001, 0.002, n).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    zeros = np.array(117, np.uint8), np.array(0, np.int8)
    (all_rows,) = run_op(whole, [a, b, *zeros, scale, bias], gpu)
    np.testing.assert_allclose(all_rows, run_op(whole, [a, b, *zeros, scale, bias])[0], 1e-6, 1e-6)
    for rows in range(1, 8):
        (part,) = run_op(whole, [a[:rows], b, *zeros, scale, bias], gpu)
        np.testing.assert_array_equal(part, all_rows[:rows])


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize(("k", "n", "block", "quant_type"), [(64, 44, 32, 1), (96, 37, 64, 0), (256, 40, 64, 1)])
def test_codes_of_bitsandbytes__any_number_of_rows__give_the_same_bits(
    k: int, n: int, block: int, quant_type: int, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    make: Any = op_class("MatMulBnb4", "com.microsoft", 1)
    op = make(K=k, N=n, block_size=block, quant_type=quant_type)
    rng = np.random.default_rng([k, n])
    b = rng.integers(0, 256, (n * k + 1) // 2).astype(np.uint8)
    scales = rng.uniform(0.1, 1, -(-n * k // block)).astype(np.float32)
    a = rng.standard_normal((8, k)).astype(np.float32)
    (whole,) = run_op(op, [a, b, scales], gpu)
    np.testing.assert_allclose(whole, run_op(op, [a, b, scales])[0], 1e-4, 1e-4)
    for rows in range(1, 8):
        (part,) = run_op(op, [a[:rows], b, scales], gpu)
        np.testing.assert_array_equal(part, whole[:rows])
