"""The benchmark as Python in the worker sees it: onnxruntime's API, NumPy arrays in and out, no messages."""

import time
from typing import Any

import js
import numpy as np
from pyodide.ffi import to_js

import pyruntime as ort
from pyruntime.session.environment import device

_session: Any = None
_feeds: dict[str, Any] = {}


def _js(value: Any) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)


async def create(url: str) -> None:
    """A session over the model at `url`; the one before is released."""
    global _session
    if _session is not None:
        _session.release()
    _session = await ort.InferenceSession.create(url)


def feed(feeds: Any) -> None:
    """Keep the inputs as NumPy arrays."""
    _feeds.clear()
    for name, wire in js.Object.entries(feeds):
        dtype = np.dtype(wire.type)
        _feeds[name] = np.frombuffer(wire.data.to_bytes(), dtype).reshape([int(d) for d in wire.dims])


async def run() -> Any:
    """Outputs as the other engines give them."""
    values = await _session.run_async(None, _feeds)
    names = [o.name for o in _session.get_outputs()]
    return _js({n: {"data": np.ravel(v), "dims": list(v.shape)} for n, v in zip(names, values, strict=True)})


async def times(count: int) -> Any:
    """Milliseconds of each of `count` runs."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        await _session.run_async(None, _feeds)
        taken.append((time.perf_counter() - began) * 1000)
    return to_js(taken)


async def details() -> Any:
    """What only Python can tell: the session's plan and the device's ledger, in bytes."""
    summary = _session.summary()
    ledger = (await device()).ledger
    return _js(
        {
            "planned": summary["memory"],
            "timings": summary["timings"],
            "ledger": {"live": ledger.total, "peak": ledger.peak, "pipelines": ledger.pipelines},
        }
    )


def release() -> None:
    """Free the session."""
    _session.release()
