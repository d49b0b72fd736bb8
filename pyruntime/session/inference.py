"""InferenceSession: onnxruntime's class, on the GPU where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.device.base import Device
from pyruntime.device.on_host import HostValue, host_value
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import DeviceLost, EPFail, Fail, InvalidArgument
from pyruntime.ir import DeclaredTensor, HostTensor, TensorType, ValueInfo
from pyruntime.kernels import Target
from pyruntime.onnx.importer import ImportedModel, import_model
from pyruntime.onnx.reader import read_model
from pyruntime.onnx.records import ModelRecord
from pyruntime.onnx.source import ByteSource
from pyruntime.onnx.wire import Limits
from pyruntime.ops.interpreter import RunContext, current, interpret, running
from pyruntime.session.bound_runs import BoundRuns
from pyruntime.session.environment import CPU, WEBGPU, available_providers, call_back, device, wait_for
from pyruntime.session.expected_runs import expected_runs
from pyruntime.session.feeds import check_names, check_tensor, from_user, to_user
from pyruntime.session.first_use import ENTRY, at_work, given_rates, ran
from pyruntime.session.insight import Insight
from pyruntime.session.interruption import within
from pyruntime.session.limits import deadline, too_long
from pyruntime.session.loading import Phase, Progress, arrived, external_files, model_source, when_there
from pyruntime.session.metadata import ModelMetadata, NodeArg, dimension_sizes
from pyruntime.session.options import GraphOptimizationLevel, RunOptions, SessionOptions
from pyruntime.session.ortvalue import OrtValue
from pyruntime.session.profiling import Recorder, Trace
from pyruntime.session.program import AnyValue, Program
from pyruntime.session.recovery import LiveProgram, one_of_ours
from pyruntime.session.report import summarize
from pyruntime.session.small_runs import predicted_work
from pyruntime.session.switches import disabled_names

__all__ = ["InferenceSession"]


def _silent(event: Mapping[str, Any]) -> None:
    pass


class InferenceSession(BoundRuns, Insight):
    """A model ready to run.

    Args:
        path_or_bytes: path, URL (in a browser), bytes-like, JavaScript ArrayBuffer or typed array, onnx.ModelProto.
        sess_options: see `SessionOptions`.
        providers: names in order of preference; default: WebGPU where there is a browser, then NumPy.
        provider_options: accepted for compatibility.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph, NotImplemented: the model cannot be loaded.
        EPFail: a provider was asked for that is not there.
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
        self._begin(sess_options, providers, provider_options)
        work = self._load(path_or_bytes, kwargs.get("progress") or _silent)
        wait_for(work, "await InferenceSession.create(...)")

    @classmethod
    async def create(
        cls,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        progress: Progress | None = None,
    ) -> InferenceSession:
        """Like the constructor, awaitable: works everywhere. `progress` is called with dicts as loading goes on."""
        session = cls.__new__(cls)
        session._begin(sess_options, providers, provider_options)
        await session._load(path_or_bytes, progress or _silent)
        return session

    def _begin(
        self,
        options: SessionOptions | None,
        providers: Sequence[Any] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        self._options = options or SessionOptions()
        self._trace = Trace(self._options.profile_file_prefix) if self._options.enable_profiling else None
        self._providers = _chosen(providers)
        self._provider_options: dict[str, dict[str, Any]] = {p: {} for p in self._providers}
        for name, chosen in zip(self._providers, provider_options or (), strict=False):
            self._provider_options[name] = dict(chosen)
        self._limits = self._options.limits.merged(self._options.config_entries)
        self._live: LiveProgram | None = None
        self._released = False
        self._timings: dict[str, float] = {}
        self._warnings: list[str] = []
        self._files: dict[str, ByteSource] = {}

    @property
    def _program(self) -> Program | None:
        """The program in use; another one after the device was lost."""
        return self._live.current if self._live else None

    async def _load(self, model: Any, progress: Progress) -> None:
        began = time.perf_counter()
        cancelled = self._options.check_load
        context = RunContext(self._limits.host, cancelled)
        with at_work(), self._options.cancellable(), one_of_ours("loading the model"), running(context):
            source, folder, beside = await model_source(model, progress)
            cancelled()
            with Phase("parse", progress, self._timings):
                limits = self._limits.reader
                record = await when_there(lambda: _read(source, limits))
                files = self._files = await external_files(record, self._options.external_files, beside)
                self._model: ImportedModel = await when_there(lambda: _imported(record, files, folder, limits))
            self._dims = dimension_sizes(self._model, self._options)
            self._replace_initializers()
            if WEBGPU in self._providers:
                with Phase("adapter", progress, self._timings):
                    await self._open_device()
            try:
                cancelled()
                if self._live is not None:
                    with Phase("shaders", progress, self._timings):
                        live = self._live
                        await when_there(lambda: live.use(self._prepare))
                await arrived([source, *files.values()])
                cancelled()
            except BaseException:
                self.release()
                raise
        if self._trace is not None:
            self._trace.session("session_initialization", began)
        self._timings["create_ms"] = (time.perf_counter() - began) * 1000

    async def _open_device(self) -> None:
        config = self._options.config
        try:
            gpu = await device()
        except EPFail as error:
            if CPU not in self._providers:
                raise
            self._warnings.append(f"{error}; the model runs on {CPU}")
            self._providers = [p for p in self._providers if p != WEBGPU]
            return
        disabled = disabled_names(config("pyruntime.disable"))
        refuse = config("session.disable_cpu_ep_fallback") == "1"
        optimize = self._options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL

        sanitize = config("pyruntime.sanitize") == "1"
        rates = given_rates(config(ENTRY, "auto"))

        def make(gpu: Device) -> Program:
            return Program(self._model.graph, gpu, refuse, disabled, optimize, self._limits, sanitize, rates)

        self._live = LiveProgram(make(gpu), device, make, self._warnings.append)

    async def _prepare(self, program: Program) -> None:
        """Plan and compile now where the declared shapes are complete, or runs are expected: the first run then has
        nothing to wait for."""
        types: dict[str, TensorType] = {}
        for value in self._model.graph.inputs:
            kind = self._resolved(value)
            if kind is None:
                if expects := self._options.config("pyruntime.expects"):
                    await program.expect(expected_runs(self._model.graph, expects))
                return
            types[value.name] = kind
        await program.prepare(types, [v.name for v in self._model.graph.outputs])

    def _resolved(self, value: ValueInfo) -> TensorType | None:
        """The declared type with free dimension overrides; None where a dimension stays open."""
        kind = value.type
        if not isinstance(kind, DeclaredTensor) or kind.shape is None:
            return None
        dims = [self._dims.get(d) if isinstance(d, str) else d for d in kind.shape]
        if any(d is None for d in dims):
            return None
        return TensorType(kind.dtype, tuple(int(d) for d in dims if d is not None))

    def _replace_initializers(self) -> None:
        from pyruntime.ir import Constant

        for name, value in self._options.initializers.items():
            own = self._model.graph.constants.get(name)
            if own is None:
                raise InvalidArgument(f"add_initializer: the model has no initializer '{name}'")
            array = value.numpy() if hasattr(value, "numpy") else value
            made = Constant.from_array(array, own.type.dtype)
            if made.type.shape != own.type.shape:
                raise InvalidArgument(f"add_initializer: '{name}' is {own.type}, got {made.type}")
            self._model.graph.constants[name] = made

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """The outputs named, or all, as NumPy arrays (lists for sequences, dicts for maps).

        Raises:
            MissingInput (a ValueError), InvalidArgument: the feed does not fit the model.
            RuntimeException: an operator failed, or this place cannot wait: use `await session.run_async(...)`.
        """
        return wait_for(self.run_async(output_names, input_feed, run_options), "await session.run_async(...)")

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
        work = self._run_user(output_names, input_feed, run_options)
        return work if callback is None else call_back(work, callback, user_data)

    async def _run_user(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None
    ) -> list[Any]:
        names = self._output_names(output_names)
        values = await self._run_values(input_feed, names, run_options)
        return [to_user(_at_host(values[n])) for n in names]

    def _output_names(self, wanted: Sequence[str] | None) -> list[str]:
        every = [v.name for v in self._model.graph.outputs]
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
        if self._released:
            raise Fail("the session is released; create it again")
        graph = self._model.graph
        check_names(feeds, graph.inputs, graph.overridable)
        declared = {v.name: v for v in (*graph.overridable, *graph.inputs)}
        values = {n: self._fed(v, declared[n]) for n, v in feeds.items()}
        if self._trace is not None and recorder is None:
            recorder = Recorder()
        began = time.perf_counter()
        chosen = options or RunOptions()
        check = deadline(self._limits.run_seconds, lambda: chosen.terminate, lambda: self._released)
        check()
        over = within(self._limits.run_seconds, lambda: too_long(self._limits.run_seconds))
        context = RunContext(self._limits.host, check)
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
        """Inputs that must be fed."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs, with the types and shapes the model declares."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are inputs too and may be fed."""
        return [NodeArg.of(v, self._dims) for v in self._model.graph.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model says of itself."""
        m = self._model.metadata
        return ModelMetadata(
            m.producer_name, m.graph_name, m.domain, m.description, m.graph_description, m.version, dict(m.custom)
        )

    def get_session_options(self) -> SessionOptions:
        """The options the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """The providers in use, in order."""
        return list(self._providers)

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[str, Any]] | None = None
    ) -> None:
        """Go on with these providers, by default those there are; without WebGPU the GPU's memory is freed.

        Raises:
            EPFail: none of them is here. InvalidArgument: WebGPU, for a session that runs without it.
        """
        chosen = _chosen(providers)
        if providers is None and self._live is None:
            chosen = [CPU]
        if WEBGPU in chosen and self._live is None:
            raise InvalidArgument(f"this session runs without {WEBGPU}; create another one with it")
        if WEBGPU not in chosen and self._live is not None:
            self._live.release()
            self._live = None
        self._providers = chosen

    def get_provider_options(self) -> dict[str, dict[str, Any]]:
        """Options by provider."""
        return self._provider_options

    def summary(self) -> dict[str, Any]:
        """Adapter, inputs, outputs, nodes with placement and reason, memory: plain data for pages and programs."""
        return summarize(self)

    @property
    def target(self) -> Target | None:
        """The device kernels are generated for; None on NumPy."""
        return self._program.target if self._program else None

    def release(self) -> None:
        """Free everything of the session, on the GPU too. Running afterwards raises Fail."""
        self._released = True
        if self._live is not None:
            self._live.release()


async def _read(source: ByteSource, limits: Limits) -> ModelRecord:
    return read_model(source, limits)


async def _imported(
    record: ModelRecord, files: Mapping[str, ByteSource], folder: str | None, limits: Limits
) -> ImportedModel:
    return import_model(record, files, folder, limits)


def _at_host(value: AnyValue) -> HostValue:
    assert not isinstance(value, DeviceTensor)
    return value


def _chosen(providers: Sequence[Any] | None) -> list[str]:
    """Provider names; unknown ones refused, those of other platforms skipped where another one remains."""
    available = available_providers()
    if providers is None:
        return available
    names = [p if isinstance(p, str) else p[0] for p in providers]
    chosen = [n for n in dict.fromkeys(names) if n in available]
    if not names:
        return available
    if not chosen:
        raise EPFail(f"none of the providers {names} is available here; available: {available}")
    return chosen
