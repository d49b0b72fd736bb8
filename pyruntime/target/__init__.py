"""Devices that kernels are generated for; `profiles/` describes kinds of them, for plans compiled ahead of time."""

from pyruntime.target.rates import H200, SWIFTSHADER, Rates
from pyruntime.target.target import (
    FLOAT16_CONVERSION,
    NO_WINNERS,
    SHADER_F16,
    SOFTWARE_ADAPTER,
    SOFTWARE_VENDOR,
    SUBGROUP_SIZE,
    WORKGROUP,
    HalfPrecision,
    Limits,
    Target,
    Winners,
)

__all__ = [
    "FLOAT16_CONVERSION",
    "H200",
    "NO_WINNERS",
    "SHADER_F16",
    "SOFTWARE_ADAPTER",
    "SOFTWARE_VENDOR",
    "SUBGROUP_SIZE",
    "SWIFTSHADER",
    "WORKGROUP",
    "HalfPrecision",
    "Limits",
    "Rates",
    "Target",
    "Winners",
]
