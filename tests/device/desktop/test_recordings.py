"""Recordings with slots on wgpu: which bind groups a binding makes, and what holds them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import pyruntime as ort
from pyruntime import genai
from pyruntime.device.base import Bound, Read, Slice, Slot
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop import recordings
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.errors import EngineError
from pyruntime.generate.decoder import DecoderModel
from pyruntime.generate.generator import TextGenerator
from pyruntime.generate.options import GenerationOptions
from pyruntime.session.environment import WEBGPU
from tests.contrib.decoder import decoder
from tests.desktop import desktop_device
from tests.genai.folder import write_folder

COPY = """// copy
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  y[gid.x] = x[gid.x];
}
"""

BYTES = 256


class Groups:
    """The bind groups that were made.

    Attributes:
        targets: the buffer that each one writes. living: those that something holds.
        refused: the buffers for which none is made.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.targets: list[int] = []
        self.living: weakref.WeakSet[Any] = weakref.WeakSet()
        self.refused: set[int] = set()
        self._make = recordings._group
        patch.setattr(recordings, "_group", self._made)

    def _made(self, device: Any, layout: Any, buffers: Any, parts: Sequence[Slice]) -> Any:
        if parts[1].buffer in self.refused:
            raise RuntimeError("refused")
        group = self._make(device, layout, buffers, parts)
        self.targets.append(parts[1].buffer)
        self.living.add(group)
        return group


@pytest.fixture
def device(desktop_gpu: None) -> DesktopDevice:
    made = desktop_device()
    run_blocking(made.compile([COPY]))
    return made


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    return Groups(monkeypatch)


def copy_of(source: Slice, target: Slice) -> Bound:
    return Bound(COPY, (source, target), None, (1, 1, 1))


def slots(count: int) -> list[Slot]:
    return [Slot(i, 0, BYTES) for i in range(count)]


