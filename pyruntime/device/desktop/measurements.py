"""Measurements of adapters, cached for later processes: a JSON file for each, in the folder of `PYRUNTIME_CACHE`."""

from __future__ import annotations

import json
from urllib.parse import quote

from pyruntime.device.base import AdapterInfo
from pyruntime.device.desktop import cache
from pyruntime.kernels.selection.measurements import Knowledge

__all__ = ["load", "store"]


def load(info: AdapterInfo) -> Knowledge:
    """Read the measurements of an adapter; empty where there is no file or it is not valid."""
    found = cache.load("devices", _name(info))
    try:
        return Knowledge.from_dict(json.loads(found)) if found else Knowledge()
    except ValueError:
        return Knowledge()


def store(info: AdapterInfo, known: Knowledge) -> None:
    """Replace the file with the measurements of an adapter."""
    cache.store(json.dumps(known.to_dict()).encode(), "devices", _name(info))


def _name(info: AdapterInfo) -> str:
    return quote("-".join(filter(None, info.names.values())) or "unknown", safe=" ") + ".json"
