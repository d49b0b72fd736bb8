"""Values that conversions get wrong first, by type, for the tests of Cast on the host and on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pyruntime.ir import Array, DType
from pyruntime.ir.encoding import decode

NUMPY = {
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    DType.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    DType.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
    DType.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    DType.FLOAT6E2M3: ml_dtypes.float6_e2m3fn,
    DType.FLOAT6E3M2: ml_dtypes.float6_e3m2fn,
    DType.INT4: ml_dtypes.int4,
    DType.UINT4: ml_dtypes.uint4,
    DType.INT2: ml_dtypes.int2,
    DType.UINT2: ml_dtypes.uint2,
}
"""The dtypes of ml_dtypes; the other types have NumPy's own."""

REAL = [d for d in DType if d not in (DType.STRING, DType.COMPLEX64, DType.COMPLEX128)]


def numpy_dtype(dtype: DType) -> Any:
    """The NumPy or ml_dtypes dtype of a type, not its carrier."""
    return NUMPY.get(dtype) or dtype.numpy


def _floats(wide: bool) -> Array:
    rng = np.random.default_rng(11)
    bits = [7, 8, 15, 16, 23, 24, 30, 31, 32, 52, 62, 63, 64]
    every = [float(sign * ((1 << b) + d)) for b in bits for sign in (1, -1) for d in (-1, 0, 1)]
    every += [0.0, -0.0, 0.5, -0.5, 0.999, 1.0, 1.5, 2.5, -2.5, 3.5, 1e-3, 1e-6, -1e-6]
    every += [6.0e-8, 5.9604645e-8, 2.9802322e-8, 1e-30]
    # Ties and ends of the narrow floats.
    every += [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8]
    every += [1.0625, 1.1875, 1.125, 1.375, 1.25, 1.75, 5.0, 7.0, 6.0, 7.1]
    every += [k * 2.0**-n for k in (1, 3, 5, -7) for n in (1, 2, 9, 10, 11, 16, 17, 18, 24, 25, 26)]
    every += [65504.0, 65519.0, 65520.0, -65520.0, 448.0, 464.0, 465.0, 240.0, 248.0, 249.0]
    every += [57344.0, 61439.0, 61440.0]
    every += [3e9, -3e9, 1e10, 9.2e18, 1.8e19, 2e19, 1e20, -1e20, 3e38, -3e38, np.inf, -np.inf, np.nan]
    every += list(rng.standard_normal(40) * 10.0 ** rng.uniform(-5, 12, 40))
    if wide:
        every += [1e39, -1e39, 3.4028235e38, 3.4028235677973366e38, 3.4028236e38, 1e300]
        every += [1 + 2.0**-24, 1 + 3 * 2.0**-24, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-24 + 2.0**-50]
        every += [65519.99999999, 0.1, -2147483648.5, 4294967295.5]
    return np.array(every)


def samples(dtype: DType) -> Array:
    """An array of the type (ml_dtypes' where NumPy has none): all patterns of up to 8 bits, else edges."""
    if dtype is DType.BOOL:
        return np.array([True, False, True])
    if dtype.bits <= 8:
        count = 1 << dtype.bits
        raw = np.arange(count, dtype=np.uint8)
        if dtype.bits == 8:
            return raw.view(numpy_dtype(dtype))
        bits = np.unpackbits(raw[:, None], axis=1, count=dtype.bits, bitorder="little")
        packed = np.packbits(bits.reshape(-1), bitorder="little")
        return decode(packed, dtype, (count,)).astype(numpy_dtype(dtype))
    if dtype.is_float:
        with np.errstate(all="ignore"):
            values = _floats(dtype is DType.DOUBLE).astype(numpy_dtype(dtype))
        return values
    info = np.iinfo(dtype.numpy)
    near = [0, 1, 2, 3, 7, 8, 9, 15, 16, 127, 128, 255, 256, 2049, 2051, 32767, 32768, 65519, 65520, 65535, 65536]
    near += [(1 << b) + d for b in (24, 25, 31, 32, 33, 53, 54, 62, 63) for d in (-1, 0, 1, 3)]
    near += [16777217, 16777219, 0x1000001000000001, info.max, info.max - 1, info.max // 3]
    return np.array(sorted({v for n in near for v in (n, -n) if info.min <= v <= info.max} | {info.min}), dtype.numpy)
