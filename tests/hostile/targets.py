"""What is fuzzed: any bytes at all must end in an exception of this package, or in an answer."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable

import numpy as np

from pyruntime.errors import OrtError
from pyruntime.ir import DeclaredTensor, DType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import Limits, read_model
from pyruntime.session import InferenceSession, SessionOptions
from tests.bad_models.corpus import cases
from tests.onnx.corpus import node_models
from tests.onnx.ort_files import samples
from tests.session.doubles import FaultyDevice, on_device

__all__ = ["TARGETS", "load", "reader", "seeds"]

_LIMITS = {
    "messages": 20_000,
    "nodes": 2_000,
    "gpu_bytes": 1 << 26,
    "node_bytes": 1 << 20,
    "loop_trips": 50,
    "run_seconds": 1.0,
}
_LARGEST_SEED = 4000


def reader(data: bytes) -> None:
    """Read the file, import the graph, decode every constant of up to a mebibyte."""
    try:
        limits = Limits(messages=20_000, nodes=2_000)
        graph = import_model(read_model(data, limits), limits=limits).graph
    except OrtError:
        return
    for constant in graph.constants.values():
        if constant.type.nbytes <= 1 << 20:
            try:
                constant.numpy()
            except OrtError:
                continue


def load(data: bytes) -> None:
    """Load the model, plan it for a device and on the host, run both on zeros."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for providers in (None, ["CPUExecutionProvider"]):
            device = FaultyDevice()
            with on_device(device):
                asyncio.run(_load(data, providers))
            assert not device.ledger.live and not device.recordings, "memory of the device is left"


async def _load(data: bytes, providers: list[str] | None) -> None:
    options = SessionOptions()
    for name, value in _LIMITS.items():
        setattr(options.limits, name, value)
    try:
        session = await InferenceSession.create(data, options, providers)
    except OrtError as error:
        _no_bug(error)
        return
    try:
        await session.run_async(None, _zeros(session))
    except OrtError as error:
        _no_bug(error)
    finally:
        session.release()


def _no_bug(error: OrtError) -> None:
    if "bug of pyruntime" in str(error):
        raise error


def _zeros(session: InferenceSession) -> dict[str, object]:
    feeds: dict[str, object] = {}
    for value in session._model.graph.inputs:
        kind = value.type
        if not isinstance(kind, DeclaredTensor):
            continue
        shape = [d if isinstance(d, int) else 2 for d in kind.shape or ()]
        if np.prod([float(max(d, 1)) for d in shape]) <= 1 << 16:  # NumPy counts bytes as if none were 0
            carrier = object if kind.dtype is DType.STRING else kind.dtype.numpy
            feeds[value.name] = np.zeros(shape, carrier)
    return feeds


TARGETS: dict[str, Callable[[bytes], None]] = {"reader": reader, "load": load}


def seeds() -> list[bytes]:
    """Where mutation begins: bad models, and the smallest of ONNX's node tests, some also in ORT format."""
    good = sorted(node_models().values(), key=len)
    kinds = ([c.data for c in cases().values()], good[::8], samples().values())
    return [data for kind in kinds for data in kind if len(data) < _LARGEST_SEED]