def buffers_of(device: DesktopDevice, *values: int) -> list[int]:
    """Buffers that are full of these values."""
    made = run_blocking(device.allocate([BYTES] * len(values), "test"))
    for number, value in zip(made, values, strict=True):
        device.write(Slice(number, 0, BYTES), np.full(BYTES // 4, value, np.uint32).tobytes())
    return made


def run(device: DesktopDevice, recording: int, *read: int) -> list[int]:
    """The first elements of buffers after a run."""
    answers: list[Any] = run_blocking(device.submit(recording, [], [Read(Slice(n, 0, BYTES)) for n in read]))
    return [int(np.frombuffer(a.read(0, 4), np.uint32)[0]) for a in answers]


def counted_reads(device: DesktopDevice, patch: pytest.MonkeyPatch) -> list[int]:
    """The number of slices that each readback from now on has."""
    reads: list[int] = []
    submit = device.submit

    async def counted(recording: int, writes: Any, read: Sequence[Read], numbers: Sequence[int] = ()) -> Any:
        reads.extend([len(read)] if read else [])
        return await submit(recording, writes, read, numbers)

    patch.setattr(device, "submit", counted)
    return reads


def test_bind__one_other_buffer__makes_the_groups_that_bind_it(device: DesktopDevice, groups: Groups) -> None:
    a, b, c, x, y, z = buffers_of(device, 1, 2, 3, 0, 0, 0)
    first, second, third, fourth = slots(4)
    opened = device.record([copy_of(first, third), copy_of(second, fourth)])
    assert groups.targets == []
    assert run(device, device.bind(opened, [a, b, x, y]), x, y) == [1, 2]
    assert groups.targets == [x, y]
    assert run(device, device.bind(opened, [a, c, x, y]), x, y) == [1, 3]
    assert groups.targets == [x, y, y]
    kept = device.bind(opened, [a, c, z, y])
    assert groups.targets == [x, y, y, z]
    assert run(device, device.bind(opened, [b, c, z, y]), z, y) == [2, 3]
    assert run(device, kept, z, y) == [1, 3]
    device.free([a, b, c, x, y, z])


def test_bind__after_one_that_was_refused__has_the_buffers_it_is_given(device: DesktopDevice, groups: Groups) -> None:
    a, b, x, y = buffers_of(device, 1, 2, 0, 0)
    first, second, third = slots(3)
    opened = device.record([copy_of(first, second), copy_of(first, third)])
    device.bind(opened, [a, x, y])
    groups.refused = {y}
    with pytest.raises(EngineError, match="the GPU could not bind the run's buffers: refused"):
        device.bind(opened, [b, x, y])
    assert run(device, device.bind(opened, [a, x, y]), x, y) == [1, 1]
    groups.refused = set()
    assert run(device, device.bind(opened, [b, x, y]), x, y) == [2, 2]
    device.free([a, b, x, y])


def test_bind__buffers_that_come_and_go__are_held_by_the_last_groups_alone(
    device: DesktopDevice, groups: Groups
) -> None:
    (a,) = buffers_of(device, 1)
    held = device.ledger.total
    first, second = slots(2)
    opened = device.record([copy_of(first, second)] * 3)
    wrappers: weakref.WeakSet[Any] = weakref.WeakSet()
    for _ in range(10):
        (x,) = buffers_of(device, 0)
        wrappers.add(device.gpu_buffer(x))
        bound = device.bind(opened, [a, x])
        assert run(device, bound, x) == [1]
        device.drop(bound)
        device.free([x])
    gc.collect()
    assert device.ledger.total == held
    assert len(groups.targets) == 30
    assert len(groups.living) == 3
    assert len(wrappers) <= 1
    device.drop(opened)
    gc.collect()
    assert len(groups.living) == len(wrappers) == 0
    device.free([a])


def test_submit__with_a_group_made_for_a_freed_buffer__is_an_error(device: DesktopDevice) -> None:
    a, x, y = buffers_of(device, 1, 0, 0)
    first, second = slots(2)
    opened = device.record([copy_of(first, second), copy_of(first, Slice(y, 0, BYTES))])
    device.bind(opened, [a, x])
    device.free([x])
    with pytest.raises(EngineError, match="buffers that were freed"):
        run(device, device.bind(opened, [a, x]))
    device.free([a, y])


def test_generate_next_token__on_the_gpu__reads_back_once(
    device: DesktopDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = genai.Model(str(write_folder(tmp_path)))
    assert model.decoder.session.get_providers()[0] == WEBGPU
    params = genai.GeneratorParams(model)
    params.set_search_options(max_length=20, do_sample=False)
    generator = genai.Generator(model, params)
    generator.append_tokens([3, 4, 5])
    generator.generate_next_token()
    reads = counted_reads(device, monkeypatch)
    for _ in range(4):
        generator.generate_next_token()
    assert reads == [1] * 4
    model.decoder.release()


@pytest.mark.parametrize(("ahead", "lookup", "slices"), [(1, 0, {2}), (4, 0, {8}), (1, 4, {2})])
def test_generate__ids_and_log_probabilities__come_in_one_readback(
    device: DesktopDevice, monkeypatch: pytest.MonkeyPatch, ahead: int, lookup: int, slices: set[int]
) -> None:
    made, options = decoder(), GenerationOptions(max_new_tokens=12, ahead=ahead, lookup=lookup)
    prompt = [3, 4, 5, 3, 4, 5, 3]
    host = DecoderModel(ort.InferenceSession(made.model, providers=["CPUExecutionProvider"]))
    expected = list(TextGenerator(host).generate_sync(prompt, options))
    model = DecoderModel(ort.InferenceSession(made.model))
    list(TextGenerator(model).generate_sync(prompt, options))
    reads = counted_reads(device, monkeypatch)
    pieces = list(TextGenerator(model).generate_sync(prompt, options))
    assert [p.id for p in pieces] == [p.id for p in expected]
    np.testing.assert_allclose([p.log_probability for p in pieces], [p.log_probability for p in expected], atol=1e-4)
    assert set(reads) == slices and len(reads) <= 12 // ahead
    model.release()


def test_iobinding__several_outputs__are_read_back_at_once(
    device: DesktopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["a", "b", "none"]
    graph = helper.make_graph(
        [
            helper.make_node("Sin", ["x"], ["a"]),
            helper.make_node("Cos", ["x"], ["b"]),
            helper.make_node("Neg", ["e"], ["none"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [5]),
            helper.make_tensor_value_info("e", TensorProto.FLOAT, [0, 3]),
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
    )
    session = ort.InferenceSession(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )
    x, binding = np.linspace(-1, 1, 5, dtype=np.float32), session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("e", np.zeros((0, 3), np.float32))
    for name in names:
        binding.bind_output(name, "webgpu")
    session.run_with_iobinding(binding)
    reads = counted_reads(device, monkeypatch)
    a, b, none = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(a, np.sin(x), atol=1e-6)
    np.testing.assert_allclose(b, np.cos(x), atol=1e-6)
    assert none.shape == (0, 3)
    assert reads == [2]
