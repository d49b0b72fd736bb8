"""IOBinding: inputs and outputs tied to memory before a run, so that tensors stay where they are between runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BadValue, BindingError, InvalidArgument, OrtError, RuntimeException
from pyruntime.ir import HostTensor, TensorType
from pyruntime.ops.host import HostValue
from pyruntime.session.api.feeds import from_user
from pyruntime.session.api.ortvalue import OrtValue, OrtValueVector, arrays_of, at_pointer, dtype_of, is_gpu
from pyruntime.session.base import Internals, Session
from pyruntime.session.environment import wait_for
from pyruntime.session.options import RunOptions
from pyruntime.session.run.ownership import copied

__all__ = ["IOBinding"]


class IOBinding:
    """Bindings of one session; `InferenceSession.run_with_iobinding` runs with them.

    On the CPU provider everything bound is host memory.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._internals = Internals(session)
        graph = self._internals.model.graph
        self._inputs = {v.name: v for v in (*graph.overridable, *graph.inputs)}
        self._outputs = {v.name: v for v in graph.outputs}
        self._fed: dict[str, OrtValue] = {}
        self._wanted: dict[str, OrtValue | str] = {}
        self._made: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Feed `name` with an array.

        Raises:
            BindingError: the model has no such input, or the array has no ONNX type.
        """
        declared = self._known(name, self._inputs)
        if isinstance(arr_on_cpu, np.ndarray):
            self._fed[name] = OrtValue.ortvalue_from_numpy(arr_on_cpu)
            return
        try:
            self._fed[name] = OrtValue(from_user(arr_on_cpu, declared, {}))
        except OrtError as error:
            raise BindingError(f"Unable to create OrtValue from the given python object: {error}") from error

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Feed `name` with the memory at `buffer_ptr`: a host address, or `OrtValue.data_ptr()` on the GPU."""
        self._known(name, self._inputs)
        self._fed[name] = at_pointer(buffer_ptr, TensorType(dtype_of(element_type), tuple(shape)), is_gpu(device_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Feed `name` with an OrtValue, as it is when the run begins."""
        self._known(name, self._inputs)
        self._fed[name] = _ortvalue(ortvalue)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Want output `name`, in new memory of each run on this device or in the memory at `buffer_ptr`.

        Raises:
            BindingError: the model has no such output, or the device is not here.
            BadValue (a ValueError): a pointer without type or shape.
        """
        self._known(name, self._outputs)
        gpu = is_gpu(device_type)
        if not buffer_ptr:
            self._wanted[name] = "webgpu" if gpu else "cpu"
            return
        if element_type is None or shape is None:
            raise BadValue("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._wanted[name] = at_pointer(buffer_ptr, TensorType(dtype_of(element_type), tuple(shape)), gpu)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write output `name` into this tensor."""
        self._known(name, self._outputs)
        self._wanted[name] = _ortvalue(ortvalue)

    def clear_binding_inputs(self) -> None:
        """Forget all inputs."""
        self._fed.clear()

    def clear_binding_outputs(self) -> None:
        """Forget all outputs, results among them."""
        self._wanted.clear()
        self._made = []

    def get_outputs(self) -> list[OrtValue]:
        """Return the last run's outputs in the order they were bound, on the device where they are."""
        return list(self._made)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Like `get_outputs`."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the last run's outputs as NumPy arrays, in the order they were bound.

        Raises:
            RuntimeException: this place cannot wait; use `await binding.copy_outputs_to_cpu_async()`.
        """
        return wait_for(self.copy_outputs_to_cpu_async(), "await binding.copy_outputs_to_cpu_async()")

    async def copy_outputs_to_cpu_async(self) -> list[Any]:
        """Awaitable `copy_outputs_to_cpu`."""
        return [copied(array) for array in await arrays_of(self._made)]

    def synchronize_inputs(self) -> None:
        """Do nothing: the GPU's queue keeps the order."""

    def synchronize_outputs(self) -> None:
        """Do nothing: reading an output back waits for it."""

    def _known(self, name: str, among: dict[str, Any]) -> Any:
        try:
            return among[name]
        except KeyError:
            raise BindingError(
                f"Failed to find NodeArg with name: {name} in the def list; the model has {list(among)}"
            ) from None

    async def run(self, session: Session, options: RunOptions | None) -> None:
        """Run the session with what is bound.

        Raises:
            BadValue: the binding is of another session.
            BindingError: whatever is wrong, with the exception it was as its cause.
        """
        if session is not self._session:
            raise BadValue("IOBinding must be used with the session that created it.")
        try:
            await self._run(options)
        except BindingError:
            raise
        except (InvalidArgument, RuntimeException) as error:
            raise BindingError(f"Error in execution: {error}") from error

    async def _run(self, options: RunOptions | None) -> None:
        if not self._wanted:
            raise BindingError("Error in execution: At least one output should be requested.")
        feeds = {name: value.current() for name, value in self._fed.items()}
        keep: dict[str, DeviceTensor | None] = {}
        for name, place in self._wanted.items():
            if place == "webgpu":
                keep[name] = None
            elif isinstance(place, OrtValue) and isinstance(tensor := place.current(), DeviceTensor):
                keep[name] = tensor
        made = await self._internals.run_owned(feeds, list(self._wanted), options, keep)
        self._made = [
            await self._deliver(name, place, made[name]) if isinstance(place, OrtValue) else OrtValue(made[name])
            for name, place in self._wanted.items()
        ]

    async def _deliver(self, name: str, place: OrtValue, value: HostValue | DeviceTensor) -> OrtValue:
        """The result in the tensor that was bound."""
        if isinstance(tensor := place.current(), DeviceTensor):
            if isinstance(value, HostTensor):
                await tensor.materialize()
                tensor.write(value.bytes())
        elif isinstance(value, HostTensor):
            place.assign(value, name)
        else:
            raise BindingError(f"output '{name}' is not a tensor; bind it with bind_output")
        return place


def _ortvalue(value: Any) -> OrtValue:
    if not isinstance(value, OrtValue):
        raise BindingError(f"expected an OrtValue, got {type(value).__name__}; use OrtValue.ortvalue_from_numpy")
    return value
