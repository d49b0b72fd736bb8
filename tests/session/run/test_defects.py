"""A bug in a lowering, a pass or the planner fails the session and asks for a report: it is never a slower path."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest
from onnx import parser

from pyruntime.device.null import NullDevice
from pyruntime.errors import Defect, InvalidGraph, OutOfMemory, RuntimeException
from pyruntime.ir import TensorType, is_dim
from pyruntime.kernels import Kernel
from pyruntime.ops.base import Unsupported
from pyruntime.ops.movement.trilu import Trilu
from pyruntime.passes import pipeline
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.run.dynamic_dimensions import DynamicDimensions
from tests import open_models
from tests.session.doubles import on_device

MODEL = """
<ir_version: 9, opset_import: ["" : 17]>
model (float[N, 4] x) => (float[N, 4] y) { t = Relu (x) y = Trilu (t) }
"""
REPORT = "this is a bug of pyruntime, please report it with the model"


def run(*rows: int) -> InferenceSession:
    """A session on the null device after runs of so many rows."""
    options = SessionOptions()

    async def main() -> InferenceSession:
        session = await InferenceSession.create(parser.parse_model(MODEL).SerializeToString(), options)
        for n in rows:
            await session.run_async(None, {"x": np.ones((n, 4), np.float32)})
        return session

    with on_device(NullDevice()):
        return asyncio.run(main())


def placements(session: InferenceSession) -> list[dict[str, str]]:
    """Where the operators run, for each plan."""
    assert session._program is not None
    plans = [stage.executable.plan for stage in session._program.roots]
    return [{a.op_type: a.placement for a in plan.assignments} for plan in plans]


def broken(*arguments: Any, **named: Any) -> NoReturn:
    raise ZeroDivisionError("division by zero")


def test_lowering__raises__fails_the_run_and_names_node_operator_and_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trilu, "lower", broken)
    told = rf"lowering of 'y' \(Trilu\), opset 14, with inputs float\[3,4\].* failed with ZeroDivisionError.*{REPORT}"
    with pytest.raises(Defect, match=told) as caught:
        run(3)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_lowering__says_that_it_cannot__runs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def lower(*arguments: Any) -> NoReturn:
        raise Unsupported("not today")

    monkeypatch.setattr(Trilu, "lower", lower)
    assert placements(run(3)) == [{"Relu": "gpu", "Trilu": "host"}]


def test_kernel__whose_source_cannot_be_made__fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Kernel, "wgsl", broken)
    with pytest.raises(Defect, match=rf"failed with ZeroDivisionError.*{REPORT}"):
        run(3)


@pytest.mark.parametrize("name", sorted({one.name for one in pipeline.PASSES}))
def test_pass__raises__fails_the_run_and_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tuple(replace(one, run=broken) if one.name == name else one for one in pipeline.PASSES)
    monkeypatch.setattr("pyruntime.compiler.compile.PASSES", made)
    with pytest.raises(Defect, match=rf"pass '{name}' failed with ZeroDivisionError.*{REPORT}"):
        run(3)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("pyruntime.compiler.compile.split_static", "planning computed constants"),
        ("pyruntime.compiler.placement._resolve_views", "placing nodes"),
        ("pyruntime.compiler.build.schedule", "ordering nodes"),
        ("pyruntime.compiler.build.pack", "planning memory and commands"),
        ("pyruntime.compiler.emission.Emitter.segment", "planning memory and commands"),
        ("pyruntime.compiler.typing.Typing._written_as", "typing"),
    ],
)
def test_step_of_planning__raises__fails_the_run_and_is_named(
    step: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, broken)
    with pytest.raises(Defect, match=rf"{told} failed with ZeroDivisionError.*{REPORT}"):
        run(3)


def test_dynamic_dimensions__choosing_them_raises__fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DynamicDimensions, "_bounds", broken)
    with pytest.raises(Defect, match=rf"choosing dynamic dimensions failed with ZeroDivisionError.*{REPORT}"):
        run(3, 5)


def test_dynamic_dimensions__a_lowering_raises_for_them_alone__fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = Trilu.lower

    def lowered(self: Trilu, target: Any, x: TensorType, *others: Any) -> Any:
        return broken() if any(map(is_dim, x.shape)) else lower(self, target, x, *others)

    monkeypatch.setattr(Trilu, "lower", lowered)
    with pytest.raises(Defect, match=r"lowering of 'y' \(Trilu\)"):
        run(3, 5)


def test_dynamic_dimensions__inference_refuses_them_alone__fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    infer = Trilu.infer

    def inferred(self: Trilu, x: TensorType, *others: Any) -> Any:
        return self.fail("numbers", x) if any(map(is_dim, x.shape)) else infer(self, x, *others)

    monkeypatch.setattr(Trilu, "infer", inferred)
    with pytest.raises(InvalidGraph, match=r"'y' \(Trilu\), opset 14: Trilu: expected numbers"):
        run(3, 5)


def test_dynamic_dimensions__are_more_than_the_limit__are_planned_as_they_come() -> None:
    options = SessionOptions()
    options.limits = ResourceLimits(gpu_bytes=1_800_000)

    async def main() -> InferenceSession:
        session = await InferenceSession.create(parser.parse_model(MODEL).SerializeToString(), options)
        for rows in (3, 40_000, 33_000):
            await session.run_async(None, {"x": np.ones((rows, 4), np.float32)})
        return session

    with on_device(NullDevice()):
        session = asyncio.run(main())
    assert session._program is not None
    assert "OutOfMemory" in session._program.dynamic_dimensions.reasons["N"]
    assert session._program.roots[-1].sizes is None


INVERTED = """
<ir_version: 9, opset_import: ["" : 18]>
model (float[N, 4] x) => (float[N, 4] y) {
  size = Shape (x)
  once = BitwiseNot (size)
  twice = BitwiseNot (once)
  y = Reshape (x, twice)
}
"""


def test_dynamic_dimensions__numpy_computes_with_numbers_alone__are_planned_as_they_come_unless_strict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.session.run.test_defects.MODEL", INVERTED)
    with pytest.raises(RuntimeException, match=r"'once' \(BitwiseNot\), opset 18: TypeError"):
        run(3, 5)
    monkeypatch.setenv("PYRUNTIME_STRICT", "0")
    session = run(3, 5, 6)
    assert session._program is not None
    assert "N" in session._program.dynamic_dimensions.reasons


def test_expected_runs__a_lowering_raises__fail_the_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SessionOptions()
    options.add_session_config_entry("pyruntime.expects", '{"staying": null}')
    model = open_models.decoder()

    async def main() -> None:
        await InferenceSession.create(model, options)

    monkeypatch.setattr("pyruntime.ops.normalization.softmax.Softmax.lower", broken)
    monkeypatch.setattr("pyruntime.ops.fused.attention.FusedAttention.lower", broken)
    with on_device(NullDevice()), pytest.raises(Defect, match="ZeroDivisionError"):
        asyncio.run(main())
    assert issubclass(Defect, Exception) and not issubclass(OutOfMemory, Defect)
