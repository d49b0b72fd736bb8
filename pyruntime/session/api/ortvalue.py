"""OrtValue: a value that a caller holds between runs, on the host or on the GPU."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BadValue, BindingError, WrongType
from pyruntime.ir import Array, DType, HostTensor, SequenceType, TensorType
from pyruntime.ir.encoding import encode
from pyruntime.ops.host import HostValue
from pyruntime.session.api.dlpack import HOST, array_from_dlpack
from pyruntime.session.api.feeds import array_of, to_user
from pyruntime.session.environment import WEBGPU, available_providers, from_page, opened, wait_for
from pyruntime.session.environment import device as open_device

__all__ = ["OrtValue", "OrtValueVector", "arrays_of", "at_pointer", "copy_tensors", "dtype_of", "is_gpu"]

_pointers: WeakValueDictionary[int, DeviceTensor] = WeakValueDictionary()


def is_gpu(device_type: str) -> bool:
    """Return True for 'webgpu' and 'gpu', False for 'cpu'.

    Raises:
        BindingError: a device that is not here.
    """
    kind = str(device_type).lower()
    if kind == "cpu":
        return False
    if kind not in ("webgpu", "gpu"):
        raise BindingError(f"Unsupported device type: {device_type}; this runtime has 'cpu' and 'webgpu'")
    if opened() is None and WEBGPU not in available_providers():
        raise BindingError("Can't allocate memory on 'webgpu': there is no GPU here; use 'cpu'")
    return True


def dtype_of(element_type: Any) -> DType:
    """Return the ONNX type of a NumPy type, or of TensorProto's number for it.

    Raises:
        BindingError: there is none.
    """
    if isinstance(element_type, DType):
        return element_type
    try:
        if isinstance(element_type, int) and not isinstance(element_type, bool):
            return DType.from_code(element_type)
        return DType.from_numpy(np.dtype(element_type))
    except (KeyError, TypeError):
        raise BindingError(f"expected a NumPy type or the number of an ONNX type, got {element_type!r}") from None


class OrtValue:
    """A tensor (or sequence, map, optional) on the host or on the GPU.

    Made by the class methods and by runs. On the host a tensor shares the array's memory; on the GPU it stays there
    until `numpy()` or the end of its life.
    """

    def __init__(self, value: HostValue | DeviceTensor, numpy_obj: Array | None = None) -> None:
        self._value = value
        self._numpy_obj = numpy_obj

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Create a tensor of the array's type and shape; on 'cpu' it is the array's own memory.

        Raises:
            BindingError: a device that is not here, or an array without ONNX type.
        """
        if not is_gpu(device_type):
            return cls._host(numpy_obj)
        return wait_for(cls.create(numpy_obj, device_type), "await OrtValue.create(array, 'webgpu')")

    @classmethod
    async def create(cls, numpy_obj: Any, device_type: str = "cpu") -> OrtValue:
        """Awaitable `ortvalue_from_numpy`."""
        made = cls._host(numpy_obj)
        return await made.to(device_type)

    @classmethod
    def _host(cls, numpy_obj: Any) -> OrtValue:
        given = numpy_obj if isinstance(numpy_obj, np.ndarray) else None
        array, dtype = array_of(numpy_obj, None, "numpy_obj")
        return cls(HostTensor.of(array, dtype), given if array is given else None)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """Create a tensor of the array's bytes, read as another type of the same width (uint16: bfloat16).

        Raises:
            BindingError: the widths differ.
        """
        dtype = dtype_of(int(onnx_element_type))
        if dtype.bits and data.dtype.itemsize * 8 != max(dtype.bits, 8):
            raise BindingError(f"items of {data.dtype.itemsize} bytes cannot be {dtype.type_string}")
        if dtype.bits < 8:
            return cls(HostTensor.of(data.astype(dtype.carrier), dtype))
        raw = np.ascontiguousarray(data)
        return cls(HostTensor(TensorType(dtype, tuple(data.shape)), raw.view(np.uint8).reshape(-1).data), data)

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """Create a tensor with arbitrary contents (zeros on the host).

        Args:
            element_type: NumPy type, or TensorProto's number.

        Raises:
            BindingError: a dimension below 0, no such type, or a device that is not here.
        """
        kind = TensorType(dtype_of(element_type), tuple(int(d) for d in shape))
        if min(kind.shape, default=0) < 0:
            raise BindingError(f"ortvalue_from_shape_and_type: expected dimensions of 0 or more, got {list(shape)}")
        if is_gpu(device_type):
            return wait_for(cls._allocate(kind), "await OrtValue.create(np.zeros(shape, type), 'webgpu')")
        array = np.zeros(kind.shape, kind.dtype.numpy)
        return cls(HostTensor.of(array, kind.dtype), array if kind.dtype.exact_carrier else None)

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Create a host tensor in the memory of one that exports DLPack, or of a capsule.

        Raises:
            WrongType (a TypeError): neither.
        """
        return cls._host(array_from_dlpack(data))

    def __dlpack__(self, **how: Any) -> Any:
        return self._on_host().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        self._on_host()
        return HOST

    def _on_host(self) -> Array:
        """The memory as an array. Raises BindingError: it is on the GPU, or its type is none of NumPy's."""
        if not isinstance(self._value, HostTensor) or not self._value.type.dtype.exact_carrier:
            raise BindingError(f"DLPack needs a tensor of numbers on the host, got {self!r}; use numpy()")
        return self._memory()

    @classmethod
    async def _allocate(cls, kind: TensorType) -> OrtValue:
        (tensor,) = await DeviceTensor.allocate([kind], await open_device())
        return cls(tensor)

    async def to(self, device_type: str) -> OrtValue:
        """Copy the value to 'cpu' or 'webgpu'; returns this one where it is there already."""
        if is_gpu(device_type) == isinstance(self._value, DeviceTensor):
            return self
        if isinstance(self._value, DeviceTensor):
            return OrtValue(await self._value.download())
        if not isinstance(self._value, HostTensor):
            raise BindingError(f"{self.data_type()} values live on the host")
        return OrtValue(await DeviceTensor.upload(self._tensor(), await open_device()))

    def _tensor(self) -> HostTensor:
        """The host tensor as its memory is now."""
        assert isinstance(self._value, HostTensor)
        if self._numpy_obj is None:
            return self._value
        kind = self._value.type
        if self._numpy_obj.dtype == kind.dtype.numpy and kind.dtype.exact_carrier:
            return HostTensor.of(self._numpy_obj, kind.dtype)
        raw = np.ascontiguousarray(self._numpy_obj).view(np.uint8).reshape(-1).data
        return HostTensor(kind, raw)

    def current(self) -> HostValue | DeviceTensor:
        """Return the value as it is now, which a run is fed."""
        return self._tensor() if isinstance(self._value, HostTensor) else self._value

    def numpy(self) -> Any:
        """Return the value as a NumPy array (a list for a sequence); a tensor on the GPU is read back.

        On the host the array is the tensor's own memory, where NumPy has its type: writing to it changes the tensor.

        Raises:
            RuntimeException: this place cannot wait; use `await value.numpy_async()`.
        """
        if isinstance(self._value, DeviceTensor):
            return wait_for(self.numpy_async(), "await value.numpy_async()")
        if isinstance(self._value, HostTensor) and self._value.type.dtype.exact_carrier:
            return self._memory()[...]
        value = self.current()
        assert not isinstance(value, DeviceTensor)
        return to_user(value)

    async def numpy_async(self) -> Any:
        """Awaitable `numpy`."""
        if isinstance(self._value, DeviceTensor):
            return to_user(await self._value.download())
        return self.numpy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = np.asarray(self.numpy(), dtype)
        return array.copy() if copy else array

    def _kind(self) -> TensorType:
        if not isinstance(self._value, HostTensor | DeviceTensor):
            raise BindingError(f"{self.data_type()} is not a tensor: it has no shape")
        return self._value.type

    def shape(self) -> list[int]:
        """Return the dimensions of a tensor."""
        return list(self._kind().shape)

    def data_type(self) -> str:
        """Return the type as onnxruntime writes it: 'tensor(float)', 'seq(tensor(int64))', ..."""
        if isinstance(self._value, HostTensor | DeviceTensor):
            return self._value.type.dtype.type_string
        return str(self._value)

    def element_type(self) -> int:
        """TensorProto's number of the element type."""
        return self._kind().dtype.code

    def device_name(self) -> str:
        """Return 'cpu' or 'webgpu'."""
        return "webgpu" if isinstance(self._value, DeviceTensor) else "cpu"

    def is_tensor(self) -> bool:
        """Return whether the value is a tensor."""
        return isinstance(self._value, HostTensor | DeviceTensor)

    def is_tensor_sequence(self) -> bool:
        """Return whether the value is a sequence of tensors."""
        return isinstance(self._value, SequenceType) and isinstance(self._value.element, DType)

    def is_sparse_tensor(self) -> bool:
        """Return False: sparse tensors do not occur here."""
        return False

    def has_value(self) -> bool:
        """Return False for an empty optional, else True."""
        return self.is_tensor() or self._value.value() is not None  # type: ignore[union-attr]

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the elements."""
        return self._kind().nbytes

    def data_ptr(self) -> int:
        """Return the address of a host tensor; on the GPU, a number for `IOBinding.bind_input` and `bind_output`."""
        if isinstance(self._value, DeviceTensor):
            _pointers[id(self._value)] = self._value
            return id(self._value)
        return int(self._memory().ctypes.data)

    def _memory(self) -> Array:
        """The memory of a host tensor as an array."""
        assert isinstance(self._value, HostTensor)
        if self._numpy_obj is None:
            self._numpy_obj = np.require(to_user(self._value), requirements=("C", "W"))
        return self._numpy_obj

    def update_inplace(self, data: Any) -> None:
        """Overwrite the elements with those of an array or OrtValue; every holder of this tensor sees them.

        Raises:
            BindingError: `data` has another shape or type. WrongType (a TypeError): it is neither.
        """
        kind = self._kind()
        data = data.numpy() if isinstance(data, OrtValue) else from_page(data, kind.dtype, "data")
        if not isinstance(data, np.ndarray):
            raise WrongType(f"update_inplace: expected a numpy.ndarray or an OrtValue, got {type(data).__name__}")
        array = np.asarray(data)
        if array.size != kind.size or array.dtype.itemsize * 8 != max(kind.dtype.bits, 8):
            raise BindingError(
                f"The input size of numpy arrays does not match the size of the OrtValue: {array.dtype} "
                f"{list(array.shape)} for {kind}"
            )
        if isinstance(self._value, DeviceTensor):
            carrier, dtype = array_of(array, kind.dtype, "data")
            if self._value.shared:
                wait_for(self._value.materialize(), "OrtValue.ortvalue_from_numpy(...)")
            self._value.write(encode(carrier, dtype).data)
            return
        memory = self._memory()
        np.copyto(memory, array.reshape(kind.shape).astype(memory.dtype, copy=False))

    def assign(self, result: HostTensor, name: str) -> None:
        """Take over the elements of a run's output, in place.

        Raises:
            BindingError: another type or shape.
        """
        kind = self._kind()
        if result.type != kind:
            raise BindingError(f"output '{name}' is {result.type} here, and the OrtValue bound to it is {kind}")
        self.update_inplace(to_user(result))

    def __repr__(self) -> str:
        what = str(self._kind()) if self.is_tensor() else self.data_type()
        return f"<OrtValue {what} on {self.device_name()}>"


class OrtValueVector(list[OrtValue]):
    """A list of values with the names of onnxruntime's class."""

    def push_back(self, value: OrtValue) -> None:
        """Append a value."""
        self.append(value)

    def reserve(self, size: int) -> None:
        """Accepted."""

    def shrink_to_fit(self) -> None:
        """Do nothing; for compatibility with onnxruntime."""

    def element_type_at(self, index: int) -> int:
        """Return TensorProto's number of a tensor's element type."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """Return a tensor's DLPack capsule."""
        return self[index].__dlpack__()


