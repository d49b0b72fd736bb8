"""Measurements of an adapter, cached for later visits: JSON in Cache Storage, one entry an adapter."""

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
    """Read the measurements of an adapter; empty where there is no storage or no valid entry."""
    try:
        caches = getattr(js, "caches", None)  # missing in insecure contexts
        where = js_object({"cacheName": _CACHE})  # `match` creates no cache
        found = await caches.match(_address(info), where) if caches is not None else None
        return Knowledge.from_dict(json.loads(str(await found.text()))) if found else Knowledge()
    except (JsException, ValueError):
        return Knowledge()


async def store(info: AdapterInfo, known: Knowledge) -> None:
    """Replace the entry with the measurements of an adapter; no error where the browser refuses storage."""
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
