"""What was measured on a device, as data that outlives a visit: its rates, and which kernels won.

And what was fitted of kernels, the same on every device: a kernel's part of the rates that `costs.Rates` states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from pyruntime.target import NO_WINNERS, Rates, Target, Winners

__all__ = ["Knowledge", "rates_of"]


@dataclass(frozen=True, slots=True)
class GemmParts:
    """What an implicit GEMM reaches of the rates that products in tiles have.

    Attributes:
        efficiency: part of a device's operations, by the size of tiles.
        sliced: times that, for each doubling of the slices of k within a workgroup.
        step, merge: `Rates.step`s of a step, `Rates.merge`s when shares of a workgroup become half as many.
        sum_bytes: factor of the bytes that the kernel which adds partial sums moves: what a second pass costs.
    """

    efficiency: Mapping[int, float]
    sliced: float
    step: float
    merge: float
    sum_bytes: float


CONV_GEMM = GemmParts(MappingProxyType({32: 0.372, 64: 0.426}), 0.970, 2.404, 0.729, 7.75)
"""The implicit GEMM that looks its inputs up in windows, on GPUs.

This and `CONV_POINTWISE`: fitted to `dev.py tune` on an H200 and an H100, 80 convolutions each of those in
bench/shapes.txt (bench/README.md).
"""

CONV_HALF, CONV_HALF_SLICED, CONV_HALF_STEP = 1.35, 0.8, 1.3
"""Efficiency, `sliced` and step of an implicit GEMM of float16, of those of float32: its steps are twice as long."""

CONV_POINTWISE = GemmParts(MappingProxyType({32: 0.405, 64: 0.476}), 1.153, 2.187, 0.697, 41.5)
"""The implicit GEMM of windows of one element, on GPUs."""

SOFTWARE_GEMM = GemmParts(MappingProxyType({32: 0.925, 64: 1.087}), 0.968, 1.0, 0.284, 76.0)
"""`CONV_GEMM` on processors; set by hand, like `SOFTWARE_POINTWISE` and all other `CONV_`."""

SOFTWARE_POINTWISE = GemmParts(MappingProxyType({32: 0.481, 64: 0.374}), 1.0, 1.025, 1.26, 299.0)
"""`CONV_POINTWISE` on processors."""

CONV_DIRECT_EFFICIENCY = {1: 0.35, 4: 0.75, 8: 1.0}
"""Part of `Rates.direct` of a device's operations that the direct kernel reaches, by output channels an invocation."""

CONV_DIRECT_LOADS = {1: 0.15, 4: 0.2, 8: 0.308}
"""Loads that wait for one another, for each element of k, by output channels of an invocation; of one and four fitted
to the measurements of `CONV_GEMM` and 112 convolutions more of an H100."""

CONV_INT8_EFFICIENCY = {1: 0.5, 4: 1.0, 8: 1.35}
"""The same of the int8 kernels whose weights have their channels last, and of int8 products in their place."""

CONV_DEPTHWISE_EFFICIENCY = 1.0
"""Part of `Rates.direct` of a device's operations that the depthwise kernel reaches."""

CONV_DEPTHWISE_LOADS = 0.05
"""Loads that wait for one another, for each filter position of the depthwise kernel."""

DEPTHWISE_LAST_EFFICIENCY = {1: 0.65, 2: 1.1, 4: 1.6}
"""Part of `Rates.direct` that depthwise kernels reach where channels lie last, by neighbours an invocation makes."""

DEPTHWISE_LAST_LOADS = 0.125
"""Loads that wait for one another, for each load of such a kernel."""

CONV_BYTES_EFFICIENCY = 1.5
"""Part of the device's float operations that packed int8 dot products reach."""


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """What a kernel of attention takes.

    Attributes:
        efficiency: part of a device's operations when nothing else holds it up.
        begin: `Rates.step`s before the first and after the last step over keys.
        step: `Rates.step`s of a step. load: those for each component of its keys that an invocation reads.
        softmax: components that a score counts as.
    """

    efficiency: float
    begin: float
    step: float
    load: float
    softmax: float = 0.0


ATTENTION_FEW = AttentionParts(efficiency=0.5, begin=1.1, step=13.0, load=0.0193)
"""The kernel of few queries.

Set so that on an H200 costs choose what rules of thumb had chosen for decoding (tests/kernels/choices); not measured
kernel by kernel, nor is the kernel of rows. Those of flash and tiles, and what reducing partial results takes, are
fitted to 50 measurements of 12 problems on an H200 and one on an H100 (bench/results/tuning), root mean square of the
error 19 %.
"""

ATTENTION_FLASH = AttentionParts(efficiency=0.251, begin=11.8, step=1.52, load=0.00121, softmax=26.2)
"""The kernel whose invocations share a query row."""

FLASH_STAGING = 17.9
"""Keys that an invocation of it could multiply while it brings its part of a step into workgroup memory."""

