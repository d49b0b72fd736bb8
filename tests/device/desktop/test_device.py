"""The Device protocol on wgpu: memory, kernels, errors, loss."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from pyruntime.device.base import Bound, Read, Slice, Slot, Write
from pyruntime.device.blocking import run_blocking
from pyruntime.device.desktop import memory
from pyruntime.device.desktop.adapters import Choice
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.device.desktop.discovery import open_device
from pyruntime.device.desktop.recordings import submits_of
from pyruntime.errors import DeviceLost, EngineError, OutOfMemory
from pyruntime.onnx.formats.source import open_file
from tests.desktop import desktop_device

T = TypeVar("T")

ADD = """// add
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> params: vec4<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  y[gid.x] = x[gid.x] + params.x;
}
"""


@pytest.fixture
def device(desktop_gpu: None) -> DesktopDevice:
    return desktop_device()


def do(work: Coroutine[Any, Any, T]) -> T:
    return run_blocking(work)


def read(device: DesktopDevice, *places: Slice) -> list[bytes]:
    recording = device.record([])
    answers: list[Any] = do(device.submit(recording, [], [Read(p) for p in places]))
    device.drop(recording)
    return [bytes(a.read(0, p.nbytes)) for a, p in zip(answers, places, strict=True)]


def adder(device: DesktopDevice, x: Slice, y: Slice, amount: int) -> tuple[Bound, list[int]]:
    (uniform,) = do(device.allocate([16], "params"))
    device.write(Slice(uniform, 0, 16), np.array([amount, 0, 0, 0], np.uint32).tobytes())
    return Bound(ADD, (x, y), Slice(uniform, 0, 16), (1, 1, 1)), [uniform]


@pytest.mark.parametrize("nbytes", [1, 3, 4, 5, 255, 4097])
def test_write__any_length__reads_back(device: DesktopDevice, nbytes: int) -> None:
    (buffer,) = do(device.allocate([8192], "test"))
    data = np.random.default_rng(nbytes).bytes(nbytes)
    device.write(Slice(buffer, 256, nbytes), b"ab" + data, 2)
    assert read(device, Slice(buffer, 256, nbytes)) == [data]
    device.free([buffer, buffer, 10**9])


def test_upload__file_in_pieces__comes_from_its_memory_map(
    device: DesktopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PIECE", 1 << 16)
    data = np.random.default_rng(0).bytes(5 * (1 << 16) + 7)
    (tmp_path / "weights").write_bytes(data)
    source = open_file(tmp_path / "weights")
    (buffer,) = do(device.allocate([1 << 19], "test"))
    parts = [part for _, part in memory.pieces(Slice(buffer, 0, len(data) - 3), source, 3)]
    assert len(parts) == 6
    assert all(isinstance(part, memoryview) and isinstance(part.obj, mmap.mmap) for part in parts[:-1])
    do(device.upload([Write(Slice(buffer, 0, len(data) - 3), source, 3)]))
    assert read(device, Slice(buffer, 0, len(data) - 3)) == [data[3:]]
    device.free([buffer])


def test_submit__slots_and_uniform__are_bound(device: DesktopDevice) -> None:
    x, y, z = do(device.allocate([256] * 3, "test"))
    command, params = adder(device, Slot(0, 0, 256), Slot(1, 0, 256), 7)
    do(device.compile([ADD]))
    opened = device.record([command, command])
    data = np.arange(64, dtype=np.uint32)
    for target in (y, z):
        bound = device.bind(opened, [x, target])
        (raw,) = do(device.submit(bound, [Write(Slice(x, 0, 256), data.tobytes())], [Read(Slice(target, 0, 256))]))
        assert not isinstance(raw, bytes | memoryview)
        np.testing.assert_array_equal(np.frombuffer(raw.read(0, 256), np.uint32), data + 7)
    device.free([x, y, z, *params])


def test_submit__buffer_that_was_freed__is_an_error_and_no_abort(device: DesktopDevice) -> None:
    x, y = do(device.allocate([256] * 2, "test"))
    command, params = adder(device, Slice(x, 0, 256), Slice(y, 0, 256), 1)
    do(device.compile([ADD]))
    recording = device.record([command])
    device.free([y])
    with pytest.raises(EngineError, match="buffers that were freed"):
        do(device.submit(recording, [], []))
    device.free([x, *params])


@pytest.mark.parametrize("fault", ["both ways", "grid", "offset"])
def test_run__that_validation_refuses__is_an_error_and_no_abort(device: DesktopDevice, fault: str) -> None:
    x, y = do(device.allocate([1024] * 2, "test"))
    target = Slice(x, 512, 256) if fault == "both ways" else Slice(y, 0, 256)
    source = Slice(x, 4, 256) if fault == "offset" else Slice(x, 0, 256)
    command, params = adder(device, source, target, 1)
    if fault == "grid":
        command = Bound(command.source, command.storage, command.uniform, (1 << 20, 1, 1))
    do(device.compile([ADD]))
    with pytest.raises(EngineError, match="the GPU could not"):
        do(device.submit(device.record([command]), [], []))
    assert device.lost is None
    device.free([x, y, *params])


def test_compile__wrong_source__names_kernel_line_and_source(device: DesktopDevice) -> None:
    with pytest.raises(
        EngineError, match=r"(?s)^add: the pipeline could not be made.*wgsl:8:\d+.*\n   8 \|   y\[gid.x\]"
    ):
        do(device.compile([ADD.replace("params.x", "nothing")]))


def test_allocate__more_than_there_is__keeps_nothing(device: DesktopDevice) -> None:
    before = dict(device.ledger.live)
    with pytest.raises(OutOfMemory, match=r"the device refused .* bytes for test"):
        do(device.allocate([256, 1 << 40], "test"))
    assert device.ledger.live == before


def test_measure__dispatches__have_spans_and_answers(device: DesktopDevice) -> None:
    x, y = do(device.allocate([256] * 2, "test"))
    command, params = adder(device, Slice(x, 0, 256), Slice(y, 0, 256), 5)
    do(device.compile([ADD]))
    measured = do(
        device.measure(device.record([command] * 3), [Write(Slice(x, 0, 256), bytes(256))], [Read(Slice(y, 0, 256))])
    )
    assert (len(measured.spans), measured.clock) == (3, "gpu")
    assert all(begin >= 0 and duration >= 0 for begin, duration in measured.spans)
    (raw,) = measured.answers
    assert not isinstance(raw, bytes | memoryview)
    assert set(np.frombuffer(raw.read(0, 256), np.uint32)) == {5}
    device.free([x, y, *params])


def test_submit__more_to_read_than_one_staging_buffer__all_of_it_comes(
    device: DesktopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MOST_TOGETHER", 4096)
    (buffer,) = do(device.allocate([1 << 16], "test"))
    data = np.random.default_rng(0).bytes(1 << 16)
    device.write(Slice(buffer, 0, 1 << 16), data)
    places = [Slice(buffer, 0, 5), Slice(buffer, 256, 4090), Slice(buffer, 512, 3), Slice(buffer, 0, 1 << 16)]
    assert read(device, *places) == [data[p.offset : p.offset + p.nbytes] for p in places]
    device.free([buffer])


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (48, [48]), (49, [16, 32, 1]), (300, [16, 32, 64, 96, 92])])
def test_submits__dispatches__first_ones_are_small(count: int, sizes: list[int]) -> None:
    commands: list[Any] = [(None, None, (1, 1, 1))] * count
    assert [len(part) for part in submits_of(commands)] == sizes


def test_destroyed_device__every_call__raises_device_lost(desktop_gpu: None) -> None:
    device = open_device(Choice("software"))
    (buffer,) = do(device.allocate([256], "test"))
    recording = device.record([])
    device.gpu_device.destroy()
    for call in (
        lambda: do(device.submit(recording, [], [])),
        lambda: do(device.allocate([256], "test")),
        lambda: device.write(Slice(buffer, 0, 4), b"abcd"),
        lambda: device.copy([(Slice(buffer, 0, 4), Slice(buffer, 8, 4))]),
        lambda: do(device.compile([ADD])),
    ):
        with pytest.raises(DeviceLost, match="destroyed"):
            call()
    device.free([buffer])
    device.close()


def test_submit__several_threads__each_gets_its_own_answer(device: DesktopDevice) -> None:
    do(device.compile([ADD]))
    wrong: list[int] = []

    def run(amount: int) -> None:
        x, y = do(device.allocate([256] * 2, "test"))
        command, params = adder(device, Slice(x, 0, 256), Slice(y, 0, 256), amount)
        recording = device.record([command])
        for _ in range(5):
            (raw,) = do(device.submit(recording, [Write(Slice(x, 0, 256), bytes(256))], [Read(Slice(y, 0, 256))]))
            assert not isinstance(raw, bytes | memoryview)
            wrong.extend(v for v in np.frombuffer(raw.read(0, 256), np.uint32).tolist() if v != amount)
        device.free([x, y, *params])

    threads = [threading.Thread(target=run, args=(amount,)) for amount in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
