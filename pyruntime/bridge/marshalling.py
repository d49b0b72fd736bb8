"""Conversion of values between JavaScript and Python, for `requests.py`. The wire format:

    tensor                   {type, dims, data}: onnxruntime-web's name of the element type, the dimensions, and an
                             ArrayBuffer of raw little-endian elements (an array of strings for type `string`)
    tensor held by Python    {kind: 'gpu', type, dims, gpu, buffer}: its number, and its GPUBuffer
    tensor of the page       {kind: 'buffer', type, dims, buffer}: a GPUBuffer that the page created
    sequence                 {kind: 'sequence', values}
    map                      {kind: 'map', names, values}, two tensors; as an input {kind: 'map', pairs}
    empty optional           null

Tensor bytes stay in JavaScript; what the GPU needs is uploaded from there, not through Python's memory.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import js
import numpy as np
from pyodide.ffi import to_js

from pyruntime.device.tensor import DeviceTensor
from pyruntime.device.webgpu.javascript import JsObject
from pyruntime.device.webgpu.pyodide import JsBytes, WebGpuDevice
from pyruntime.errors import InvalidArgument, NotImplemented
from pyruntime.ir import DType, HostTensor, MapType, OptionalType, SequenceType, TensorType, known
from pyruntime.ir.values import of_element
from pyruntime.ops.host import HostValue
from pyruntime.session.api.feeds import to_user

__all__ = [
    "dispose",
    "from_wire",
    "held",
    "held_as",
    "kept_to_wire",
    "materialized",
    "share_memory",
    "to_wire",
    "write_buffer",
]

_tensors: dict[int, DeviceTensor] = {}
_numbers = itertools.count(1)


def held(number: int) -> DeviceTensor:
    """Return the tensor that JavaScript refers to by `number`.

    Raises:
        InvalidArgument: the tensor was disposed.
    """
    try:
        return _tensors[number]
    except KeyError:
        raise InvalidArgument("a tensor on the GPU was already disposed; run the model that made it again") from None


def held_as(name: str, wire: JsObject) -> DeviceTensor:
    """Return the tensor that `wire` refers to, with the dimensions in `wire`.

    Raises:
        InvalidArgument: the dimensions have another number of elements.
    """
    tensor, shape = held(int(wire.gpu)), tuple(int(dim) for dim in wire.dims)
    if shape != tensor.type.shape:
        kind = replace(tensor.type, shape=shape)
        if kind.size != tensor.type.size:
            raise InvalidArgument(f"'{name}': its dims are {list(shape)}, and it has {tensor.type.size} elements")
        tensor.type, tensor.counted = kind, None
    return tensor


def materialized(number: int) -> dict[str, Any]:
    """Move the tensor `number` to a separate buffer if it shares one; return it as on the wire."""
    tensor = held(number)
    if tensor.reserved is not None or tensor.shared:
        assert isinstance(tensor.device, WebGpuDevice)
        tensor.materialize_in(tensor.device.allocate_now(tensor.capacity, "tensors"))
    return kept_to_wire(tensor, number)


def share_memory(number: int, js_type: str, dims: JsObject, counted: int | None) -> int:
    """Create a tensor in the memory of tensor `number`, with another type and shape; return its number."""
    tensor = held(number).again()
    tensor.type = TensorType(DType.from_js_name(js_type), tuple(int(dim) for dim in dims))
    tensor.counted = None if counted is None else int(counted)
    made = next(_numbers)
    _tensors[made] = tensor
    return made


def dispose(number: int) -> None:
    """Forget a tensor. Its memory is reused when no run needs it any more."""
    _tensors.pop(number, None)


async def from_wire(name: str, wire: JsObject, device: object) -> Any:
    """Convert an input from the wire: a HostTensor, a DeviceTensor, or a list, dict or None for other values.

    Args:
        device: the session's device; None where it runs on NumPy.

    Raises:
        InvalidArgument: an unknown element type, or a GPUBuffer that the session cannot read.
    """
    if not wire:
        return None
    match getattr(wire, "kind", None):
        case "sequence":
            return [to_user(_host_tensor(name, item)) for item in wire.values]
        case "map":
            return dict(wire.pairs)
        case "gpu":
            return held_as(name, wire)
        case "buffer":
            return await _read_buffer(name, wire, device)
        case _:
            return _host_tensor(name, wire)


def _kind(name: str, wire: JsObject) -> TensorType:
    try:
        dtype = DType.from_js_name(wire.type)
    except KeyError:
        raise InvalidArgument(f"input '{name}': there is no tensor type '{wire.type}'") from None
    return TensorType(dtype, tuple(int(dim) for dim in wire.dims))


def _host_tensor(name: str, wire: JsObject) -> HostTensor:
    kind = _kind(name, wire)
    if kind.dtype is not DType.STRING:
        return HostTensor(kind, JsBytes(wire.data))
    array = np.empty(kind.size, object)
    array[:] = list(wire.data)
    return HostTensor(kind, None, array.reshape(kind.shape))


async def _read_buffer(name: str, wire: JsObject, device: object) -> DeviceTensor:
    """Copy the current contents of the page's buffer to a tensor."""
    kind = _kind(name, wire)
    if not isinstance(device, WebGpuDevice):
        raise InvalidArgument(f"input '{name}' is a GPUBuffer, and this session runs without the GPU: feed its data")
    (tensor,) = await DeviceTensor.allocate([kind], device)
    if kind.nbytes:
        await device.copy_from(wire.buffer, tensor.buffer, kind.nbytes, f"input '{name}'")
    return tensor


