"""Runs on OrtValues and IOBindings."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError
from pyruntime.ir import DeclaredTensor, DType
from pyruntime.session.api.feeds import check_mapping
from pyruntime.session.api.iobinding import IOBinding
from pyruntime.session.api.ortvalue import OrtValue, dtype_of
from pyruntime.session.base import Session
from pyruntime.session.environment import wait_for
from pyruntime.session.options import RunOptions

__all__ = ["BoundRuns"]


class BoundRuns(Session):
    """The part of InferenceSession that leaves tensors where they are."""

    def io_binding(self) -> IOBinding:
        """Create an empty binding for this session."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with what is bound; results are in the binding.

        Raises:
            BindingError (a RuntimeError): an input is missing or does not fit, no output is bound.
            RuntimeException: this place cannot wait; use `await session.run_with_iobinding_async(binding)`.
        """
        wait_for(
            self.run_with_iobinding_async(iobinding, run_options), "await session.run_with_iobinding_async(binding)"
        )

    async def run_with_iobinding_async(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Awaitable `run_with_iobinding`."""
        await iobinding.run(self, run_options)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """`OrtValue.ortvalue_from_shape_and_type`, for this session."""
        if dtype_of(element_type) is DType.STRING:
            raise BindingError("Creation of OrtValues is currently only supported for numeric tensor types")
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: MutableSequence[OrtValue],
        fetch_devices: Sequence[Any],
    ) -> None:
        """Run on lists, as `run_with_ort_values`: outputs are appended to `fetches`, or replace what is in it.

        Args:
            fetches: a list, or an OrtValueVector of the capi module.
            fetch_devices: accepted; where an input is on the GPU, the outputs stay there.
        """
        if len(feed_names) != len(feeds):
            raise BindingError(f"expected as many feeds as feed_names, got {len(feeds)} for {len(feed_names)}")
        fetches[:] = self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Run on OrtValues. Where an input is on the GPU, the outputs stay there."""
        work = self.run_with_ort_values_async(output_names, input_dict_ort_values, run_options)
        return wait_for(work, "await session.run_with_ort_values_async(...)")

    async def run_with_ort_values_async(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Awaitable `run_with_ort_values`."""
        names = self._output_names(output_names)
        check_mapping(input_dict_ort_values, self.get_inputs())
        feeds = {n: v.current() if isinstance(v, OrtValue) else v for n, v in input_dict_ort_values.items()}
        stay = any(isinstance(v, DeviceTensor) for v in feeds.values())
        dense = {
            v.name
            for v in self._model.graph.outputs
            if isinstance(v.type, DeclaredTensor) and v.type.dtype.compute and v.name in names
        }
        made = await self._run_owned(feeds, names, run_options, dict.fromkeys(dense) if stay else None)
        return [OrtValue(made[n]) for n in names]
