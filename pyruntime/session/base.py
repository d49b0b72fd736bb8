"""What the parts of InferenceSession know of each other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import Fail
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.onnx.importer.model import ImportedModel
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.metadata import NodeArg
from pyruntime.session.options import RunOptions, SessionOptions
from pyruntime.session.run.ownership import owned
from pyruntime.session.run.profiling import Recorder, Trace
from pyruntime.session.run.program import AnyValue, Program

__all__ = ["Internals", "Session"]


class Session(ABC):
    """State of a session, and the one way in which it runs."""

    _model: ImportedModel
    _options: SessionOptions
    _limits: ResourceLimits
    _files: dict[str, ByteSource]
    _path: str
    """The model's, where it was a file."""
    _source: ByteSource | None
    _external: list[str]
    """Names of the files in which the model keeps weights."""
    _timings: dict[str, float]
    _warnings: list[str]
    _trace: Trace | None = None
    _released: bool = False

    def _check_released(self) -> None:
        """Raises Fail: the session was released."""
        if self._released:
            raise Fail("the session is released; create it again")

    @property
    @abstractmethod
    def _program(self) -> Program | None:
        """The program in use; None on NumPy."""

    @abstractmethod
    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        """The outputs asked for, all where none is. Raises InvalidArgument."""

    @abstractmethod
    async def _run_values(
        self,
        feeds: Mapping[str, Any],
        names: list[str],
        options: RunOptions | None,
        keep: Mapping[str, DeviceTensor | None] | None = None,
        recorder: Recorder | None = None,
    ) -> dict[str, AnyValue]:
        """Run. `keep`: outputs that stay on the GPU; `recorder`: gets the timings.

        Outputs on the host may share memory with inputs, weights and each other; those of `_run_owned` do not.
        """

    async def _run_owned(
        self,
        feeds: Mapping[str, Any],
        names: list[str],
        options: RunOptions | None,
        keep: Mapping[str, DeviceTensor | None] | None = None,
    ) -> dict[str, AnyValue]:
        """`_run_values` for users: each output has memory of its own."""
        return owned(await self._run_values(feeds, names, options, keep))

    @abstractmethod
    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that must be fed."""

    @abstractmethod
    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs as declared."""

    @abstractmethod
    def get_providers(self) -> list[str]:
        """Return the providers in use."""


class Internals:
    """What this package uses of a session, and users do not."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.output_names = session._output_names
        self.run_values = session._run_values
        self.run_owned = session._run_owned

    @property
    def model(self) -> ImportedModel:
        """The model; without nodes and weights once the session is released."""
        return self._session._model

    @property
    def program(self) -> Program | None:
        """The program in use; None on NumPy."""
        return self._session._program

    @property
    def files(self) -> Mapping[str, ByteSource]:
        """The model's external data files, by the names that it gives them."""
        return self._session._files

    @property
    def run_seconds(self) -> float:
        """The limit of a run's wall time."""
        return self._session._limits.run_seconds

    @property
    def is_traced(self) -> bool:
        """Whether runs are recorded for a Chrome trace."""
        return self._session._trace is not None

    def start_trace(self) -> None:
        """Record every run from now on; events of a trace that has begun are kept."""
        self._session._trace = self._session._trace or Trace(self._session._options.profile_file_prefix)

    def end_trace(self) -> list[dict[str, Any]]:
        """Stop recording; the events since the trace began, in the format of Chrome traces."""
        trace, self._session._trace = self._session._trace, None
        return trace.events if trace else []
