"""explain(), memory_plan, profile() and rich display, on NumPy and on a device that records."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.device.base import Raw, Read, Write
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.session.inspect.profile import Profile
from pyruntime.session.markup import bytes_text, highlight, text_table
from pyruntime.session.run.profiling import Timing
from pyruntime.session.tuning.ceilings import Ceilings, ceilings
from tests.open_models import needs_number, positions
from tests.session.doubles import on_device
from tests.session.models import staged

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"
X = np.zeros((2, 1, 16, 16), np.float32)


class Balance(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def planned() -> pyruntime.InferenceSession:
    with on_device(NullDevice()):
        session = pyruntime.InferenceSession(DIGITS)
        asyncio.run(session.run_async(None, {"image": X}))
    return session


def test_summary__timings__tell_planning_and_what_was_waited_for() -> None:
    session = planned()
    timings = session.summary()["timings"]
    assert {"create_ms", "run_ms", "allocate_ms", "pipelines_ms", "weights_ms", "computed_ms"} <= timings.keys()
    assert timings["plan_ms"] > 0
    asyncio.run(session.run_async(None, {"image": X}))
    assert session.summary()["timings"]["plan_ms"] == timings["plan_ms"]
    asyncio.run(session.run_async(None, {"image": np.zeros((3, 1, 16, 16), np.float32)}))
    assert session.summary()["timings"]["plan_ms"] > timings["plan_ms"]
    session.release()


def test_explain__after_several_sizes__tells_which_are_open_and_why_others_are_not() -> None:
    for model, is_open in ((positions(), True), (needs_number(), False)):
        with on_device(NullDevice()):
            session = pyruntime.InferenceSession(model)
            for n in (3, 9, 30):
                asyncio.run(session.run_async(None, {"x": np.zeros((n, 4), np.float32)}))
            told = session.explain()
            session.release()
        sizes = json.loads(json.dumps(told.to_dict()))["sizes"]
        text, html = str(told), told._repr_html_()
        Balance(html)
        if is_open:
            assert sizes == {"open": [{"name": "length", "low": 2, "high": 64}], "fixed": []}
            assert "sizes: length: any from 2 to 64, one plan" in text and "length: any from 2 to 64" in html
        else:
            assert (
                not sizes["open"] and [s["name"] for s in sizes["fixed"]] == ["length"] and sizes["fixed"][0]["reason"]
            )
            assert "length: a plan for each, because of a node runs on the host" in text
    assert planned().explain().to_dict()["sizes"] == {"open": [], "fixed": []}


def test_explain__planned_session__accounts_for_every_node() -> None:
    session = planned()
    told = session.explain()
    fused = sum(a.op_type.count(" + ") for a in told.nodes)
    assert len(told.nodes) + fused == told.model_nodes == 15
    assert [f.split(" (")[0] for f in told.fusions] == ["Conv + Relu"] * 5
    assert sum(k.count for k in told.kernels) == told.dispatches > 0
    assert all("@compute" in k.wgsl for k in told.kernels)
    assert json.loads(json.dumps(told.to_dict()))["memory"]["peak"] == session.memory_plan.peak
    assert "conv1" in str(told) and "Conv + Relu" in str(told) and "peak" in str(told)


def test_explain__html__is_well_formed_and_folds_the_kernels() -> None:
    told = planned().explain()
    seen = Balance(told._repr_html_()).seen
    assert {"details", "summary", "table", "svg", "pre", "style"} <= seen
    assert told._repr_html_().count("<pre>") == len(told.kernels)


def test_explain__numpy_session__gives_the_reason() -> None:
    told = pyruntime.InferenceSession(DIGITS).explain()
    assert {(a.placement, a.reason) for a in told.nodes} == {("host", "the session runs on CPUExecutionProvider")}
    Balance(told._repr_html_())


def test_memory_plan__chart__has_a_bar_for_each_tensor_within_the_peak() -> None:
    memory = planned().memory_plan
    chart = ElementTree.fromstring(memory.svg())
    bars = [e for e in chart if e.tag == "rect"]
    assert len(bars) == len(memory.tensors)
    assert memory.lower_bound <= memory.peak <= memory.total_without_reuse
    assert all(s.offset + s.nbytes <= memory.peak for s in memory.tensors)
    floor = max(float(b.attrib["y"]) + float(b.attrib["height"]) for b in bars)
    assert all(0 < float(b.attrib["y"]) <= floor for b in bars)
    assert "peak" in "".join(chart.itertext()) and "lower bound" in "".join(chart.itertext())
    for a in memory.tensors:
        for b in memory.tensors:
            apart = a.last < b.first or b.last < a.first or a is b or a.arena != b.arena
            assert apart or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


class NewDevice(NullDevice):
    """Notes what it is asked for: 'run', or 'wait', before which it has fallback kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def submit(
        self, recording: int, writes: Sequence[Write], reads: Sequence[Read], numbers: Sequence[int] = ()
    ) -> list[Raw]:
        self.asked.append("run")
        return await super().submit(recording, writes, reads, numbers)

    async def wait_for_pipelines(self) -> None:
        self.asked.append("wait")


def test_profile__first_run_of_a_session__fallback_kernels_are_not_counted() -> None:
    device = NewDevice()
    with on_device(device):
        session = pyruntime.InferenceSession(DIGITS)
        asyncio.run(session.profile_async({"image": X}, 3))
    assert device.asked[:5] == ["run", "wait", "run", "run", "run"]
    session.release()


