"""The device that kernels are generated for: limits, features, rates, measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from pyruntime.ir import positive, upper
from pyruntime.target.rates import H200, SWIFTSHADER, Rates

__all__ = [
    "FLOAT16_CONVERSION",
    "MATRIX_UNIT",
    "NO_WINNERS",
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
"""Invocations a workgroup of the generated kernels; every device offers at least 256."""

LEAST_WORKGROUP = 16
"""Fewest invocations a workgroup that units are kept busy by: fewer cost more than they even out."""

SOFTWARE_VENDOR = "google"
"""`adapter.info.vendor` of SwiftShader."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a device offers; the defaults are WebGPU's guaranteed minimum. Bytes unless said otherwise."""

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
        """Storage buffers that a tensor of at most `nbytes` takes: several where it is larger than a binding."""
        return max(1, -(-upper(nbytes) // self.binding_bytes))


class Winners(Mapping[tuple[str, str], str]):
    """Candidates that won a measurement: names by family and problem (`kernels.selection.candidates`). Hashable."""

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
"""WebGPU's feature of devices that compute with 16-bit floats."""

FLOAT16_CONVERSION = "float16_conversion"
"""What a device is known by that is a GPU: `unpack2x16float` is an instruction of it, though WGSL has no f16 there."""

SUBGROUP_SIZE = "subgroup_size_"
"""Begins the name of what a device is known by whose subgroups all have the size that follows."""

SUBGROUP_MATRIX = "chromium-experimental-subgroup-matrix"
"""WebGPU's feature, by a flag of Chromium, of devices whose subgroups multiply matrices."""

MATRIX_UNIT = "subgroup_matrix_"
"""Begins the name of what such a device is known by: rows, columns and k of its float16 matrices that are summed in
float32 follow, '16x16x16'. Of several, the first that the adapter reports."""

SOFTWARE_ADAPTER = "software_adapter"
"""What a device is known by that is a processor and of no vendor: `GPUAdapterInfo.isFallbackAdapter`."""


def matrix_unit_of(configs: Iterable[tuple[str, str, int, int, int]]) -> list[str]:
    """Return `MATRIX_UNIT` with the sizes of the first of an adapter's configurations that kernels use; or nothing.

    Args:
        configs: component type, result component type, M, N, K (WebGPU proposal "Subgroup Matrix", GPUAdapterInfo).
    """
    sizes = (size for component, result, *size in configs if (component, result) == ("f16", "f32"))
    return [f"{MATRIX_UNIT}{'x'.join(map(str, size))}" for size in islice(sizes, 1)]


@dataclass(frozen=True, slots=True)
class HalfPrecision:
    """What the session option `precision: 'float16'` asks for.

    Attributes:
        float32_nodes: names of nodes that compute in float32, sorted.
        in_bodies: those of them that are in bodies of control flow: the names that they get end with '/' and these.
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
        features: WebGPU feature names the device has ('subgroups', 'shader-f16', 'timestamp-query'), `SUBGROUP_SIZE`
            with the size where all subgroups have the same, `MATRIX_UNIT` with sizes, `SOFTWARE_ADAPTER`,
            `FLOAT16_CONVERSION`, and those of WGSL ('packed_4x8_integer_dot_product').
        vendor: adapter.info.vendor, lower case ('nvidia', 'google', 'apple', ...).
        disabled: names of passes and kernel variants switched off by session config entries.
        rates: what was measured on the device; None: what is known of its kind.
        winners: kernels that were measured to be the best for a problem on the device.
        half: float32 nodes are to compute in float16; None: in the types of the model.
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
        """The rates kernels are chosen by. A processor that is to run the kernels of GPUs counts as a GPU."""
        if self.is_processor:
            return (self.rates or SWIFTSHADER) if self.is_software else H200
        return self.rates or H200

    @property
    def is_processor(self) -> bool:
        """True for a software adapter: SwiftShader, Mesa's lavapipe."""
        return self.vendor == SOFTWARE_VENDOR or SOFTWARE_ADAPTER in self.features

    @property
    def is_software(self) -> bool:
        """True where it runs kernels of its own: workgroup memory and barriers cost it more than they save."""
        return self.is_processor and self.allows("software")

    @property
    def subgroup_size(self) -> int:
        """Invocations in a row that can exchange numbers by shuffles; 0 where that is not known."""
        sizes = [f.removeprefix(SUBGROUP_SIZE) for f in self.features if f.startswith(SUBGROUP_SIZE)]
        return int(sizes[0]) if sizes and "subgroups" in self.features else 0

    @property
    def subgroup(self) -> int:
        """`subgroup_size` for kernels; 0 where shuffles are switched off. Costs ask for the size: what is chosen, and
        with it the order of sums, is the same with the switch on and off."""
        return self.subgroup_size if self.allows("subgroup_sums") else 0

    @property
    def has_f16(self) -> bool:
        """True for a GPU whose WGSL has `enable f16`."""
        return SHADER_F16 in self.features and not self.is_software

    @property
    def matrix_unit(self) -> tuple[int, int, int] | None:
        """Rows, columns and k of the float16 matrices that a subgroup multiplies; None where kernels cannot."""
        if SUBGROUP_MATRIX not in self.features or not self.has_f16 or not self.subgroup_size:
            return None
        names = (f.removeprefix(MATRIX_UNIT) for f in self.features if f.startswith(MATRIX_UNIT))
        m, n, k = (int(part) for part in next(names, "0x0x0").split("x"))
        return (m, n, k) if m else None

    @property
    def converts_f16(self) -> bool:
        """True where float16 is read by an instruction of the device."""
        return (self.has_f16 or FLOAT16_CONVERSION in self.features) and self.allows("half_loads")

    def allows(self, variant: str) -> bool:
        """True unless the kernel variant (`kernels.variants`) was switched off."""
        return variant not in self.disabled

    def grid(self, invocations: int, workgroup: int = WORKGROUP) -> tuple[int, int, int]:
        """Workgroups that cover `invocations`, folded into y (then z) where x would exceed the limit.

        The shader finds its number with `global_index(gid, nwg)` of `lib/index.wgsl`.
        """
        return self.fold(positive(-(-invocations // workgroup)))

    def widest(self, wanted: int) -> int:
        """Return `wanted` invocations a workgroup, a power of two, halved until the device takes them."""
        most = min(self.limits.invocations, self.limits.workgroup_x)
        while wanted > most:
            wanted //= 2
        return wanted

    def few(self, invocations: int) -> int:
        """Invocations a workgroup where a unit runs one workgroup after another: fewer where units would wait."""
        size = WORKGROUP
        while size > LEAST_WORKGROUP and invocations < 8 * self.speed.units * size:
            size //= 2
        return size

    def fold(self, groups: int) -> tuple[int, int, int]:
        """`groups` workgroups as (x, y, z) within the limit; x·y·z >= groups: shaders check the surplus."""
        most = self.limits.workgroups
        if groups <= most:
            return groups, 1, 1
        rows = -(-groups // most)
        if rows <= most:
            return -(-groups // rows), rows, 1
        planes = -(-rows // most)
        return most, -(-rows // planes), planes
