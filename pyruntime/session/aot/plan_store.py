"""Plans of earlier processes: files in the folder of `PYRUNTIME_CACHE`, in the format of compiled models.

A file has the plans of one model for one set of input types, on one kind of device. Its name is a hash of all that they
follow from. Only whole runs on the GPU are stored, with dynamic sizes only those without caches (their capacities are
sizes, too). What cannot be read is planned anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.compiler.compile import Compiled, Computed, Request
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.saved import ExternalFile, ModelFile, Saved, SavedProgram, read, tree_hash, write
from pyruntime.compiler.typing import Guards
from pyruntime.device.desktop import cache
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Graph, HostTensor, RawSource, Sizes, TensorType, is_dim
from pyruntime.ir.encoding import decode, encode
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.session.aot.cached_plan import INSIDE, PROGRAMS, bytes_inside, is_whole
from pyruntime.session.aot.compile_ahead import package_version, plan_options, saved_program
from pyruntime.session.run.stages import Stage
from pyruntime.target import Target

__all__ = ["PlanStore", "identity"]

_FOLDER = "plans"


def identity(origin: str | ByteSource, external: Sequence[str]) -> str:
    """Return what tells a model from others: place, size and time of its files, or a hash of its bytes.

    Args:
        external: names of the files in which the model keeps weights, in its folder.
    """
    if not isinstance(origin, str):
        return tree_hash(origin, origin.size)
    paths = [Path(origin), *(Path(origin).parent / name for name in external)]
    stats = [(str(path), path.stat()) for path in paths if path.exists()]
    return repr([(path, s.st_size, s.st_mtime_ns, s.st_ino) for path, s in stats])


class PlanStore:
    """The stored plans of a model.

    Args:
        model: see `identity`. source: its bytes.
        options: what else plans follow from.
    """

    @staticmethod
    def of(graph: Graph, model: str, source: ByteSource, options: Hashable) -> PlanStore | None:
        """Return the store for a model; None where operators are users' own code."""
        if any(getattr(node.op, "is_custom", False) for node in graph.nodes):
            return None
        return PlanStore(graph, model, source, options)

    def __init__(self, graph: Graph, model: str, source: ByteSource, options: Hashable) -> None:
        self._key = repr((package_version(), model, options))
        self._model = ModelFile(source.size, hashlib.sha256(self._key.encode()).hexdigest())
        others = {id(c.source): c.source for c in graph.constants.values() if isinstance(c.source, ByteSource)}
        others.pop(id(source), None)
        self._sources: list[RawSource] = [source, *others.values()]
        self._files = [ExternalFile(str(i), file.size, "") for i, file in enumerate(others.values())]

    def find(self, request: Request, target: Target) -> Compiled | None:
        """Return the stage for a request, where one is stored."""
        name = self._name(request, target)
        saved = self._read(name) if name else None
        for program in saved.programs if saved else ():
            if all(_raw(request, value) == raw for value, raw in program.values.items()) and _fits(request, program):
                assert saved is not None
                return _compiled(request, program, saved.computed, name)
        return None

    def store(self, request: Request, stage: Stage, target: Target) -> None:
        """Store a stage, in addition to those of the same request for other values."""
        name = self._name(request, target)
        grown = request.sizes is not None and stage.compiled.plan.kept
        if not name or grown or not is_whole(stage):
            return
        computed: dict[Hashable, tuple[int, Plan]] = {}
        program = saved_program(stage, computed)
        if bytes_inside(program, self._sources) > INSIDE:
            return
        about = {"limits": asdict(target.limits), "features": sorted(target.features), "vendor": target.vendor}
        plans = [plan for _, plan in computed.values()]
        saved = Saved(
            package_version(), self._model, about, plan_options(target), [], [], [program], plans, files=self._files
        )
        before = self._read(name)
        if before is not None and (program.values or program.sizes):
            for other in before.programs[: PROGRAMS - 1]:
                other.computed = {n: len(plans) + number for n, number in other.computed.items()}
            saved.computed += before.computed
            saved.programs += before.programs[: PROGRAMS - 1]
        cache.store(write(saved, self._sources[0], self._sources[1:]), _FOLDER, name)

    def _read(self, name: str) -> Saved | None:
        data = cache.load(_FOLDER, name)
        try:
            return read(data, self._sources[0], self._sources[1:]) if data else None
        except InvalidArgument:
            return None

    def _name(self, request: Request, target: Target) -> str:
        """The file's name; '' for requests whose plans are not stored."""
        kinds, sizes = request.arrived.items(), request.sizes
        if request.before is not None or not all(isinstance(t, TensorType) for _, t in kinds):
            return ""
        tensors = [(n, t) for n, t in kinds if isinstance(t, TensorType)]
        types = [(n, t.dtype.onnx_name, tuple([_dim(d, sizes) for d in t.shape])) for n, t in tensors]
        if any(d is None for *_, shape in types for d in shape):
            return ""
        wanted: tuple[object, ...] = types, tuple(request.outputs), sorted(request.on_device), sorted(request.free)
        if sizes is not None:
            values = sorted((n, sizes.index(size)) for n, size in sizes.values.items())
            wanted = *wanted, sizes.names, sizes.ranges, sizes.grows, values
        device = target.limits, sorted(target.features), target.vendor, sorted(target.disabled), target.rates
        key = repr((self._key, wanted, device, sorted(target.winners.items()), target.half))
        return hashlib.sha256(key.encode()).hexdigest()[:40] + ".plan"


def _dim(dim: Any, sizes: Sizes | None) -> int | str | None:
    """Return a dimension for the file's name; None where it is neither a number nor one of the sizes."""
    if type(dim) is int:
        return dim
    return f"s{sizes.index(dim)}" if sizes is not None and is_dim(dim) else None


def _fits(request: Request, program: SavedProgram) -> bool:
    """Return whether a program is for the request's dynamic sizes, which then have its guards."""
    if request.sizes is None or program.sizes is None:
        return request.sizes is None and program.sizes is None
    return len(program.sizes["ranges"]) == len(request.sizes.ranges) and request.sizes.restore(program.sizes["guards"])


def _raw(request: Request, name: str) -> bytes | None:
    """The raw_data of a value that the host knows; None where it does not."""
    value = request.values.get(name)
    if not isinstance(value, HostTensor):
        return None
    return encode(np.asarray(value.array()), value.type.dtype).tobytes()


def _compiled(request: Request, program: SavedProgram, computed: Sequence[Plan], name: str) -> Compiled:
    """A stage as `Compiler.compile` gives it, without what later stages would need."""
    guards = Guards({})
    for value, raw in program.values.items():
        kind: Any = request.arrived[value]
        guards.read[value] = decode(raw, kind.dtype, kind.shape)
    prologue = [Computed(n, (name, number), computed[number], None) for n, number in program.computed.items()]
    bound = frozenset((*program.inputs, *program.outputs))
    return Compiled(program.plan, None, prologue, request.sizes, guards, None, [], {}, set(), {}, bound)
