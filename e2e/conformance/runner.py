"""Runs one conformance case and compares; the same file natively and in the browser.

Every plan is verified as it is made, and a model runs three times on a GPU: as the case says, on other numbers, and
as the case says once more. The last answer has to be the first one, bit for bit: a race may stay within tolerances.
"""

from __future__ import annotations

import os
import time
import traceback
from contextlib import suppress
from typing import Any

import numpy as np

import pyruntime as ort
from pyruntime.ir import DType, HostTensor, OptionalType, SequenceType, TensorType

os.environ["PYRUNTIME_VERIFY"] = "1"

RTOL, ATOL = 1e-3, 1e-5

REFUSAL = "session.disable_cpu_ep_fallback is set"

ROUNDING = {DType.FLOAT16: 2.0**-9, DType.BFLOAT16: 2.0**-6}
"""Two units in the last place of types that are coarser than `RTOL`."""


def _value(wire: Any) -> Any:
    """The value a session is fed: exact types as HostTensor, sequences as lists."""
    if wire is None:
        return None
    if "list" in wire:
        return [_value(v) for v in wire["list"]]
    dtype = DType.from_name(wire["dtype"])
    return HostTensor.of(np.asarray(wire["carrier"]).astype(dtype.numpy), dtype)


def _plain(value: Any) -> Any:
    """Elements of lists as arrays: sequences are fed as onnxruntime takes them."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.array() if isinstance(value, HostTensor) else value


def _compare(got: Any, kind: Any, wire: Any, rtol: float, atol: float, where: str) -> str:
    """What is different, or nothing."""
    if wire is None or got is None:
        return "" if wire is None and got is None else f"{where}: got {got is not None}, expected {wire is not None}"
    if "list" in wire:
        if not isinstance(got, list) or len(got) != len(wire["list"]):
            return f"{where}: expected a list of {len(wire['list'])}, got {got!r}"
        inner = kind.element if isinstance(kind, SequenceType) else None
        pairs = enumerate(zip(got, wire["list"], strict=True))
        return next(filter(None, (_compare(g, inner, w, rtol, atol, f"{where}[{i}]") for i, (g, w) in pairs)), "")
    expected, dtype = np.asarray(wire["carrier"]), DType.from_name(wire["dtype"])
    actual = kind.dtype if isinstance(kind, TensorType) else kind if isinstance(kind, DType) else dtype
    if actual is not dtype:
        return f"{where}: type {actual.onnx_name}, expected {dtype.onnx_name}"
    if tuple(got.shape) != tuple(expected.shape):
        return f"{where}: shape {list(got.shape)}, expected {list(expected.shape)}"
    if got.dtype != expected.dtype and dtype is not DType.STRING:
        return f"{where}: carrier {got.dtype}, expected {expected.dtype}"
    if dtype.is_float or got.dtype.kind == "c":
        rtol = max(rtol, ROUNDING.get(dtype, 0.0))
        close = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    else:
        close = np.asarray(got == expected)
    if bool(np.all(close)):
        return ""
    worst = np.argwhere(~close)[0]
    at = tuple(int(i) for i in worst)
    return f"{where}{list(at)}: {got[at]!r}, expected {expected[at]!r}; {int((~close).sum())} of {close.size} differ"


async def check(
    case: dict[str, Any],
    fallback: bool = True,
    providers: list[str] | None = None,
    entries: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Run one case, with the session config entries given.

    With a fallback, it is first tried without: `session.disable_cpu_ep_fallback` changes nothing of a plan, it only
    refuses one that has host steps.

    Returns:
        "wrong": what is wrong, or nothing; "refused": the refusal where there was one; and once a session was made
        "memory" (see `InferenceSession.summary`), "dispatches", "host" (types of the operators that ran there) and
        "seconds".
    """
    refused = ""
    if fallback and providers is None:
        outcome = await _check(case, False, providers, entries)
        if REFUSAL not in outcome["wrong"]:
            return {**outcome, "refused": ""}
        refused = outcome["wrong"]
    return {**await _check(case, fallback, providers, entries), "refused": refused}