async def write_buffer(name: str, tensor: DeviceTensor, buffer: JsObject) -> None:
    """Copy an output into the page's buffer.

    Raises:
        InvalidArgument: the buffer is too small, of another device, or lacks COPY_DST.
    """
    assert isinstance(tensor.device, WebGpuDevice)
    if tensor.type.nbytes:
        await tensor.device.copy_to(tensor.buffer, buffer, tensor.type.nbytes, f"output '{name}'")


def kept_to_wire(tensor: DeviceTensor, number: int | None = None) -> dict[str, Any]:
    """Keep a tensor on the GPU under `number` (default: a new one) until `dispose`; return it as on the wire.

    Raises:
        DeviceLost: the device was lost, and the tensor with it.
    """
    assert isinstance(tensor.device, WebGpuDevice)
    buffer = tensor.device.gpu_buffer(tensor.buffer)
    number = number or next(_numbers)
    _tensors[number] = tensor
    return {
        "kind": "gpu",
        "type": tensor.type.dtype.js_name,
        "dims": list(tensor.type.shape),
        "gpu": number,
        "memory": tensor.buffer,
        "reserved": list(tensor.reserved) if tensor.reserved else None,
        "counted": tensor.counted,
        "buffer": buffer,
        "device": tensor.device.gpu_device,
    }


def to_wire(name: str, value: HostValue) -> dict[str, Any] | None:
    """Convert a host value for the wire.

    Raises:
        NotImplemented: a map whose keys or values are not tensor elements.
    """
    if isinstance(value, HostTensor):
        return {"type": value.type.dtype.js_name, "dims": list(value.type.shape), "data": _data(value)}
    if isinstance(value, TensorType):
        return to_wire(name, HostTensor(value, None, value.value()))
    if isinstance(value, OptionalType):
        content = value.value()
        return None if content is None else to_wire(name, of_element(value.element, content))
    if isinstance(value, SequenceType):
        items = [of_element(value.element, item) for item in value.value()]
        return {"kind": "sequence", "values": [to_wire(name, item) for item in items]}
    if isinstance(value, MapType) and isinstance(value.element, DType):
        content = dict(value.value())
        return {
            "kind": "map",
            "names": to_wire(name, _vector(value.key, list(content.keys()))),
            "values": to_wire(name, _vector(value.element, list(content.values()))),
        }
    raise NotImplemented(f"output '{name}' is {value}, which JavaScript's API does not have; fetch the other outputs")


def _vector(dtype: DType, values: list[Any]) -> TensorType:
    array = np.empty(len(values), object if dtype is DType.STRING else dtype.carrier)
    array[:] = values
    return known(TensorType(dtype, (len(values),)), array)  # type: ignore[return-value]


def _data(tensor: HostTensor) -> JsObject:
    """Return the raw elements in a separate ArrayBuffer; strings as a list."""
    if tensor.type.dtype is DType.STRING:
        return tensor.array().ravel().tolist()
    raw = tensor.bytes()
    if not isinstance(raw, JsBytes):
        data = raw if isinstance(raw, memoryview) else memoryview(raw.read(0, tensor.type.nbytes))
        return to_js(data.cast("B")).buffer if data.nbytes else js.ArrayBuffer.new(0)
    if raw.offset == 0 and raw.size == int(raw.buffer.byteLength):
        return raw.buffer
    return raw.buffer.slice(raw.offset, raw.offset + raw.size)