def test_profile__numpy__counts_every_node() -> None:
    session = pyruntime.InferenceSession(DIGITS)
    profile = session.profile({"image": X}, runs=3)
    assert {r.name: r.calls for r in profile.rows} == {
        "Conv": 5, "Relu": 5, "MaxPool": 2, "Flatten": 1, "Gemm": 1, "Softmax": 1
    }  # fmt: skip
    assert profile.run_ms > 0 and profile.clock == "host" and {r.where for r in profile.rows} == {"host"}
    assert profile.total_ms == pytest.approx(sum(r.ms for r in profile.rows))
    assert [r.ms for r in profile.rows] == sorted((r.ms for r in profile.rows), reverse=True)
    assert "Conv" in str(profile)
    Balance(profile._repr_html_())


def test_profile__device__names_kernels() -> None:
    session = planned()
    profile = asyncio.run(session.profile_async({"image": X}, runs=1))
    assert {r.name for r in profile.rows} == {k.name for k in session.explain().kernels}
    assert sum(r.calls for r in profile.rows) == session.explain().dispatches


def test_profile__rows__tell_work_and_fraction_of_the_peak() -> None:
    shown = (("conv", "Conv", "conv_gemm", 0.0, 2e-3, "gpu", (TensorType(DType.FLOAT, (1, 8, 4, 4)),), 0, 4000, 1000),)
    again = (*shown, ("conv2", "Conv", "conv_gemm", 0.0, 1e-3, "gpu", (TensorType(DType.FLOAT, (2, 2)),), 1, 10, 8000))
    timings = [[Timing(*t) for t in run] for run in (again, again)]
    profile = Profile.of(timings, [5e-3], Ceilings(4e6, 16e6))
    first, second = profile.rows
    assert (first.shape, first.flops, first.nbytes, first.calls) == ("1x8x4x4", 4000, 1000, 1)
    assert first.of_peak == pytest.approx(0.5), "4000 operations take 1 ms at best, and 2 ms were taken"
    assert second.of_peak == pytest.approx(0.5), "8000 bytes take 0.5 ms at best"
    row = profile.to_dict()["rows"][0]
    assert row["share"] == pytest.approx(2 / 3) and row["of_peak"] == pytest.approx(0.5)
    assert "50%" in str(profile) and "1x8x4x4" in str(profile)
    Balance(profile._repr_html_())


def test_ceilings__measured__leave_no_buffers() -> None:
    device = NullDevice()
    found = asyncio.run(ceilings(device))
    assert found.flops > 0 and found.bandwidth > 0
    assert device.ledger.total == 0


def test_profile__stages__include_the_node_between_them() -> None:
    with on_device(NullDevice()):
        session = pyruntime.InferenceSession(staged())
        profile = asyncio.run(session.profile_async({"x": np.ones((2, 160), np.float32)}, runs=1))
    assert {"NonZero"} <= {r.name for r in profile.rows if r.where == "host"}
    assert any(r.where == "gpu" for r in profile.rows)


def test_session__rich_display__shows_inputs_outputs_parameters_providers() -> None:
    html = pyruntime.InferenceSession(DIGITS)._repr_html_()
    Balance(html)
    for text in ("image", "probabilities", "45,114 parameters", "CPUExecutionProvider", "N × 1 × 16 × 16"):
        assert text in html


def test_assignment__device__groups_nodes_by_provider() -> None:
    options = pyruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    with on_device(NullDevice()):
        session = pyruntime.InferenceSession(DIGITS, options)
    (group,) = session.get_provider_graph_assignment_info()
    assert group.ep_name == "WebGpuExecutionProvider"
    assert {"Gemm", "Softmax"} <= {n.op_type for n in group.get_nodes()}


def test_highlight__wgsl__keeps_the_text_and_escapes_it() -> None:
    html = highlight("fn f(x: vec4<f32>) -> u32 { return 1u; } // a < b")
    assert "vec4&lt;<span" in html.replace('<span class="t">vec4</span>', "vec4")
    assert '<span class="k">fn</span>' in html and '<span class="c">// a &lt; b</span>' in html


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 B"), (999, "999 B"), (1536, "1.5 KB"), (5 << 30, "5.4 GB")])
def test_bytes_text__size__has_a_unit(nbytes: int, text: str) -> None:
    assert bytes_text(nbytes) == text


def test_text_table__columns__are_aligned() -> None:
    lines = text_table(("name", "n"), [("a", 1), ("longer", 1000)]).splitlines()
    assert lines == ["name    n", "------  -----", "a           1", "longer  1,000"]


def test_log_severity__info__tells_the_phases(caplog: pytest.LogCaptureFixture) -> None:
    try:
        pyruntime.set_default_logger_severity(1)
        pyruntime.InferenceSession(DIGITS)
        assert "parse: " in caplog.text
        caplog.clear()
        pyruntime.set_default_logger_severity(2)
        pyruntime.InferenceSession(DIGITS)
        assert caplog.text == ""
    finally:
        logging.getLogger("pyruntime").setLevel(logging.NOTSET)


def test_memory_plan__weights_that_are_computed_once__sum_is_what_the_device_holds() -> None:
    w, v = (numpy_helper.from_array(np.ones((256, 256), np.float32), name) for name in "wv")
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "v"], ["m"]),
        helper.make_node("Add", ["m", "t"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, 256]) for name in "xy")
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w, v]))
    device = NullDevice()
    with on_device(device):
        session = asyncio.run(pyruntime.InferenceSession.create(model.SerializeToString()))
        asyncio.run(session.run_async(None, {"x": np.zeros((256, 256), np.float32)}))
    assert session._program is not None
    plan, memory = session._program.roots[0].executable.plan, session.memory_plan
    assert [c.nbytes for c in plan.constants] == [4 * 256 * 256]
    assert memory.weights == 2 * 4 * 256 * 256
    assert device.ledger.total == memory.weights + memory.peak + len(plan.params)
    session.release()