async def arrays_of(values: Sequence[OrtValue]) -> list[Any]:
    """Return `numpy_async` of each value; those on the same GPU are read back together."""
    on_gpu = {i: t for i, value in enumerate(values) if isinstance(t := value._value, DeviceTensor)}
    if len({id(tensor.device) for tensor in on_gpu.values()}) != 1:
        return [await value.numpy_async() for value in values]
    read = dict(zip(on_gpu, await DeviceTensor.downloaded(list(on_gpu.values())), strict=True))
    return [to_user(read[i]) if i in read else value.numpy() for i, value in enumerate(values)]


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy the elements of each tensor of `src` into that of `dst`; `stream` is accepted.

    Raises:
        BadValue (a ValueError): as many are not given. BindingError: two have another type or shape.
    """
    if len(src) != len(dst):
        raise BadValue(f"copy_tensors: expected as many targets as sources, got {len(dst)} for {len(src)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def at_pointer(pointer: int, kind: TensorType, gpu: bool) -> OrtValue:
    """Return the memory at `pointer`: a number of `data_ptr`, or a host address.

    Raises:
        BindingError: no such tensor on the GPU, or a smaller one.
    """
    if not gpu:
        memory = (ctypes.c_char * max(kind.nbytes, 1)).from_address(int(pointer))
        array: Array = np.frombuffer(memoryview(memory).cast("B"), kind.dtype.numpy, math.prod(kind.shape)).reshape(
            kind.shape
        )
        return OrtValue(HostTensor.of(array, kind.dtype), array)
    tensor = _pointers.get(int(pointer))
    if tensor is None or tensor.type != kind:
        raise BindingError(
            f"buffer_ptr {pointer}: expected data_ptr() of a {kind} on the GPU, got {tensor and tensor.type}"
        )
    return OrtValue(tensor)
