"""The GPU adapters of this machine, and the choice of one for a session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.errors import EPFail, InvalidArgument

__all__ = ["Adapter", "Choice", "adapters_of", "choose"]

VARIABLE = "PYRUNTIME_ADAPTER"
"""Environment variable that names the adapter where `provider_options={'adapter': ...}` does not."""

VENDORS = {
    0x1002: "amd",
    0x106B: "apple",
    0x10DE: "nvidia",
    0x13B5: "arm",
    0x1414: "microsoft",
    0x1AE0: "google",
    0x5143: "qualcomm",
    0x8086: "intel",
    0x10005: "mesa",
}
"""WebGPU's vendor names by PCI vendor ID, or by the ID that Khronos assigned."""

KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "software"}
ORDER = {
    "high-performance": ("discrete", "integrated", "other"),
    "low-power": ("integrated", "discrete", "other"),
}


@dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU, or a software adapter.

    Attributes:
        index: position in `pyruntime.adapters()`. kind: 'discrete', 'integrated', 'software' or 'other'.
        backend: the graphics API, such as 'Vulkan'. vendor, architecture, device, description: as in GPUAdapterInfo.
    """

    index: int
    kind: str
    backend: str
    vendor: str
    architecture: str
    device: str
    description: str

    def __str__(self) -> str:
        return f"{self.index}: {self.device or self.description or self.vendor} ({self.kind}, {self.backend})"

    def is_named(self, text: str) -> bool:
        """Return whether `text` (lower case) is the index, or part of the kind, backend or a name."""
        if text.isdecimal():
            return int(text) == self.index
        names = self.kind, self.backend, self.vendor, self.architecture, self.device, self.description
        return any(text in name.lower() for name in names)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which adapter a session asks for.

    Attributes:
        adapter: index, kind or part of a name, in lower case; '' for any but a software adapter.
        power_preference: 'high-performance' or 'low-power'; decides among several that match.
    """

    adapter: str = ""
    power_preference: str = "high-performance"

    @staticmethod
    def of(options: Mapping[str, str]) -> Choice:
        """Read the choice from provider options; `PYRUNTIME_ADAPTER` replaces a missing 'adapter'.

        Raises:
            InvalidArgument: an unknown power preference.
        """
        power = str(options.get("power_preference", "high-performance"))
        if power not in ORDER:
            raise InvalidArgument(f"power_preference is {power!r}; expected one of {', '.join(ORDER)}")
        named = str(options.get("adapter", "") or os.environ.get(VARIABLE, ""))
        return Choice(named.strip().lower(), power)


def adapters_of(implementation: Implementation) -> list[tuple[Adapter, GpuObject]]:
    """Return (description, GPUAdapter) for each adapter of an implementation."""
    return [(_described(i, found), found) for i, found in enumerate(implementation.adapters())]


def _described(index: int, found: GpuObject) -> Adapter:
    info = found.info
    vendor = VENDORS.get(int(info.get("vendor_id", 0)), str(info["vendor"]).lower())
    kind = KINDS.get(str(info["adapter_type"]), "other")
    backend, names = str(info["backend_type"]), ("architecture", "device", "description")
    return Adapter(index, kind, backend, vendor, *(str(info[name]) for name in names))


def choose(adapters: Sequence[Adapter], choice: Choice) -> Adapter:
    """Choose an adapter. A software adapter is chosen only if `choice` names it.

    Raises:
        EPFail: there is no adapter, or none matches; the message lists the adapters found.
    """
    if choice.adapter:
        fitting = [a for a in adapters if a.is_named(choice.adapter)]
    else:
        fitting = [a for a in adapters if a.kind != "software"]
    if fitting:
        return min(fitting, key=lambda a: _rank(a, choice.power_preference))
    if not adapters:
        raise EPFail("WebGPU found no adapter: install the driver of the GPU (on Linux, one for Vulkan)")
    there = "; ".join(map(str, adapters))
    if choice.adapter:
        raise EPFail(f"no adapter is {choice.adapter!r}; there are: {there}")
    raise EPFail(
        f"the only adapters are software adapters, which are used when asked for: set {VARIABLE}=software, or "
        f"provider_options={{'adapter': 'software'}}; there are: {there}"
    )


def _rank(adapter: Adapter, power_preference: str) -> int:
    order = ORDER[power_preference]
    return order.index(adapter.kind) if adapter.kind in order else len(order)
