"""How a session comes to be: its model read, its device opened, what can be planned before the first run."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self

from pyruntime.device.base import Device
from pyruntime.errors import EPFail, InvalidArgument, WrongType
from pyruntime.ir import Constant, DeclaredTensor, DType, Graph, TensorType, ValueInfo
from pyruntime.onnx.formats.protobuf import Limits
from pyruntime.onnx.formats.source import ArrivingSource, ByteSource
from pyruntime.onnx.importer.extents import extents
from pyruntime.onnx.importer.model import ImportedModel, import_model
from pyruntime.onnx.reader import reading_model
from pyruntime.onnx.records import ModelRecord
from pyruntime.ops.interpreter import RunContext, running
from pyruntime.ops.randomness import Randomness
from pyruntime.session.base import Session
from pyruntime.session.environment import CPU, WEBGPU, apart, device, from_page, in_browser, preopen_device
from pyruntime.session.load.loading import Phase, Progress, arrived, external_files, model_source, when_there
from pyruntime.session.load.prefault import prefault
from pyruntime.session.metadata import dimension_sizes
from pyruntime.session.options import GraphOptimizationLevel, SessionOptions
from pyruntime.session.precision import FLOAT32_NODES, PRECISION, half_precision
from pyruntime.session.providers import chosen_providers
from pyruntime.session.run.expected_runs import expected_logits, expected_runs
from pyruntime.session.run.planning import StoredPlans
from pyruntime.session.run.profiling import Trace
from pyruntime.session.run.program import Program
from pyruntime.session.run.recovery import LiveProgram, one_of_ours
from pyruntime.session.switches import disabled_names
from pyruntime.session.tuning.first_use import ENTRY, at_work, given_rates

__all__ = ["Creation"]


def _silent(event: Mapping[str, Any]) -> None:
    """The progress callback where the caller gave none."""


def _weight_bytes(graph: Graph, half: bool) -> int:
    """Return the bytes that weights take on the GPU at least; with `half`, float32 becomes float16 there."""
    used = {name for node in graph.nodes for name in node.inputs}
    weights = {(id(c.source), c.offset): c for name, c in graph.constants.items() if name in used}
    halved = {DType.DOUBLE, DType.INT64, DType.UINT64} | ({DType.FLOAT} if half else set())
    return sum(c.nbytes // (2 if c.type.dtype in halved else 1) for c in weights.values())


class Creation(Session):
    """Begins with the options, and loads the model."""

    def _begin(
        self,
        options: SessionOptions | None,
        providers: Sequence[Any] | None,
        provider_options: Sequence[Mapping[str, Any]] | None,
        fallback: bool = True,
    ) -> None:
        if options is not None and not isinstance(options, SessionOptions):
            raise WrongType(f"expected the session options as a SessionOptions, got {type(options).__name__}")
        self._options = options or SessionOptions()
        self._trace = Trace(self._options.profile_file_prefix) if self._options.enable_profiling else None
        named = self._options.providers
        if (providers or provider_options) and named:
            warnings.warn(
                "Specified 'providers' when creating InferenceSession but SessionOptions has already been configured "
                "with providers. InferenceSession will only use the providers passed to InferenceSession().",
                UserWarning,
                stacklevel=2,
            )
        elif named:
            providers, provider_options = list(named), list(named.values())
        self._provider_options = chosen_providers(providers, provider_options, fallback)
        self._providers = list(self._provider_options)
        self._limits = self._options.limits.merged(self._options.config_entries)
        self._live: LiveProgram | None = None
        self._random = Randomness()
        self._timings = {}
        self._warnings = []
        self._files = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the model, its path where it was a file, and the options: another process loads it again.

        Raises:
            Fail: the session is released.
        """
        self._check_released()
        assert self._source is not None
        model = self._path or bytes(self._source.read(0, self._source.size))
        return _created, (type(self), model, self._options, list(self._provider_options.items()))

    @classmethod
    async def create(
        cls,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        progress: Progress | None = None,
    ) -> Self:
        """Like the constructor, awaitable: works everywhere. `progress` is called with dicts as loading goes on."""

        async def load() -> Self:
            session = cls.__new__(cls)
            session._begin(sess_options, providers, provider_options)
            await session._load(path_or_bytes, progress)
            return session

        return await apart(load())

    @property
    def _program(self) -> Program | None:
        """The program in use; another one after the device was lost."""
        return self._live.current if self._live else None

    async def _load(self, model: Any, progress: Progress | None) -> None:
        began, progress = time.perf_counter(), progress or _silent
        cancelled = self._options.check_load
        context = RunContext(self._limits.host, cancelled)
        with at_work(), self._options.cancellable(), one_of_ours("loading the model"), running(context):
            source, folder, fetch_relative = await model_source(model, progress)
            self._path, self._source = folder or "", source
            cancelled()
            limits = self._limits.reader
            if WEBGPU in self._providers:
                await preopen_device(self._provider_options[WEBGPU])
            followed = None
            if isinstance(source, ArrivingSource) and source.in_order:
                followed = await when_there(lambda: _read(source, limits))
            with Phase("parse", progress, self._timings):
                record = await when_there(lambda: _read(source, limits)) if followed is None else followed
                self._external = list(extents(record)) if _stores_plans() else []
                files = self._files = await external_files(record, self._options.external_files, fetch_relative)
                self._model = await when_there(lambda: _imported(record, files, folder, limits))
            self._dims = dimension_sizes(self._model, self._options)
            self._replace_initializers()
            if bits := self._options.config("pyruntime.kv_cache_bits"):
                from pyruntime.session.load.packed_caches import pack_caches  # operators load on use

                pack_caches(self._model.graph, bits, self._dims)
            self._half = half_precision(
                self._model.graph, self._options.config(PRECISION), self._options.config(FLOAT32_NODES)
            )
            if WEBGPU in self._providers:
                prefault(constant.source for constant in self._model.graph.constants.values())
                with Phase("adapter", progress, self._timings):
                    await self._open_device()
            if self._half is not None:
                if self._live is None:
                    self._warnings.append(f"precision 'float16' has no effect: the session runs on {CPU}, in float32")
                await arrived([source, *files.values()])  # weights are looked at before anything is planned
            try:
                cancelled()
                if self._live is not None:
                    with Phase("shaders", progress, self._timings):
                        live = self._live
                        await when_there(lambda: live.use(lambda program: self._prepare(program, progress)))
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
        disabled = disabled_names(config("pyruntime.disable"))
        if self._options.use_deterministic_compute:
            disabled |= {"fallback_kernels"}
        refuse = config("session.disable_cpu_ep_fallback") == "1"
        optimize = self._options.graph_optimization_level != GraphOptimizationLevel.ORT_DISABLE_ALL
        sanitize = config("pyruntime.sanitize") == "1"
        changes = {"rates": given_rates(config(ENTRY, "auto")), "half": self._half}
        changes = {name: value for name, value in changes.items() if value is not None}

        stored = self._stored_plans(disabled, optimize, config("pyruntime.kv_cache_bits")) if not sanitize else None
        open_device = partial(device, self._provider_options[WEBGPU])
        try:  # the device opens in a thread: all that does not need it comes first
            gpu = await open_device()
        except EPFail as error:
            if CPU not in self._providers:
                raise
            self._warnings.append(f"{error}; the model runs on {CPU}")
            self._providers = [p for p in self._providers if p != WEBGPU]
            self._provider_options.pop(WEBGPU, None)
            return
        planned = partial(
            Program,
            self._model.graph,
            refuse_host=refuse,
            disabled=disabled,
            optimize=optimize,
            limits=self._limits,
            sanitize=sanitize,
            changes=changes,
        )

        def make(gpu: Device) -> Program:
            program = planned(gpu)
            program.use_stored(stored)
            return program

        program = make(gpu)
        program.cache.limits.check_weights(_weight_bytes(self._model.graph, self._half is not None))
        self._live = LiveProgram(program, open_device, make, self._warnings.append)
        self._free_live = weakref.finalize(self, self._live.release)
        self._free_live.atexit = False

    def _stored_plans(self, *options: Hashable) -> StoredPlans | None:
        """The plans of earlier processes, for a model as its file has it; None where none are stored."""
        if not _stores_plans() or self._options.initializers or self._source is None:
            return None
        from pyruntime.session.aot.plan_store import PlanStore, identity

        return PlanStore.of(
            self._model.graph, identity(self._path or self._source, self._external), self._source, options
        )

    def _leave_gpu(self) -> None:
        """Free what is on the GPU, at once or when the last run has left, and hold it no longer."""
        if self._live is not None:
            self._live = None
            self._free_live()

    def release(self) -> None:
        """Free everything of the session, on the GPU too; its inputs, outputs and metadata remain known.

        Running afterwards raises Fail. A session that is deleted is released.
        """
        self._released = True
        self._leave_gpu()
        self._files = {}
        self._source = None
        graph = self._model.graph
        kept = Graph(graph.name, graph.inputs, graph.outputs, overridable=graph.overridable)
        self._model = replace(self._model, graph=kept)

    async def _prepare(self, program: Program, progress: Progress) -> None:
        """Plan and compile now where the declared shapes are complete, or runs are expected: the first run then has
        nothing to wait for. What logits are expected is told first, so that what chooses by them is made meanwhile."""
        types: dict[str, TensorType] = {}
        for value in self._model.graph.inputs:
            kind = self._resolved(value)
            if kind is None:
                if expects := self._options.config("pyruntime.expects"):
                    runs = expected_runs(self._model.graph, expects)
                    if logits := expected_logits(self._model.graph, runs):
                        progress({"phase": "expected", "logits": logits})
                    await program.expect(runs)
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
        for name, value in self._options.initializers.items():
            own = self._model.graph.constants.get(name)
            if own is None:
                raise InvalidArgument(f"add_initializer: the model has no initializer '{name}'")
            array = value.numpy() if hasattr(value, "numpy") else from_page(value, own.type.dtype, name)
            made = Constant.from_array(array, own.type.dtype)
            if made.type.shape != own.type.shape:
                raise InvalidArgument(f"add_initializer: '{name}' is {own.type}, got {made.type}")
            self._model.graph.constants[name] = made


def _stores_plans() -> bool:
    return not in_browser and bool(os.environ.get("PYRUNTIME_CACHE"))


def _created(cls: Any, model: str | bytes, options: SessionOptions, providers: list[Any]) -> Any:
    return cls(model, options, providers)


async def _read(source: ByteSource, limits: Limits) -> ModelRecord:
    """The model; as its bytes come, where they come in their order."""
    reading = reading_model(source, limits)
    while True:
        try:
            while source.there_now(end := next(reading)) >= end:
                pass
        except StopIteration as done:
            record: ModelRecord = done.value
            return record
        assert isinstance(source, ArrivingSource), "of others all is there"
        await source.there(end)


async def _imported(
    record: ModelRecord, files: Mapping[str, ByteSource], folder: str | None, limits: Limits
) -> ImportedModel:
    return import_model(record, files, folder, limits)
