"""What was measured on an adapter, kept for the next visit: JSON in Cache Storage, one entry an adapter."""

from __future__ import annotations

import json

import js
from pyodide.ffi import JsException

from pyruntime.device.base import AdapterInfo
from pyruntime.device.webgpu.javascript import js_object
from pyruntime.kernels.selection.measurements import Knowledge

__all__ = ["load", "store"]

_CACHE = "pyruntime-devices"


async def load(info: AdapterInfo) -> Knowledge:
    """Read what was measured on an adapter; nothing where there is no storage, or no entry that can be read."""
    try:
        caches = getattr(js, "caches", None)  # not there in pages that are not secure
        where = js_object({"cacheName": _CACHE})  # a cache that is not there is not made
        found = await caches.match(_address(info), where) if caches is not None else None
        return Knowledge.from_dict(json.loads(str(await found.text()))) if found else Knowledge()
    except (JsException, ValueError):
        return Knowledge()


async def store(info: AdapterInfo, known: Knowledge) -> None:
    """Store what was measured in place of the earlier entry; no error where the browser stores nothing."""
    try:
        caches = getattr(js, "caches", None)
        if caches is not None:
            cache = await caches.open(_CACHE)
            headers = js_object({"headers": {"Content-Type": "application/json"}})
            await cache.put(_address(info), js.Response.new(json.dumps(known.to_dict()), headers))
    except JsException:
        return


def _address(info: AdapterInfo) -> str:
    software = ("software",) if info.is_fallback else ()
    parts = (*info.names.values(), *software)
    name = "/".join(js.encodeURIComponent(part or "-") for part in parts)
    return str(js.URL.new(f"/.pyruntime-devices/{name}", js.location.href).href)
