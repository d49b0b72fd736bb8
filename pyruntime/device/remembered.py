"""What was measured on an adapter, kept for the next visit: JSON in Cache Storage, one entry an adapter."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import js
from pyodide.ffi import JsException

from pyruntime.device.base import AdapterInfo
from pyruntime.device.javascript import js_object
from pyruntime.kernels.knowledge import Knowledge

__all__ = ["recall", "remember"]

_CACHE = "pyruntime-devices"


async def recall(info: AdapterInfo) -> Knowledge:
    """What is known of an adapter; nothing where there is no storage, or no entry that can be read."""
    try:
        store = await _store()
        found = await store.match(_address(info)) if store is not None else None
        return Knowledge.from_dict(json.loads(str(await found.text()))) if found else Knowledge()
    except (JsException, ValueError):
        return Knowledge()


async def remember(info: AdapterInfo, known: Knowledge) -> None:
    """Keep it in place of what was known; no error where the browser keeps nothing."""
    try:
        store = await _store()
        if store is not None:
            headers = js_object({"headers": {"Content-Type": "application/json"}})
            await store.put(_address(info), js.Response.new(json.dumps(known.to_dict()), headers))
    except JsException:
        return


async def _store() -> Any:
    caches = getattr(js, "caches", None)  # not there in pages that are not secure
    return await caches.open(_CACHE) if caches is not None else None


def _address(info: AdapterInfo) -> str:
    parts = (info.vendor, info.architecture, info.device, info.description)
    name = "/".join(quote(part or "-", safe="") for part in parts)
    return str(js.URL.new(f"/.pyruntime-devices/{name}", js.location.href).href)
