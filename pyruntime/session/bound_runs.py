"""Runs on OrtValues and IOBindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError
from pyruntime.ir import DeclaredTensor
from pyruntime.session.base import Session
from pyruntime.session.environment import wait_for
from pyruntime.session.iobinding import IOBinding
from pyruntime.session.options import RunOptions
from pyruntime.session.ortvalue import OrtValue

__all__ = ["BoundRuns"]


class BoundRuns(Session):
    """The part of InferenceSession that leaves tensors where they are."""

    def io_binding(self) -> IOBinding:
        """A new, empty binding for this session."""
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
        if iobinding._session is not self:
            raise BindingError("IOBinding must be used with the session that created it.")
        await iobinding.run(run_options)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """`run` on OrtValues. Where an input is on the GPU, the outputs stay there."""
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
        feeds = {n: v.current() if isinstance(v, OrtValue) else v for n, v in input_dict_ort_values.items()}
        stay = any(isinstance(v, DeviceTensor) for v in feeds.values())
        dense = {
            v.name
            for v in self._model.graph.outputs
            if isinstance(v.type, DeclaredTensor) and v.type.dtype.compute and v.name in names
        }
        made = await self._run_owned(feeds, names, run_options, dict.fromkeys(dense) if stay else None)
        return [OrtValue(made[n]) for n in names]
