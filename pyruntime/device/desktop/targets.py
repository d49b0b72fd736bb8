"""The compiler's `Target` for a desktop device."""

from __future__ import annotations

import re

from pyruntime.device.desktop.adapters import Adapter
from pyruntime.device.desktop.implementations import GpuObject, Implementation
from pyruntime.kernels import Limits, Target
from pyruntime.target import (
    FLOAT16_CONVERSION,
    SOFTWARE_ADAPTER,
    SOFTWARE_VENDOR,
    SUBGROUP_MATRIX,
    SUBGROUP_SIZE,
    matrix_unit_of,
)

__all__ = ["LIMITS", "target_of"]

LIMITS = {name: re.sub("[A-Z]", lambda m: f"-{m[0].lower()}", theirs) for name, theirs in Limits.names.items()}
"""Fields of `Limits`, and the limits of the wgpu-py API that they come from."""

MOST = (1 << 31) - 4
"""Upper bound for limits: kernels count bytes and elements in 32 bits."""

MOST_BINDINGS = 16
"""Upper bound for storage buffers of a stage: drivers offer up to a million, browsers 8 to 16."""

_LANGUAGE_FEATURES = ("packed_4x8_integer_dot_product",)
"""Language features of WGSL that both naga and Tint have."""

_SUBGROUPS = {"nvidia": 32}
"""Subgroup sizes of vendors whose GPUs all have the same, so that no kernel has to measure it."""

_PROBE = """@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(subgroup_size) size: u32, @builtin(local_invocation_index) i: u32) {
  if (i == 0u) { y[0] = size; }
}
"""


def target_of(
    implementation: Implementation, adapter: Adapter, found: GpuObject, device: GpuObject, reserved: int
) -> Target:
    """Return the limits, features and vendor of a device.

    Args:
        found: the GPUAdapter of the device. reserved: storage buffers that all pipelines bind besides those of kernels.
    """
    limits = {name: min(int(device.limits[theirs]), MOST) for name, theirs in LIMITS.items()}
    limits["storage_buffers"] = min(limits["storage_buffers"] - reserved, MOST_BINDINGS)
    features = set(implementation.features_of(device)) | set(_LANGUAGE_FEATURES)
    if "subgroups" in features:
        least, most = implementation.subgroup_sizes(found)
        size = least if least == most else 0
        if not most:
            size = _SUBGROUPS.get(adapter.vendor) or _measured_subgroup(implementation, device)
        features |= {f"{SUBGROUP_SIZE}{size}"} if size else set()
    if SUBGROUP_MATRIX in features:
        features |= set(matrix_unit_of(implementation.matrices(found)))
    if adapter.kind != "software":
        features.add(FLOAT16_CONVERSION)
    elif adapter.vendor != SOFTWARE_VENDOR:
        features.add(SOFTWARE_ADAPTER)
    # Pipelines compile in threads here, and drivers cache them on disk.
    return Target(Limits(**limits), frozenset(features), adapter.vendor, frozenset({"fallback_kernels"}))


def _measured_subgroup(implementation: Implementation, device: GpuObject) -> int:
    """Measure the subgroup size with a kernel."""
    usage = implementation.api.BufferUsage
    buffer = device.create_buffer(size=16, usage=usage.STORAGE | usage.COPY_SRC)
    module = implementation.module(device, _PROBE, False)
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": 16}}]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    implementation.encode(encoder, [(pipeline, group, (1, 1, 1))])
    device.queue.submit([encoder.finish()])
    size = int.from_bytes(bytes(device.queue.read_buffer(buffer, 0, 4)), "little")
    buffer.destroy()
    return size
