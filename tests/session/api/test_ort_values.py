"""OrtValues and IOBindings on a device: which buffers are bound, reused, exchanged. Numbers are e2e's part."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import numpy as np
import pytest

import pyruntime
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError
from pyruntime.ir import DType, HostTensor, TensorType
from pyruntime.session import OrtValue
from tests.session.doubles import on_device
from tests.session.models import double

KIND = TensorType(DType.FLOAT, (2, 4))
X = np.ones((2, 4), np.float32)


def make(device: NullDevice) -> tuple[Any, OrtValue]:
    """A session on the device and a value there."""
    with on_device(device):
        session = pyruntime.InferenceSession(double())
    tensor = asyncio.run(DeviceTensor.upload(HostTensor.of(X, DType.FLOAT), device))
    return session, OrtValue(tensor)


def number(value: OrtValue) -> int:
    """The buffer a value on the device is in."""
    tensor = value.current()
    assert isinstance(tensor, DeviceTensor)
    return tensor.buffer


def bound_buffers(device: NullDevice) -> set[int]:
    """Buffers of the last recording with commands."""
    return {part.buffer for command in list(device.recordings.values())[-1] for part in command.storage}


def test_run_with_ort_values__device_input__is_bound_without_upload_or_readback() -> None:
    device = NullDevice()
    session, value = make(device)
    before = len(device.calls)
    (y,) = asyncio.run(session.run_with_ort_values_async(None, {"x": value}))
    submits = [what for name, what in device.calls[before:] if name == "submit"]
    assert [what[1:] for what in submits] == [(0, 0)]  # type: ignore[index]
    assert {number(value), number(y)} <= bound_buffers(device)
    assert y.device_name() == "webgpu" and y.shape() == [2, 4]


def test_run_with_ort_values__loop__meets_the_same_buffers_and_records_no_more() -> None:
    device = NullDevice()
    session, value = make(device)
    for _ in range(4):
        (value,) = asyncio.run(session.run_with_ort_values_async(None, {"x": value}))
    recordings, total = len(device.recordings), device.ledger.total
    for _ in range(6):
        (value,) = asyncio.run(session.run_with_ort_values_async(None, {"x": value}))
    assert (len(device.recordings), device.ledger.total) == (recordings, total)


def test_run_with_ort_values__memory_that_is_new_each_time__is_bound_to_what_was_recorded_before_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    def counted(name: str) -> Any:
        whole = getattr(NullDevice, name)

        def call(*given: Any) -> Any:
            made.append(name)
            return whole(*given)

        return call

    for name in ("record", "bind"):
        monkeypatch.setattr(NullDevice, name, counted(name))
    device = NullDevice()
    session, value = make(device)
    kept = [value]
    for _ in range(12):
        kept += asyncio.run(session.run_with_ort_values_async(None, {"x": kept[-1]}))
        assert {number(v) for v in kept[-2:]} <= bound_buffers(device)
    assert made == ["record", *["bind"] * 12]
    assert len(device.recordings) == 1 + 8  # of the sets that were used last


def test_iobinding__same_value_in_and_out__never_binds_a_buffer_twice() -> None:
    device = NullDevice()
    session, value = make(device)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    before = number(value)
    asyncio.run(session.run_with_iobinding_async(binding))
    assert number(value) != before
    assert binding.get_outputs() == [value]
    for command in list(device.recordings.values())[-1]:
        buffers = [part.buffer for part in command.storage]
        assert len(buffers) == len(set(buffers))


def test_iobinding__output_of_another_shape__raises_before_anything_runs() -> None:
    device = NullDevice()
    session, value = make(device)
    (target,) = asyncio.run(DeviceTensor.allocate([TensorType(DType.FLOAT, (5, 4))], device))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", OrtValue(target))
    submits = [c for c in device.calls if c[0] == "submit"]
    with pytest.raises(BindingError, match=r"float\[2,4\].*float\[5,4\]"):
        asyncio.run(session.run_with_iobinding_async(binding))
    assert [c for c in device.calls if c[0] == "submit"] == submits


def test_iobinding__other_session__is_refused() -> None:
    session, other = (pyruntime.InferenceSession(double()) for _ in range(2))
    with pytest.raises(ValueError, match="created it"):
        session.run_with_iobinding(other.io_binding())


def test_run__device_input_and_numpy_output__reads_back_once() -> None:
    device = NullDevice()
    session, value = make(device)
    before = len(device.calls)
    (y,) = asyncio.run(session.run_async(None, {"x": value}))
    assert isinstance(y, np.ndarray) and y.shape == (2, 4)
    assert [what[1:] for name, what in device.calls[before:] if name == "submit"] == [(0, 1)]  # type: ignore[index]


def test_run__device_input_of_another_shape__raises_invalid_argument() -> None:
    device = NullDevice()
    session, _ = make(device)
    (wrong,) = asyncio.run(DeviceTensor.allocate([TensorType(DType.FLOAT, (2, 5))], device))
    with pytest.raises(pyruntime.InvalidArgument, match="dimensions"):
        session.run(None, {"x": OrtValue(wrong)})


def test_device_tensor__collected__gives_its_buffer_to_the_next() -> None:
    device = NullDevice()
    (tensor,) = asyncio.run(DeviceTensor.allocate([KIND], device))
    buffer = tensor.buffer
    del tensor
    gc.collect()
    (again,) = asyncio.run(DeviceTensor.allocate([KIND], device))
    assert again.buffer == buffer


def test_device_tensor__many_collected__serve_the_next_and_go_with_trim() -> None:
    device = NullDevice()
    tensors = asyncio.run(DeviceTensor.allocate([KIND] * 50, device))
    assert device.ledger.total == 50 * 256
    for _ in range(3):
        del tensors
        gc.collect()
        tensors = asyncio.run(DeviceTensor.allocate([KIND] * 50, device))
    assert sum(name == "allocate" for name, _ in device.calls) == 50
    del tensors
    gc.collect()
    DeviceTensor.trim(device)
    assert device.ledger.live == {}


def test_device_tensor__growing__gets_another_buffer_only_where_capacity_doubles() -> None:
    device = NullDevice()
    for rows in range(1, 1001):
        tensor = asyncio.run(DeviceTensor.allocate([TensorType(DType.FLOAT, (rows, 64))], device))
        del tensor
        gc.collect(0)
    assert sum(name == "allocate" for name, _ in device.calls) == 11, "256 bytes to 256 KiB"


def test_device_tensor__large_ones_collected__free_those_kept_longest() -> None:
    device, mib = NullDevice(), 1 << 20
    kinds = [TensorType(DType.UINT8, (n * mib,)) for n in (64, 80, 80, 96)]
    tensors = asyncio.run(DeviceTensor.allocate(kinds, device))
    first = tensors[0].buffer
    while tensors:
        tensors.pop(0)
    gc.collect()
    assert device.ledger.total == (80 + 80 + 96) * mib
    assert first not in device.ledger.live


def test_device_tensor__strings__stay_on_the_host() -> None:
    with pytest.raises(BindingError, match="host"):
        asyncio.run(DeviceTensor.allocate([TensorType(DType.STRING, (1,))], NullDevice()))


def test_ort_value__bfloat16_bits__round_trip() -> None:
    bits = np.array([0x3F80, 0x4000, 0x7F80], np.uint16)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert value.element_type() == 16 and value.tensor_size_in_bytes() == 6
    np.testing.assert_array_equal(np.asarray(value.numpy()).astype(np.float32), [1, 2, np.inf])


def test_ort_value__webgpu_under_cpython__raises() -> None:
    with pytest.raises(RuntimeError, match="no GPU here"):
        OrtValue.ortvalue_from_numpy(X, "webgpu")
