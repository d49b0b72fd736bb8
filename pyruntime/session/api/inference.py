"""InferenceSession: onnxruntime's class, on the GPU where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import BindingError, DeviceLost, InvalidArgument, WrongType
from pyruntime.ir import HostTensor, ValueInfo
from pyruntime.kernels import Target
from pyruntime.ops.host import HostValue, host_value
from pyruntime.ops.interpreter import RunContext, current, interpret, running
from pyruntime.session.api.bound_runs import BoundRuns
from pyruntime.session.api.devices import OrtAllocatorType, OrtMemoryInfo, OrtMemType
from pyruntime.session.api.feeds import check_names, check_tensor, from_user, to_user
from pyruntime.session.api.mapped import Batches, Mapped
from pyruntime.session.api.ortvalue import OrtValue
from pyruntime.session.environment import CPU, WEBGPU, apart, call_back, wait_for
from pyruntime.session.inspect.insight import Insight
from pyruntime.session.interruption import within
from pyruntime.session.limits import deadline, too_long
from pyruntime.session.load.creation import Creation
from pyruntime.session.metadata import ModelMetadata, NodeArg
from pyruntime.session.options import RunOptions, SessionOptions
from pyruntime.session.providers import chosen_providers
from pyruntime.session.run.profiling import Recorder
from pyruntime.session.run.program import AnyValue
from pyruntime.session.run.recovery import one_of_ours
from pyruntime.session.run.small_runs import predicted_work
from pyruntime.session.tuning.first_use import ENTRY, at_work, ran

__all__ = ["InferenceSession"]


class InferenceSession(Creation, BoundRuns, Insight):
    """A model ready to run.

    Args:
        path_or_bytes: path, URL (in a browser), bytes-like, JavaScript ArrayBuffer or typed array, onnx.ModelProto.
        sess_options: see `SessionOptions`.
        providers: names, or (name, options), in order of preference; default: WebGPU where there is a GPU, then NumPy.
            Those that are not available are warned of; where none is, the model runs on NumPy.
        provider_options: options of each provider. WebGPU under CPython: 'adapter', a number of `pyruntime.adapters()`,
            a kind ('discrete', 'integrated', 'software') or a part of a name, and 'power_preference'.
        enable_fallback: 0: a name that no provider has, or malformed arguments, are errors.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented: the model cannot be loaded.
        EPFail: WebGPU alone was asked for, and there is no GPU.
        RuntimeException: the browser cannot wait synchronously; use `await InferenceSession.create(...)`.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._begin(sess_options, providers, provider_options, int(kwargs.get("enable_fallback", 1)) == 1)
        work = self._load(path_or_bytes, kwargs.get("progress"))
        wait_for(work, "await InferenceSession.create(...)")

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Run the model; the outputs named, or all, as NumPy arrays (lists for sequences, dicts for maps).

        No output shares memory with inputs, weights or other outputs.

        Raises:
            MissingInput (a ValueError), InvalidArgument: the feed does not fit the model.
            WrongType (a TypeError): an argument, or what is fed, is of no such kind.
            RuntimeException: an operator failed, or this place cannot wait: use `await session.run_async(...)`.
        """
        return wait_for(self._run_user(output_names, input_feed, run_options), "await session.run_async(...)")

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None] | RunOptions | None = None,
        user_data: Any = None,
        run_options: RunOptions | None = None,
    ) -> Any:
        """Awaitable `run`; with a callback, which is called with (outputs, user_data, error), it runs by itself."""
        if isinstance(callback, RunOptions):
            callback, run_options = None, callback
        work = apart(self._run_user(output_names, input_feed, run_options))
        return work if callback is None else call_back(work, callback, user_data)

    def map(
        self,
        batches: Batches,
        output_names: Sequence[str] | None = None,
        run_options: RunOptions | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Mapped:
        """Run batch after batch; `for` and `async for` give the outputs of each, as `run` does, in order.

        In a browser the next batch is uploaded while the GPU computes the one before it. A batch's arrays must not
        change until its outputs have come.

        Args:
            batches: feeds, one by one; for `async for` also an async iterable.
            progress: called with the number of batches that are done, and of all, None where that is not known.
        """
        return Mapped(
            batches,
            lambda feeds: self.run(output_names, feeds, run_options),
            lambda feeds: apart(self._run_user(output_names, feeds, run_options)),
            progress,
        )

    async def _run_user(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None
    ) -> list[Any]:
        names = self._output_names(output_names)
        values = await self._run_owned(input_feed, names, run_options)
        return [to_user(_at_host(values[n])) for n in names]

    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        every = [v.name for v in self._model.graph.outputs]
        if isinstance(wanted, str):
            raise WrongType(f"expected the output names as a list, got the text '{wanted}'; write ['{wanted}']")
        names = list(wanted) if wanted else every
        unknown = [n for n in names if n not in every]
        if unknown:
            raise InvalidArgument(f"Invalid output name: '{unknown[0]}'; the model's outputs are {every}")
        return names

    async def _run_values(
        self,
        feeds: Mapping[str, Any],
        names: list[str],
        options: RunOptions | None,
        keep: Mapping[str, DeviceTensor | None] | None = None,
        recorder: Recorder | None = None,
    ) -> dict[str, AnyValue]:
        self._check_released()
        graph = self._model.graph
        check_names(feeds, graph.inputs, graph.overridable)
        declared = {v.name: v for v in (*graph.overridable, *graph.inputs)}
        values = {n: self._fed(v, declared[n]) for n, v in feeds.items()}
        if self._trace is not None and recorder is None:
            recorder = Recorder()
        began = time.perf_counter()
        if options is not None and not isinstance(options, RunOptions):
            raise WrongType(f"expected the run options as a RunOptions, got {type(options).__name__}")
        chosen = options or RunOptions()
        check = deadline(self._limits.run_seconds, lambda: chosen.terminate, lambda: self._released)
        check()
        over = within(self._limits.run_seconds, lambda: too_long(self._limits.run_seconds))
        context = RunContext(self._limits.host, check, random=self._random, progress=chosen.on_progress)
        with at_work(), chosen.terminable(), over, one_of_ours("the run"), running(context):
            result = await self._execute(values, names, check, keep, recorder)
        if chosen.terminate:
            check()
        if self._trace is not None and recorder is not None:
            self._trace.run(recorder.timings, began)
        self._timings["run_ms"] = (time.perf_counter() - began) * 1000
        if self._program is not None:
            ran(self._program.device, self._options.config(ENTRY, "auto"))
        return result

    def _fed(self, value: Any, declared: ValueInfo) -> AnyValue:
        """A user's value for a declared input, wherever it is. Raises InvalidArgument."""
        if isinstance(value, OrtValue):
            value = value.current()
        if not isinstance(value, DeviceTensor):
            return from_user(value, declared, self._dims)
        check_tensor(value.type, declared, self._dims)
        return value

    async def _execute(
        self,
        values: dict[str, AnyValue],
        names: list[str],
        check: Callable[[], None],
        keep: Mapping[str, DeviceTensor | None] | None,
        recorder: Recorder | None,
    ) -> dict[str, AnyValue]:
        for value in self._model.graph.inputs:
            if value.name not in values:
                values[value.name] = from_user(None, value, {})
        if self._live is not None and (keep or not self._is_small(values)):
            try:
                return await self._live.use(lambda program: program.run(values, names, check, keep, recorder))
            except DeviceLost as error:
                if self._options.config("pyruntime.cpu_after_device_loss") != "1":
                    raise
                self.set_providers([CPU])
                self._warnings.append(f"{error}; the model runs on {CPU} from now on")
        on_host = {n: await v.download() if isinstance(v, DeviceTensor) else v for n, v in values.items()}
        check()  # a session that was released meanwhile has no graph to run
        feeds = {n: v.known(n) if isinstance(v, HostTensor) else v for n, v in on_host.items()}
        context = replace(current(), on_node=recorder.node) if recorder else current()
        results = interpret(self._model.graph, feeds, names, context)
        return {n: host_value(v) for n, v in results.items()}

    def _is_small(self, values: Mapping[str, AnyValue]) -> bool:
        """Whether a run on NumPy is over before one on the GPU; see small_runs.py."""
        most = float(self._options.config("pyruntime.host_work") or 0)
        if not most or CPU not in self._providers:
            return False
        feeds = {n: v.known(n) if isinstance(v, HostTensor) else v for n, v in values.items()}
        given = {n: v for n, v in feeds.items() if not isinstance(v, DeviceTensor)}
        return len(given) == len(feeds) and predicted_work(self._model.graph, given) <= most

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that must be fed."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs, with the types and shapes the model declares."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are inputs too and may be fed."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """Return the model's metadata."""
        m = self._model.metadata
        return ModelMetadata(
            m.producer_name, m.graph_name, m.domain, m.description, m.graph_description, m.version, dict(m.custom)
        )

    def get_session_options(self) -> SessionOptions:
        """Return the options the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the providers in use, in order."""
        return list(self._providers)

    def disable_fallback(self) -> None:
        """Accepted: no run goes on with another provider."""

    def enable_fallback(self) -> None:
        """Accepted: a provider that fails is an error; see the config entry 'pyruntime.cpu_after_device_loss'."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return the memory of each input before a run: the host's."""
        return [_HOST_MEMORY for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return the memory where `run` leaves each output: the host's."""
        return [_HOST_MEMORY for _ in self.get_outputs()]

    def get_tuning_results(self) -> list[Any]:
        """Return an empty list: no provider has any; see `tune`."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Accepted; see `tune`."""

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Accepted. Raises BindingError (a RuntimeError) where there are none."""
        if not options:
            raise BindingError("set_ep_dynamic_options: expected at least one option")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Accepted; nothing is captured."""

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Go on with these providers, by default those there are; without WebGPU the GPU's memory is freed.

        Raises:
            BindingError (a RuntimeError): no provider has such a name. BadValue (a ValueError): malformed arguments.
            InvalidArgument: WebGPU, for a session that runs without it.
        """
        chosen = chosen_providers(providers, provider_options, fallback=False)
        if providers is None and self._live is None:
            chosen = {CPU: {}}
        if WEBGPU in chosen and self._live is None:
            raise InvalidArgument(f"this session runs without {WEBGPU}; create another one with it")
        if WEBGPU not in chosen:
            self._leave_gpu()
        self._providers, self._provider_options = list(chosen), chosen

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider."""
        return self._provider_options

    @property
    def target(self) -> Target | None:
        """The device kernels are generated for; None on NumPy."""
        return self._program.target if self._program else None


_HOST_MEMORY = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)


def _at_host(value: AnyValue) -> HostValue:
    assert not isinstance(value, DeviceTensor)
    return value
