"""Requests for a GPU adapter, repeated while the browser's GPU process starts."""

from __future__ import annotations

import asyncio
from itertools import chain, repeat

import js

from pyruntime.device.base import AdapterInfo
from pyruntime.device.webgpu.advice import no_adapter, no_webgpu
from pyruntime.device.webgpu.javascript import JsObject, js_object
from pyruntime.errors import EPFail
from pyruntime.target import FLOAT16_CONVERSION, SOFTWARE_ADAPTER, SOFTWARE_VENDOR, SUBGROUP_SIZE, matrix_unit_of

__all__ = ["find_adapter", "kind_of", "matrix_unit", "subgroup_size"]

_START_MS = 2000.0
"""Milliseconds after the first request in which a missing adapter may mean that the GPU process is starting."""

_RESTART_MS = 3000.0
"""The same after an adapter was found once: the GPU process may be restarting."""

_ASKED = "pyruntime: adapter asked"
"""Performance mark of the first request, which web/worker/runtime.js makes while Python starts."""

_had_adapter = False


async def find_adapter() -> JsObject:
    """Request the high-performance adapter, repeatedly while the GPU process may be starting.

    Without one, request an adapter of compatibility mode (OpenGL ES 3.1), which has lower limits.

    Raises:
        EPFail: the browser has no WebGPU, or no adapter.
    """
    global _had_adapter
    navigator = js.navigator
    agent = str(navigator.userAgent)
    gpu = getattr(navigator, "gpu", None)
    if gpu is None:
        raise EPFail(no_webgpu(agent, bool(js.isSecureContext), not hasattr(js, "document")))
    until = js.performance.now() + _RESTART_MS if _had_adapter else _first_asked() + _START_MS
    for seconds in chain((0.05, 0.1), repeat(0.2)):
        asked = js.performance.now()
        for level in ("core", "compatibility"):
            options = {"powerPreference": "high-performance", "featureLevel": level}
            adapter = await gpu.requestAdapter(js_object(options))
            if adapter:
                _had_adapter = True
                return adapter
        if asked > until:
            break
        await asyncio.sleep(seconds)
    raise EPFail(no_adapter(agent))


def _first_asked() -> float:
    """Return the time of this thread's first request in milliseconds; without an earlier one, mark and return the
    present.
    """
    marks = list(js.performance.getEntriesByName(_ASKED))
    if not marks:
        js.performance.mark(_ASKED)
    return float(marks[0].startTime if marks else js.performance.now())


def subgroup_size(info: JsObject) -> list[str]:
    """Return the feature `SUBGROUP_SIZE` with the adapter's only subgroup size; nothing where sizes differ or are
    unknown.
    """
    least, most = (int(getattr(info, f"subgroup{which}Size", 0) or 0) for which in ("Min", "Max"))
    return [f"{SUBGROUP_SIZE}{least}"] if least == most and least else []


def matrix_unit(info: JsObject, language: JsObject) -> list[str]:
    """Return the feature `MATRIX_UNIT` with the sizes of subgroup matrices; nothing where there are none.

    Args:
        language: WGSLLanguageFeatures, of which kernels with subgroup matrices need two; None where the browser has
            none.
    """
    if language is None or not all(language.has(feature) for feature in ("buffer_view", "subgroup_id")):
        return []
    configs = list(getattr(info, "subgroupMatrixConfigs", None) or ())
    return matrix_unit_of((str(c.componentType), str(c.resultComponentType), c.M, c.N, c.K) for c in configs)


def kind_of(info: AdapterInfo) -> list[str]:
    """Return the feature for a hardware adapter or for a software adapter; nothing if the vendor name already tells."""
    known = info.vendor.lower() == SOFTWARE_VENDOR
    return [] if known else [SOFTWARE_ADAPTER if info.is_fallback else FLOAT16_CONVERSION]
