"""The target device of kernels: limits, features, rates, measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from pyruntime.ir import positive, upper
from pyruntime.target.rates import H200, SWIFTSHADER, WASM, Rates

__all__ = [
    "FLOAT16_CONVERSION",
    "MATRIX_UNIT",
    "NO_WINNERS",
    "SERIAL",
    "SHADER_F16",
    "SOFTWARE_ADAPTER",
    "SOFTWARE_VENDOR",
    "SUBGROUP_MATRIX",
    "SUBGROUP_SIZE",
    "WORKGROUP",
    "HalfPrecision",
    "Limits",
    "Target",
    "Winners",
    "matrix_unit_of",
]

WORKGROUP = 64
"""Workgroup size of generated kernels; every device supports at least 128."""

LEAST_WORKGROUP = 16
"""Smallest workgroup size used to occupy more units; a smaller one costs more than it gains."""

SOFTWARE_VENDOR = "google"
"""`adapter.info.vendor` of SwiftShader."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a device; the defaults are WebGPU's guaranteed minimum. In bytes unless stated otherwise."""

    storage_buffers: int = 8
    binding_bytes: int = 128 << 20
    buffer_bytes: int = 256 << 20
    uniform_bytes: int = 64 << 10
    workgroups: int = 65535
    invocations: int = 256
    workgroup_x: int = 256
    workgroup_bytes: int = 16384

    names: ClassVar[Mapping[str, str]] = {
        "storage_buffers": "maxStorageBuffersPerShaderStage",
        "binding_bytes": "maxStorageBufferBindingSize",
        "buffer_bytes": "maxBufferSize",
        "uniform_bytes": "maxUniformBufferBindingSize",
        "workgroups": "maxComputeWorkgroupsPerDimension",
        "invocations": "maxComputeInvocationsPerWorkgroup",
        "workgroup_x": "maxComputeWorkgroupSizeX",
        "workgroup_bytes": "maxComputeWorkgroupStorageSize",
    }
    """The fields by their names in WebGPU."""

    def bindings(self, nbytes: int) -> int:
        """Return the number of storage buffers for a tensor of at most `nbytes`; several if it exceeds a binding."""
        return max(1, -(-upper(nbytes) // self.binding_bytes))


class Winners(Mapping[tuple[str, str], str]):
    """Fastest kernels by measurement: names by family and problem (`kernels.selection.candidates`). Hashable."""

    __slots__ = ("_hash", "_names")

    def __init__(self, names: Mapping[tuple[str, str], str] | None = None) -> None:
        self._names = dict(names or {})
        self._hash = hash(frozenset(self._names.items()))

    def __getitem__(self, key: tuple[str, str]) -> str:
        return self._names[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __hash__(self) -> int:
        return self._hash


NO_WINNERS = Winners()
"""Nothing was measured."""


SHADER_F16 = "shader-f16"
"""WebGPU feature: arithmetic with 16-bit floats."""

FLOAT16_CONVERSION = "float16_conversion"
"""Feature of hardware GPUs: `unpack2x16float` is a native instruction, even where WGSL has no f16."""

SUBGROUP_SIZE = "subgroup_size_"
"""Prefix of the feature with the subgroup size, for devices on which all subgroups have that size."""

SUBGROUP_MATRIX = "chromium-experimental-subgroup-matrix"
"""WebGPU feature that a flag of Chromium enables: matrix multiplication by subgroups."""

MATRIX_UNIT = "subgroup_matrix_"
"""Prefix of the feature with the sizes of float16 subgroup matrices that are accumulated in float32: rows, columns and
k, as in '16x16x16'. Among several, the first that the adapter reports.
"""

SERIAL = "serial"
"""Feature of the target for WebAssembly: an invocation runs to its end before the next one starts."""

SOFTWARE_ADAPTER = "software_adapter"
"""Feature of software adapters, from `GPUAdapterInfo.isFallbackAdapter`; not for those known by their vendor."""


def matrix_unit_of(configs: Iterable[tuple[str, str, int, int, int]]) -> list[str]:
    """Return the feature `MATRIX_UNIT` with the sizes of the first configuration that kernels use; else nothing.

    Args:
        configs: component type, result component type, M, N, K (WebGPU proposal "Subgroup Matrix", GPUAdapterInfo).
    """
    sizes = (size for component, result, *size in configs if (component, result) == ("f16", "f32"))
    return [f"{MATRIX_UNIT}{'x'.join(map(str, size))}" for size in islice(sizes, 1)]


@dataclass(frozen=True, slots=True)
class HalfPrecision:
    """The session option `precision: 'float16'`.

    Attributes:
        float32_nodes: names of nodes that compute in float32, sorted.
        in_bodies: those of them in bodies of control flow, where the names of nodes end with '/' and these.
    """

    float32_nodes: tuple[str, ...] = ()
    in_bodies: tuple[str, ...] = ()

    def keeps(self, name: str) -> bool:
        """Return whether the node of this name computes in float32."""
        return name in self.float32_nodes or any(name.endswith(f"/{inner}") for inner in self.in_bodies)


@dataclass(frozen=True, slots=True)
class Target:
    """The device that kernels are generated for.

    Attributes:
        features: WebGPU features of the device ('subgroups', 'shader-f16', 'timestamp-query'), WGSL language features
            ('packed_4x8_integer_dot_product'), and `SUBGROUP_SIZE` with the size if all subgroups have the same one,
            `MATRIX_UNIT` with sizes, `SOFTWARE_ADAPTER`, `FLOAT16_CONVERSION`.
        vendor: adapter.info.vendor, lower case ('nvidia', 'google', 'apple', ...).
        disabled: names of passes and kernel variants disabled by session config entries.
        rates: measured speed of the device; None: that of its kind.
        winners: fastest kernels by measurement on the device.
        half: options for float32 nodes that compute in float16; None: nodes compute in the model's types.
    """

    limits: Limits = field(default_factory=Limits)
    features: frozenset[str] = frozenset()
    vendor: str = ""
    disabled: frozenset[str] = frozenset()
    rates: Rates | None = None
    winners: Winners = NO_WINNERS
    half: HalfPrecision | None = None

    @property
    def speed(self) -> Rates:
        """Rates for kernel selection. A software adapter without the kernel variants for software counts as a GPU."""
        if self.is_serial:
            return self.rates or WASM
        if self.is_processor:
            return (self.rates or SWIFTSHADER) if self.is_software else H200
        return self.rates or H200

    @property
    def is_processor(self) -> bool:
        """True for software adapters (SwiftShader, Mesa's lavapipe), and for WebAssembly."""
        return self.is_serial or self.vendor == SOFTWARE_VENDOR or SOFTWARE_ADAPTER in self.features

    @property
    def is_software(self) -> bool:
        """True if kernels for software adapters are used: without workgroup memory and barriers, which are slow."""
        return self.is_serial or (self.is_processor and self.allows("software"))

    @property
    def is_serial(self) -> bool:
        """True if the invocations of a workgroup run one after the other, so that kernels have no barriers."""
        return SERIAL in self.features

    @property
    def subgroup_size(self) -> int:
        """Consecutive invocations that can exchange values by shuffles; 0 if unknown."""
        sizes = [f.removeprefix(SUBGROUP_SIZE) for f in self.features if f.startswith(SUBGROUP_SIZE)]
        return int(sizes[0]) if sizes and "subgroups" in self.features else 0

    @property
    def subgroup(self) -> int:
        """`subgroup_size` for kernels; 0 where shuffles are disabled.

        Cost models use `subgroup_size`, so that the selection, and with it the order of sums, does not depend on the
        switch.
        """
        return self.subgroup_size if self.allows("subgroup_sums") else 0

    @property
    def has_f16(self) -> bool:
        """True for a GPU whose WGSL supports `enable f16`."""
        return SHADER_F16 in self.features and not self.is_software

    @property
    def matrix_unit(self) -> tuple[int, int, int] | None:
        """Rows, columns and k of the float16 matrices that a subgroup multiplies; None where kernels cannot do so."""
        if SUBGROUP_MATRIX not in self.features or not self.has_f16 or not self.subgroup_size:
            return None
        names = (f.removeprefix(MATRIX_UNIT) for f in self.features if f.startswith(MATRIX_UNIT))
        m, n, k = (int(part) for part in next(names, "0x0x0").split("x"))
        return (m, n, k) if m else None

    @property
    def converts_f16(self) -> bool:
        """True if the device converts float16 by an instruction."""
        return (self.has_f16 or FLOAT16_CONVERSION in self.features) and self.allows("half_loads")

    def allows(self, variant: str) -> bool:
        """Return whether a kernel variant (`kernels.variants`) is enabled."""
        return variant not in self.disabled

    def grid(self, invocations: int, workgroup: int = WORKGROUP) -> tuple[int, int, int]:
        """Return a grid of workgroups for this many invocations; a large x is folded into y, then z.

        Shaders compute the index by `global_index(gid, nwg)` of `lib/index.wgsl`.
        """
        return self.fold(positive(-(-invocations // workgroup)))

    def widest(self, wanted: int) -> int:
        """Return a workgroup size that the device supports: `wanted`, a power of two, halved as needed."""
        most = min(self.limits.invocations, self.limits.workgroup_x)
        while wanted > most:
            wanted //= 2
        return wanted

    def few(self, invocations: int) -> int:
        """Return a workgroup size for units that run one workgroup at a time: smaller if units would be idle."""
        size = WORKGROUP
        while size > LEAST_WORKGROUP and invocations < 8 * self.speed.units * size:
            size //= 2
        return size

    def fold(self, groups: int) -> tuple[int, int, int]:
        """Return `groups` as (x, y, z) within the limit, with x·y·z >= groups; shaders skip the surplus."""
        most = self.limits.workgroups
        if groups <= most:
            return groups, 1, 1
        rows = -(-groups // most)
        if rows <= most:
            return -(-groups // rows), rows, 1
        planes = -(-rows // most)
        return most, -(-rows // planes), planes
