"""Named targets on a device that has their limits and features and no others: every answer is right, on the GPU."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import onnxruntime
import pytest

import pyruntime
from e2e.conformance.suites import SUITES, Results, run_natively
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.errors import EngineError, OutOfMemory
from tests.desktop import on_target
from tests.genai.greedy import greedy
from tests.genai.packed import SHAPES, packed_model, prompt_of
from tests.genai.precisions import SEEDS
from tools.zoo import sample
from tools.zoo.check import reference
from tools.zoo.compare import complaint

TARGETS = ("default", "phone", "compatibility", "apple-m", "nvidia")
PARTS = 24
"""One in so many node tests runs on each target, another one on each."""


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[tuple[str, DesktopDevice]]:
    with on_target(request.param) as device:
        yield request.param, device


def hosted(results: Results) -> dict[str, list[str]]:
    return {name: facts["host"] for name, facts in results.facts.items() if facts.get("host")}


KERNEL = """var<workgroup> parts: array<u32, {words}>;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size({threads})
fn main(@builtin(local_invocation_index) i: u32) {{
  parts[i] = i;
  workgroupBarrier();
  y[i] = parts[(i + 1u) % {threads}u];
}}
"""


def test_device__of_a_target__refuses_what_exceeds_it(target: tuple[str, DesktopDevice]) -> None:
    _, device = target
    limits = device.target.limits
    run_blocking(device.compile([KERNEL.format(words=limits.workgroup_bytes // 4, threads=limits.invocations)]))
    with pytest.raises(EngineError):
        run_blocking(device.compile([KERNEL.format(words=4, threads=2 * limits.invocations)]))
    with pytest.raises(EngineError):
        run_blocking(device.compile([KERNEL.format(words=limits.workgroup_bytes // 4 + 64, threads=64)]))
    with pytest.raises(OutOfMemory):
        run_blocking(device.allocate([limits.buffer_bytes + 4], "test"))


def test_models__on_a_target__fail_only_as_listed(target: tuple[str, DesktopDevice]) -> None:
    results = run_natively(SUITES["desktop_models"])
    assert len(results.wrong) == 140
    results.check()


def test_node_cases__a_sample_on_a_target__fail_only_as_listed(target: tuple[str, DesktopDevice]) -> None:
    part = TARGETS.index(target[0])
    results = run_natively(SUITES["desktop"], lambda case: zlib.crc32(case.name.encode()) % PARTS == part)
    assert len(results.wrong) > 50
    results.check(part=True)


def test_light_model__on_a_target__right_and_on_the_gpu_alone(target: tuple[str, DesktopDevice]) -> None:
    results = run_natively(SUITES["light"], lambda case: case.name == "light_shufflenet")
    assert results.wrong == {"light_shufflenet": ""}
    assert hosted(results) == {}


def test_light_model__weight_of_288_mib_on_a_phone__right_and_on_the_gpu_alone() -> None:
    with on_target("phone"):
        results = run_natively(SUITES["light"], lambda case: case.name == "light_zfnet512")
    assert results.wrong == {"light_zfnet512": ""}
    assert hosted(results) == {}


@pytest.mark.parametrize(("kind", "precision"), list(SEEDS)[:2])
def test_greedy__on_a_target__tokens_of_onnxruntime(
    kind: str, precision: str, target: tuple[str, DesktopDevice]
) -> None:
    shape = SHAPES[kind]
    data = packed_model(shape, SEEDS[kind, precision], precision)
    mine = pyruntime.InferenceSession(data, providers=["WebGpuExecutionProvider"])
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    prompt = prompt_of(7, shape.words)
    assert greedy(mine, shape, prompt, 16)[0] == greedy(theirs, shape, prompt, 16)[0]


@pytest.mark.parametrize("name", sample.names())
def test_zoo_sample__on_a_target__agrees_with_onnxruntime_on_the_gpu_alone(
    name: str, target: tuple[str, DesktopDevice]
) -> None:
    model, feeds = sample.load(name)
    runs, wanted, outputs = reference(model, feeds)
    session = pyruntime.InferenceSession(model, providers=["WebGpuExecutionProvider"])
    for fed, theirs in zip(runs, wanted, strict=True):
        assert not complaint(session.run(None, fed), theirs, outputs)
    assert not [node for node in session.explain().nodes if node.placement == "host"]
    session.release()
