"""A Vulkan driver, which WebGPU needs on Linux: for Firefox, and for wgpu in native tests."""

from __future__ import annotations

from pathlib import Path

from tools.devkit import apt

__all__ = ["ensure_vulkan"]

DRIVERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")


def ensure_vulkan() -> None:
    """Install a software driver (lavapipe) if the machine has no driver and packages can be installed."""
    if apt.prefix() is None or any(any(Path(folder).glob("*.json")) for folder in DRIVERS):
        return
    apt.install("mesa-vulkan-drivers")
