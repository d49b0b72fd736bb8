"""What was measured on an adapter, for later processes: a JSON file for each, in the folder of `PYRUNTIME_CACHE`."""

from __future__ import annotations

import json
from urllib.parse import quote

from pyruntime.device.base import AdapterInfo
from pyruntime.device.desktop import cache
from pyruntime.kernels.selection.measurements import Knowledge

__all__ = ["load", "store"]


def load(info: AdapterInfo) -> Knowledge:
    """Read what was measured on an adapter; nothing where there is no file, or none that can be read."""
    found = cache.load("devices", _name(info))
    try:
        return Knowledge.from_dict(json.loads(found)) if found else Knowledge()
    except ValueError:
        return Knowledge()


def store(info: AdapterInfo, known: Knowledge) -> None:
    """Store what was measured in place of the earlier file."""
    cache.store(json.dumps(known.to_dict()).encode(), "devices", _name(info))


def _name(info: AdapterInfo) -> str:
    return quote("-".join(filter(None, info.names.values())) or "unknown", safe=" ") + ".json"
