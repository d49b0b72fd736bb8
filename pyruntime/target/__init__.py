"""Target devices of kernels. `profiles/` describes kinds of devices, for plans compiled ahead of time."""

from pyruntime.target.rates import H200, SWIFTSHADER, WASM, Rates
from pyruntime.target.target import (
    FLOAT16_CONVERSION,
    MATRIX_UNIT,
    NO_WINNERS,
    SERIAL,
    SHADER_F16,
    SOFTWARE_ADAPTER,
    SOFTWARE_VENDOR,
    SUBGROUP_MATRIX,
    SUBGROUP_SIZE,
    WORKGROUP,
    HalfPrecision,
    Limits,
    Target,
    Winners,
    matrix_unit_of,
)

__all__ = [
    "FLOAT16_CONVERSION",
    "H200",
    "MATRIX_UNIT",
    "NO_WINNERS",
    "SERIAL",
    "SHADER_F16",
    "SOFTWARE_ADAPTER",
    "SOFTWARE_VENDOR",
    "SUBGROUP_MATRIX",
    "SUBGROUP_SIZE",
    "SWIFTSHADER",
    "WASM",
    "WORKGROUP",
    "HalfPrecision",
    "Limits",
    "Rates",
    "Target",
    "Winners",
    "matrix_unit_of",
]
