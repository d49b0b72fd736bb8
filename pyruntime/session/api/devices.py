"""Where values are, in onnxruntime's terms: OrtDevice, OrtMemoryInfo and their enumerations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from pyruntime.errors import BadValue

__all__ = [
    "DeviceCode",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
]


class OrtDeviceVendorId(IntEnum):
    """Vendors of devices."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtAllocatorType(IntEnum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """What memory is for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Who can access memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


_TYPES = {"cpu": 0, "cuda": 1, "dml": 1, "webgpu": 1, "gpu": 1, "npu": 3, "cann": 3}
_VENDORS = {"cuda": OrtDeviceVendorId.NVIDIA, "dml": OrtDeviceVendorId.MICROSOFT, "cann": OrtDeviceVendorId.HUAWEI}


class DeviceCode:
    """A device as onnxruntime's binding knows it: `DeviceCode(type, memory, id)` or `(type, memory, vendor, id)`."""

    def __init__(self, device_type: int, memory_type: int, *vendor_and_id: int) -> None:
        self._type, self._memory = int(device_type), int(memory_type)
        *vendor, self._id = map(int, vendor_and_id)
        self._vendor = vendor[0] if vendor else 0

    @staticmethod
    def cpu() -> int:
        """Return the type of the host."""
        return 0

    @staticmethod
    def gpu() -> int:
        """Return the type of a GPU."""
        return 1

    @staticmethod
    def webgpu() -> int:
        """Return the type of a GPU."""
        return 1

    @staticmethod
    def default_memory() -> int:
        """Return the device's own memory."""
        return 0

    def device_id(self) -> int:
        """Return its number among those of its type."""
        return self._id

    def device_type(self) -> int:
        """Return 0 for the host, 1 for a GPU, 3 for an NPU."""
        return self._type

    def vendor_id(self) -> int:
        """See `OrtDeviceVendorId`."""
        return self._vendor

    def mem_type(self) -> int:
        """See `OrtDeviceMemoryType`."""
        return self._memory


class OrtDevice:
    """A device; made by `make`."""

    def __init__(self, c_ort_device: DeviceCode) -> None:
        if not isinstance(c_ort_device, DeviceCode):
            raise BadValue(f"OrtDevice: expected a device of the capi module, got {type(c_ort_device).__name__}")
        self._ort_device = c_ort_device

    def _get_c_device(self) -> DeviceCode:
        return self._ort_device

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return the device of a name such as 'cpu' or 'webgpu'.

        Raises:
            BadValue (a ValueError): there is no such kind of device.
        """
        if ort_device_name not in _TYPES:
            raise BadValue(f"Unsupported device type: {ort_device_name}; expected one of {sorted(_TYPES)}")
        vendor = _VENDORS.get(ort_device_name, OrtDeviceVendorId.NONE) if vendor_id < 0 else vendor_id
        return OrtDevice(DeviceCode(_TYPES[ort_device_name], 0, int(vendor), int(device_id)))

    def device_id(self) -> int:
        """Return its number among those of its type."""
        return self._ort_device.device_id()

    def device_type(self) -> int:
        """Return 0 for the host, 1 for a GPU, 3 for an NPU."""
        return self._ort_device.device_type()

    def device_vendor_id(self) -> int:
        """See `OrtDeviceVendorId`."""
        return self._ort_device.vendor_id()

    def device_mem_type(self) -> int:
        """See `OrtDeviceMemoryType`."""
        return self._ort_device.mem_type()


@dataclass(frozen=True, slots=True)
class OrtMemoryInfo:
    """Where a session has an input or an output."""

    name: str
    allocator_type: OrtAllocatorType
    device_id: int
    mem_type: OrtMemType
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Return the description of memory on any device; `alignment` is accepted."""
        return OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id)