async def _check(
    case: dict[str, Any], fallback: bool, providers: list[str] | None, entries: dict[str, str] | None
) -> dict[str, Any]:
    outcome: dict[str, Any] = {"wrong": ""}
    began = time.perf_counter()
    session = None
    try:
        session = await _session(case["model"], fallback, providers, entries or {})
        for inputs, expected in case["data_sets"]:
            outcome["wrong"] = outcome["wrong"] or await _run(session, case, inputs, expected)
        summary = session.summary()
        outcome["memory"], outcome["dispatches"] = summary["memory"], summary["dispatches"]
        outcome["host"] = sorted({n["op_type"] for n in summary["nodes"] if n["placement"] == "host"})
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno}"
        outcome["wrong"] = f"{type(error).__name__}: {str(error)[:300]} ({where})"
    finally:
        if session is not None:
            session.release()
    outcome["seconds"] = time.perf_counter() - began
    return outcome


async def _session(
    model: bytes, fallback: bool, providers: list[str] | None, entries: dict[str, str]
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    if not fallback:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = await ort.InferenceSession.create(model, options, providers)
    assert providers or session.target is not None, "no GPU here"
    return session


async def _run(session: ort.InferenceSession, case: dict[str, Any], inputs: dict[str, Any], expected: list[Any]) -> str:
    """What is wrong with the outputs for one set of inputs, or nothing."""
    names = [o.name for o in session.get_outputs()]
    feed = {name: _fit(session, name, _fed(wire)) for name, wire in inputs.items()}
    values = await session._run_values(feed, names, None)
    rtol, atol = max(case["rtol"], RTOL), max(case["atol"], ATOL)
    for name, wire in zip(names, expected, strict=False):
        value: Any = values[name]
        got, kind = (value.array(), value.type) if isinstance(value, HostTensor) else (value.value(), value)
        kind = kind.element if isinstance(kind, OptionalType) else kind
        if wrong := _compare(got, kind, wire, rtol, atol, name):
            return wrong
    if not case["again"]:
        return ""
    return await _again(session, feed, names, values)


async def _again(session: ort.InferenceSession, feed: dict[str, Any], names: list[str], before: dict[str, Any]) -> str:
    """What another run gives that the run before did not, with a run on other numbers between them; or nothing.

    Models with random generators are left out.
    """
    if session.target is None or not all(getattr(node.op, "pure", True) for node in session._model.graph.nodes):
        return ""
    kept = {name: _bits(_found(before[name])) for name in names}
    if (other := _other(feed)) is not None:
        with suppress(ort.OrtError, ArithmeticError, LookupError, ValueError):  # the model may take no such numbers
            await session._run_values(other, names, None)
    values = await session._run_values(feed, names, None)
    different = [name for name in names if _bits(_found(values[name])) != kept[name]]
    return f"{', '.join(different)}: another run on the same input gave other bits" if different else ""


def _other(feed: dict[str, Any]) -> dict[str, Any] | None:
    """The feed with its float tensors from back to front and doubled; None where there are none."""
    floats = {n: v for n, v in feed.items() if isinstance(v, HostTensor) and v.type.dtype.is_float and v.type.nbytes}
    if not floats:
        return None
    return {**feed, **{n: HostTensor.of(np.flip(v.array()) * 2, v.type.dtype) for n, v in floats.items()}}


def _found(value: Any) -> Any:
    """A result as NumPy has it."""
    return value.array() if isinstance(value, HostTensor) else value.value()


def _bits(value: Any) -> Any:
    """What equal values have in common, NaN with NaN."""
    if isinstance(value, list | tuple):
        return [_bits(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        whole = np.asarray(value)
        return whole.shape, whole.dtype.str, whole.tolist() if whole.dtype == object else whole.tobytes()
    return repr(value)


def _fed(wire: Any) -> Any:
    value = _value(wire)
    return _plain(value) if isinstance(value, list) else value


def _fit(session: ort.InferenceSession, name: str, value: Any) -> Any:
    """A tensor given for an optional input is that optional's value."""
    declared = {v.name: v for v in session._model.graph.inputs}[name]
    if isinstance(value, HostTensor) and type(declared.type).__name__ == "HostKind":
        return value.array()
    return value


async def check_all(cases: list[dict[str, Any]], **options: Any) -> dict[str, dict[str, Any]]:
    """Name to the outcome of `check`, for a batch."""
    return {case["name"]: await check(case, **options) for case in cases}
