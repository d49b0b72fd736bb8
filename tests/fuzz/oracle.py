"""What onnxruntime's CPU makes of a sample, and the sample as a conformance case."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from e2e.conformance import runner
from e2e.conformance.cases import Case, nbytes, wire
from tests.fuzz import arrays
from tests.fuzz.build import Sample
from tests.oracle import OPTIONS

__all__ = ["Judged", "judge", "native_complaint"]

MISSING = (ort_errors.NotImplemented, ort_errors.InvalidGraph)
"""onnxruntime has no kernel for these types."""


@dataclass(frozen=True)
class Judged:
    """A sample with the outputs it should have.

    Attributes:
        by: 'onnxruntime', or 'evaluate' where onnxruntime has no kernel: then only the GPU is checked, against NumPy.
    """

    sample: Sample
    outputs: list[Any]
    by: str

    @property
    def nbytes(self) -> int:
        """Bytes of the outputs, in their NumPy carriers."""
        return sum(map(nbytes, self.outputs))

    def case(self) -> Case:
        """For `e2e.conformance.runner`."""
        sample = self.sample
        feeds = {name: wire(x) for name, x in sample.feeds.items()}
        return Case("sample", sample.model.SerializeToString(), [(feeds, self.outputs)], sample.rtol, sample.atol)


def _onnxruntime(sample: Sample) -> list[Any] | None:
    try:
        session = onnxruntime.InferenceSession(
            sample.model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"]
        )
    except MISSING:
        return None
    if any(x.dtype.name not in _KNOWN for x in sample.feeds.values()):
        return None
    if any(meta.type in _UNREADABLE for meta in session.get_outputs()):
        return None
    made = session.run(None, sample.feeds)
    return [wire(_typed(y, meta.type)) for y, meta in zip(made, session.get_outputs(), strict=True)]


def _typed(value: Any, kind: str) -> Any:
    """onnxruntime gives 8-bit floats as bytes."""
    return value.view(arrays.SMALL_TYPES[_FLOAT8[kind]]) if kind in _FLOAT8 else value


_FLOAT8 = {"tensor(float8e4m3fn)": "float8_e4m3fn"}
_UNREADABLE = ("tensor(float8e5m2)", "tensor(bfloat16)", "tensor(int4)", "tensor(uint4)")
_KNOWN = {
    *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool", "object"),
}


def judge(sample: Sample) -> Judged:
    """The sample with its expected outputs.

    Raises:
        AssertionError: onnxruntime refuses the sample, or this runtime cannot run it on NumPy.
    """
    outputs = _onnxruntime(sample)
    if outputs is not None and not _divides_by_zero(sample, outputs):
        return Judged(sample, outputs, "onnxruntime")
    return Judged(sample, _evaluated(sample), "evaluate")


def _divides_by_zero(sample: Sample, outputs: list[Any]) -> bool:
    """Whether NaN comes of equal elements: onnxruntime divides them by their deviation, ONNX by that and 1e-9."""
    if not any(node.op_type == "MeanVarianceNormalization" for node in sample.model.graph.node):
        return False
    values = [o["carrier"] for o in outputs if isinstance(o, dict) and "carrier" in o]
    return any(v.dtype.kind == "f" and np.isnan(v).any() for v in values)


def _evaluated(sample: Sample) -> list[Any]:
    import pyruntime as ort
    from pyruntime.ir import HostTensor

    async def run() -> list[Any]:
        session = await ort.InferenceSession.create(sample.model.SerializeToString(), None, ["CPUExecutionProvider"])
        feeds = {name: runner._value(wire(x)) for name, x in sample.feeds.items()}
        names = [o.name for o in session.get_outputs()]
        values = await session._run_values(feeds, names, None)
        tensors = [values[n] for n in names]
        assert all(isinstance(t, HostTensor) for t in tensors)
        return [{"dtype": t.type.dtype.onnx_name, "carrier": t.array()} for t in tensors]

    result: list[Any] = _finish(run())
    return result


def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never has to wait, as on NumPy; also within a running event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


def native_complaint(judged: Judged) -> str:
    """What is wrong with the sample on NumPy, or nothing."""
    if judged.by == "evaluate":
        return ""
    outcome = _finish(runner.check(judged.case().message(), True, ["CPUExecutionProvider"]))
    return str(outcome["wrong"])
