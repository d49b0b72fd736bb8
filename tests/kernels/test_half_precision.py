"""float16 on devices with shader-f16: how it is read, which tiles hold it, and that others have what they had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.attention.attention import LARGE, SMALL, Tile, attend
from pyruntime.kernels.attention.candidates import ATTENTIONS
from pyruntime.kernels.attention.description import AttentionProblem, AttentionTensors
from pyruntime.kernels.ir.template import template
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.ops.registry import newest
from pyruntime.target import FLOAT16_CONVERSION, H200
from tests.kernels.test_attention import form

WITH = frozenset({"shader-f16"})
LIMITS = Limits(storage_buffers=10, workgroup_bytes=32768, invocations=1024, workgroup_x=1024)
LAPTOP = Target(LIMITS, WITH, "apple", rates=replace(H200, units=8, flops=2.6e6, bandwidth=6.8e4))
PLAIN = replace(LAPTOP, features=frozenset())


def softmax(target: Target, dtype: DType = DType.FLOAT16) -> Dispatch:
    op: Any = newest("Softmax")
    (made,) = legalize(target, op.lower(target, TensorType(dtype, (5, 64))))
    return made


def attended(target: Target, sizes: tuple[int, int, int, int], q: DType, kv: DType) -> tuple[Dispatch, ...]:
    made = form(*sizes)
    heads, queries, keys, size = sizes
    left, right = TensorType(q, (1, queries, heads * size)), TensorType(kv, (1, keys, heads * size))
    y = out(0, TensorType(kv, left.shape))
    return attend(target, made, AttentionTensors(inp(0, left), inp(1, right), inp(2, right), y))


def test_load__device_with_shader_f16__is_one_conversion_of_two_elements() -> None:
    text = softmax(LAPTOP).kernel.wgsl()
    assert "return vec4<f32>(unpack2x16float(w[0]), unpack2x16float(w[1]));" in text
    assert "f16_decode" not in text and "enable" not in text
    assert "f16_encode" in text  # stores round to nearest even, whatever the device does
    assert "pack2x16float(v" not in text
    one = replace(template("attention_rows", DType.FLOAT16, VEC=0), converts=True).with_dtype("y", DType.FLOAT)
    assert "return unpack2x16float(k[i >> 1u] >> ((i & 1u) * 16u)).x;" in one.wgsl()


@pytest.mark.parametrize(
    "target",
    [
        PLAIN,
        replace(LAPTOP, disabled=frozenset({"half_loads"})),
        replace(LAPTOP, vendor="google"),
    ],
    ids=["no shader-f16", "switched off", "a processor"],
)
def test_load__other_devices__bit_by_bit(target: Target) -> None:
    assert not softmax(target).kernel.converts
    assert "f16_decode" in softmax(target).kernel.wgsl()


@pytest.mark.parametrize(("off", "converts"), [((), True), (("half_loads",), False)])
def test_load__gpu_without_shader_f16__is_one_conversion(off: tuple[str, ...], converts: bool) -> None:
    gpu = replace(PLAIN, features=frozenset({FLOAT16_CONVERSION}), disabled=frozenset(off))
    text = softmax(gpu).kernel.wgsl()
    assert ("unpack2x16float" in text, "f16_decode" in text) == (converts, not converts)
    assert "enable" not in text


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.BFLOAT16])
def test_legalize__no_float16__leaves_the_kernel_alone(dtype: DType) -> None:
    assert softmax(LAPTOP, dtype).kernel == softmax(PLAIN, dtype).kernel


def test_legalize__float16_that_is_only_moved_or_stored__leaves_the_kernel_alone() -> None:
    transpose: Any = newest("Transpose")
    cast: Any = newest("Cast", to=10)
    for op, x in ((transpose, TensorType(DType.FLOAT16, (40, 52))), (cast, TensorType(DType.FLOAT, (40, 52)))):
        made, plain = (legalize(t, op.lower(t, x)) for t in (LAPTOP, PLAIN))
        assert [d.kernel for d in made] == [d.kernel for d in plain]


@pytest.mark.parametrize(("tile", "size", "bytes_"), [(LARGE, 64, 32768), (SMALL, 128, 32768), (SMALL, 64, 16384)])
def test_tile__of_float16__fits_where_float32_does_not(tile: Tile, size: int, bytes_: int) -> None:
    half = replace(tile, half=True)
    assert half.workgroup_bytes(size, size, half_q=True) <= bytes_ < tile.workgroup_bytes(size, size)
    assert half.workgroup_bytes(size, size) < tile.workgroup_bytes(size, size)
    for half_q in (False, True):
        shape = {"DIM": size, "DIM_V": size, "ROWS": tile.rows, "KEYS": tile.keys, "TALL": tile.tall}
        made = template("attention_tiled", DType.FLOAT, VEC=1, HALF=1, HALF_Q=int(half_q), **shape)
        assert made.module.workgroup_bytes == half.workgroup_bytes(size, size, half_q)


@pytest.mark.parametrize("q", [DType.FLOAT16, DType.FLOAT])
def test_attend__heads_of_128_and_32_kib__tiles_of_float16(q: DType) -> None:
    (made,) = attended(LAPTOP, (32, 512, 512, 128), q, DType.FLOAT16)
    assert made.kernel.name.startswith("attention_tiled") and "_rows32" in made.kernel.name
    text = made.kernel.wgsl()
    assert text.startswith("enable f16;\n") and text.count("enable") == 1
    assert "tile_kv: array<vec4<f16>," in text
    assert ("tile_q: array<vec4<f16>," in text) == (q is DType.FLOAT16)
    assert "+= left[0] * right" in text and "let right = vec4<f32>(tile_kv[" in text
    assert made.kernel.module.workgroup_bytes <= LIMITS.workgroup_bytes


@pytest.mark.parametrize(
    ("target", "kv", "why"),
    [
        (PLAIN, DType.FLOAT16, "the device has no shader-f16"),
        (LAPTOP, DType.FLOAT, "keys and values are not float16"),
        (replace(LAPTOP, disabled=frozenset({"attention_half"})), DType.FLOAT16, "attention_half is switched off"),
    ],
    ids=["no shader-f16", "float32", "switched off"],
)
def test_attend__no_tiles_of_float16__says_why(target: Target, kv: DType, why: str) -> None:
    (made,) = attended(target, (32, 512, 512, 128), kv, kv)
    assert made.kernel.name.startswith("attention_flash")
    assert "enable" not in made.kernel.wgsl()
    problem = AttentionProblem.of(form(32, 512, 512, 128), target.has_f16 and kv is DType.FLOAT16, True)
    reasons = {c.name: c.reason for c in ATTENTIONS.rank(problem, target).others}
    assert reasons["tiled_32_half"] == why
    assert "bytes of workgroup memory" in reasons["tiled_32"]


def test_attend__tiles_of_float32_fit__are_taken() -> None:
    """Widening what lies in workgroup memory costs something, and buys nothing there."""
    larger = replace(LAPTOP, limits=replace(LIMITS, workgroup_bytes=49152))
    for target, sizes in ((larger, (32, 512, 512, 128)), (LAPTOP, (32, 512, 512, 32))):
        made = attended(target, sizes, DType.FLOAT16, DType.FLOAT16)
        assert made[0].kernel.name.startswith("attention_tiled") and "_half1" not in made[0].kernel.name


def test_key__types__are_told_where_they_matter() -> None:
    made = form(12, 128, 128, 64)
    keys = [AttentionProblem.of(made, *halves).key for halves in ((), (True,), (True, True), (False, True))]
    assert keys == ["12x128x128x64", "12x128x128x64 kv16", "12x128x128x64 f16", "12x128x128x64"]


@pytest.mark.parametrize("half_q", [False, True])
def test_sample__tiles_of_float16__are_measured(half_q: bool) -> None:
    problem = AttentionProblem.of(form(32, 512, 512, 64), True, half_q)
    made = sample(Noted(ATTENTIONS, problem), "tiled_32_half", LAPTOP)
    assert [d.kernel.name.startswith("attention_tiled") and "_half1" in d.kernel.name for d in made] == [True]
    assert made[0].kernel.converts
