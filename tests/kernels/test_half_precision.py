"""float16 on devices with shader-f16: how it is read, and that others have what they had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target
from pyruntime.kernels.costs import H200
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.template import template
from pyruntime.ops.registry import newest

WITH = frozenset({"shader-f16"})
LIMITS = Limits(storage_buffers=10, workgroup_bytes=32768, invocations=1024, workgroup_x=1024)
LAPTOP = Target(LIMITS, WITH, "apple", rates=replace(H200, units=8, flops=2.6e6, bandwidth=6.8e4))
PLAIN = replace(LAPTOP, features=frozenset())


def softmax(target: Target, dtype: DType = DType.FLOAT16) -> Dispatch:
    op: Any = newest("Softmax")
    (made,) = legalize(target, op.lower(target, TensorType(dtype, (5, 64))))
    return made


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


@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.BFLOAT16])
def test_legalize__no_float16__leaves_the_kernel_alone(dtype: DType) -> None:
    assert softmax(LAPTOP, dtype).kernel == softmax(PLAIN, dtype).kernel


def test_legalize__float16_that_is_only_moved_or_stored__leaves_the_kernel_alone() -> None:
    transpose: Any = newest("Transpose")
    cast: Any = newest("Cast", to=10)
    for op, x in ((transpose, TensorType(DType.FLOAT16, (40, 52))), (cast, TensorType(DType.FLOAT, (40, 52)))):
        made, plain = (legalize(t, op.lower(t, x)) for t in (LAPTOP, PLAIN))
        assert [d.kernel for d in made] == [d.kernel for d in plain]
