"""SessionOptions, RunOptions and the enumerations: onnxruntime's names and defaults.

What has no meaning in a browser (threads, arenas, affinity) is accepted and has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any

from pyruntime.errors import BindingError, InvalidArgument, ModelLoadCanceled, WrongType
from pyruntime.session.interruption import Switch, run_terminated
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.providers import check_available

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions", "SessionOptions"]


class GraphOptimizationLevel(IntEnum):
    """How much the graph is rewritten; everything above ORT_DISABLE_ALL runs all passes."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Accepted; the GPU queue is sequential."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """Accepted; the schedule is made for memory."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """String keys and values, as onnxruntime's config entries."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def add(self, key: str, value: str) -> None:
        self._entries[str(key)] = str(value)

    def get(self, key: str) -> str:
        try:
            return self._entries[key]
        except KeyError:
            raise BindingError(f"there is no configuration with key: {key}") from None


class _Sealed:
    """Attributes keep their names and types once `__init__` is done: a misspelt option is an error."""

    _sealed = False

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed:
            if not hasattr(self, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            now = getattr(self, name)
            if isinstance(now, bool | int | str) and not isinstance(value, str if isinstance(now, str) else int):
                raise TypeError(f"{type(self).__name__}.{name}: expected {type(now).__name__}, got {value!r}")
        super().__setattr__(name, value)


class SessionOptions(_Sealed):
    """What a session is made with.

    Attributes:
        graph_optimization_level: see `GraphOptimizationLevel`.
        enable_profiling: write a Chrome trace at `end_profiling`.
        free_dimension_overrides: sizes of symbolic dimensions by name.
        limits: what the session may use; config entries 'pyruntime.limits.NAME' set them too.
    """

    def __init__(self) -> None:
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self.free_dimension_overrides: dict[str, int] = {}
        self.free_dimension_overrides_by_denotation: dict[str, int] = {}
        self.initializers: dict[str, Any] = {}
        self.external_files: dict[str, Any] = {}
        self.providers: dict[str, dict[str, str]] = {}
        self.limits = ResourceLimits()
        self._cancelled = Switch()
        self._config = _Entries()
        self._sealed = True

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the symbolic dimension `name` to `size`."""
        if size < 0:
            raise InvalidArgument(f"free dimension '{name}': expected a size >= 0, got {size}")
        self.free_dimension_overrides[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the dimensions with this denotation to `size`."""
        self.free_dimension_overrides_by_denotation[denotation] = int(size)

    def add_initializer(self, name: str, value: Any) -> None:
        """Use `value` (array or OrtValue) for the initializer `name` in place of the model's own."""
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Values of several initializers."""
        self.initializers.update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, file_names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Contents of external data files by the names the model uses; bytes-like objects or JavaScript buffers."""
        if not len(file_names) == len(buffers) == len(lengths):
            raise InvalidArgument("expected as many buffers and lengths as file names")
        self.external_files.update(zip(file_names, buffers, strict=True))

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Run on this provider, after those that were added before.

        Raises:
            BindingError (a RuntimeError): no provider has this name. InvalidArgument: it is not available here.
            WrongType (a TypeError): the name, an option or its value is not a string.
        """
        if not all(isinstance(text, str) for text in (name, *options, *options.values())):
            raise WrongType(f"add_provider: expected a name and options as strings, got {name!r}, {dict(options)}")
        check_available(name, options)
        self.providers[name] = dict(options)

    def has_providers(self) -> bool:
        """Return whether `add_provider` was called."""
        return bool(self.providers)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a config entry, e.g. 'session.disable_cpu_ep_fallback' to '1'."""
        self._config.add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return a config entry. Raises BindingError (a RuntimeError): it was not set."""
        return self._config.get(key)

    def set_load_cancellation_flag(self, value: bool) -> None:
        """End the loading that uses these options at the await it is in, with ModelLoadCanceled."""
        self._cancelled.turn(bool(value))

    def check_load(self) -> None:
        """Raises ModelLoadCanceled where `set_load_cancellation_flag(True)` was called."""
        if self._cancelled.on:
            raise _load_cancelled()

    def cancellable(self) -> AbstractContextManager[None]:
        """End the block's awaits by ModelLoadCanceled once loading with these options is cancelled."""
        return self._cancelled.ends(_load_cancelled)

    def config(self, key: str, default: str = "") -> str:
        """Return a config entry, or `default`."""
        return self._config._entries.get(key, default)

    @property
    def config_entries(self) -> Mapping[str, str]:
        """All config entries."""
        return dict(self._config._entries)


class RunOptions(_Sealed):
    """What one run is made with.

    Attributes:
        terminate: set to True from elsewhere to end the run at the await it is in, with Fail.
        only_execute_path_to_fetches: accepted; only what the fetches need runs in any case.
        on_progress: called while a long run takes, with the operations done, and those of the part of the model that is
            being computed.
    """

    def __init__(self) -> None:
        self.on_progress: Callable[[int, int], object] | None = None
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.training_mode = False
        self._terminated = Switch()
        self._config = _Entries()
        self._sealed = True

    @property
    def terminate(self) -> bool:
        return self._terminated.on

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminated.turn(bool(value))

    def terminable(self) -> AbstractContextManager[None]:
        """End the block's awaits by Fail once `terminate` of these options is set."""
        return self._terminated.ends(run_terminated)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a config entry of this run."""
        self._config.add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return a config entry. Raises BindingError (a RuntimeError): it was not set."""
        return self._config.get(key)


def _load_cancelled() -> ModelLoadCanceled:
    return ModelLoadCanceled("loading was cancelled by SessionOptions.set_load_cancellation_flag")