ATTENTION_TILED = MappingProxyType(
    {
        (32, 32): AttentionParts(efficiency=0.413, begin=2.86, step=3.2, load=0.0283, softmax=17.2),
        (32, 64): AttentionParts(efficiency=0.55, begin=3.31, step=4.55, load=0.0317, softmax=17.2),
        (64, 32): AttentionParts(efficiency=0.376, begin=1.53, step=3.99, load=0.0387, softmax=16.0),
    }
)
"""The kernel of tiles, by their queries and the keys of a step."""

SOFTWARE_TILED = AttentionParts(efficiency=0.92, begin=16.0, step=2.0, load=0.0, softmax=17.0)
"""The kernel of tiles on processors, where `begin` and `step` count barriers.

This and `SOFTWARE_ROWS`: fitted to 14 problems on SwiftShader on two cores (bench/README.md).
"""

SOFTWARE_ROWS = AttentionParts(efficiency=0.31, begin=0.0, step=0.0, load=0.0, softmax=12.0)
"""The kernel whose invocations make a row each, on processors."""

HALF_TILED = 0.87
"""Part of the rate of those tiles that is left where float16 is widened before it is multiplied.

By the cycles that Mesa 22.3 counts: for AMD's Vega, which widens by an instruction of its own, 13 to 18 % more; for
RDNA 2, which multiplies float16 into float32 at once, 1 to 3 %. Nothing was measured on a device.
"""

ATTENTION_ROWS_LOADS = 0.7
"""Loads that wait for one another, for each component of a key, of the kernel whose invocations make a row each."""

ATTENTION_MERGE = 0.368
"""Part of a device's operations that reducing partial results reaches: it waits for memory."""

FOLD_TURN = 2.75
"""`Rates.load`s of a turn of an invocation that folds a row: four elements.

This and all other `FOLD_`: set so that on an H200 costs choose what rules of thumb had chosen (tests/kernels/choices),
where no candidate is plainly better; not measured kernel by kernel.
"""

FOLD_LEVEL = 0.05
"""`Rates.merge`s when invocations combine pairs of partial results of one number or two."""

FOLD_SHUFFLE = 0.02
"""Those of the same by a shuffle, without a barrier; the barriers that are left count as `FOLD_LEVEL` each."""

FOLD_FLOPS = 5.6
"""Operations that an element of a reduction counts as, with its index; measured on SwiftShader, like the next four."""

SOFTMAX_FLOPS = 36.0
"""Those of an element of a softmax, in both passes."""

NORM_FLOPS = 38.0
"""Those of an element of a norm, in all passes."""

SCAN_FLOPS = 16.0
"""Those of an element of a scan, in both passes."""

FOLD_PACK = 4
"""Invocations that a processor computes at once, in the time of one."""

FOLD_HELD = 4
"""Invocations that only fold and count as one of a product, whose registers are why few are on a unit at once."""

FOLD_APART = 8.0
"""Bytes that are moved for a byte where invocations side by side read what lies apart."""

FOLD_ALONE = 2.0
"""Bytes that are moved for a byte where each invocation goes through a row of its own: caches have most of the rest."""

_VERSION = 2
"""Of what is kept. Version 1 has rates of fallback kernels where an adapter was measured by itself."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Rates and winners of a device; without any where nothing was measured."""

    rates: Rates | None = None
    winners: Winners = NO_WINNERS

    def of(self, target: Target) -> Target:
        """The target with what is known of it."""
        return replace(target, rates=self.rates, winners=self.winners)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        winners: dict[str, dict[str, str]] = {}
        for (family, problem), name in self.winners.items():
            winners.setdefault(family, {})[problem] = name
        return {"version": _VERSION, "rates": asdict(self.rates) if self.rates else None, "winners": winners}

    @staticmethod
    def from_dict(data: Any) -> Knowledge:
        """What `to_dict` gave.

        Raises:
            ValueError: it is something else.
        """
        if not isinstance(data, Mapping) or data.get("version") != _VERSION:
            raise ValueError(f"expected an object with 'version': {_VERSION}")
        winners = data.get("winners") or {}
        if not isinstance(winners, Mapping) or not all(
            isinstance(named, Mapping) and all(isinstance(n, str) for n in named.values()) for named in winners.values()
        ):
            raise ValueError("'winners' must be names by problem, by family")
        flat = {(str(family), str(key)): name for family, named in winners.items() for key, name in named.items()}
        return Knowledge(rates_of(data["rates"]) if data.get("rates") is not None else None, Winners(flat))


def rates_of(data: Any) -> Rates:
    """The rates that plain data states.

    Raises:
        ValueError: they are not, or not all, there.
    """
    names = {f.name for f in fields(Rates)}
    if not isinstance(data, Mapping) or set(data) != names:
        raise ValueError(f"'rates' must have {', '.join(sorted(names))}")
    numbers = {name: data[name] for name in names}
    if not all(isinstance(v, int | float) and v >= 0 for v in numbers.values()):
        raise ValueError("'rates' must be numbers that are not negative")
    if not all(numbers[name] > 0 for name in ("units", "resident", "flops", "bandwidth", "direct")):
        raise ValueError("'rates' must have units, resident, flops, bandwidth and direct above 0")
    return Rates(**{**numbers, "units": int(numbers["units"]), "resident": int(numbers["resident"])})
