"""Models compiled ahead of time, for stated limits and without a GPU: what `python -m pyruntime compile` does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.device.null import NullDevice
from pyruntime.errors import EPFail, InvalidArgument, OrtError
from pyruntime.ir import DeclaredTensor, Graph, TensorType, ValueInfo, ValueType
from pyruntime.ir.encoding import encode
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.external import ExternalDirectory, extents
from pyruntime.onnx.importer import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.onnx.records import ModelRecord
from pyruntime.onnx.source import ByteSource, open_file
from pyruntime.plan.plan import Plan
from pyruntime.plan.saved import ExternalFile, ModelFile, Saved, SavedProgram, tree_hash, write
from pyruntime.session.metadata import NodeArg
from pyruntime.session.openings import sizes_data
from pyruntime.session.program import Program
from pyruntime.session.refusals import TooEarly
from pyruntime.session.stages import Stage
from pyruntime.session.web_api import value_metadata

__all__ = ["compile_model", "package_version", "profiles", "read_target", "saved_program"]

_TARGETS = Path(__file__).parents[1] / "targets"


def compile_model(
    path: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
    target: Target | None = None,
    inside: bool = False,
) -> bytes:
    """The plan of a model file, as web/plans/plan.js runs it; the same file, shapes and target give the same bytes.

    Args:
        shapes: of inputs. One that has several leaves the dimensions open in which these differ; symbolic dimensions of
            inputs without one are 1.
        target: what it is compiled for; default: what every device of WebGPU has.
        inside: put the weights into the plan. Else they are where the model has them: in its file, and in those beside
            it that it names.

    Raises:
        EPFail: nodes run on the host, or wait for values; names them.
        InvalidArgument: shapes that do not fit the inputs.
    """
    target = target or Target()
    source = open_file(path)
    record = read_model(source)
    files = _files_beside(record, path)
    graph = import_model(record, files, str(path)).graph
    stage = _planned(graph, shapes or {}, target)
    computed: dict[Hashable, tuple[int, Plan]] = {}
    saved = Saved(
        package_version(),
        ModelFile(source.size, tree_hash(source, source.size)),
        {"limits": asdict(target.limits), "features": sorted(target.features), "vendor": target.vendor},
        {},
        [value_metadata(NodeArg.of(v)) for v in graph.inputs],
        [value_metadata(NodeArg.of(v)) for v in graph.outputs],
        [saved_program(stage, computed)],
        [],
        inside,
    )
    saved.computed = [plan for _, plan in computed.values()]
    if not inside:
        saved.files = [ExternalFile(name, file.size, tree_hash(file, file.size)) for name, file in files.items()]
    return write(saved, source, [] if inside else list(files.values()))


def _files_beside(record: ModelRecord, path: str | os.PathLike[str]) -> dict[str, ByteSource]:
    """The files that a model keeps weights in, by the names it gives them; what is missing is told with its tensor."""
    folder, found = ExternalDirectory.beside(path), dict[str, ByteSource]()
    for name in sorted(extents(record)):
        with suppress(OrtError):
            found[name] = folder.resolve(name)
    return found


def saved_program(stage: Stage, computed: dict[Hashable, tuple[int, Plan]]) -> SavedProgram:
    """The program of a stage.

    Args:
        computed: gets the plans of its computed constants, each with its number.
    """
    names = {c.name: computed.setdefault(c.key, (len(computed), c.plan))[0] for c in stage.compiled.prologue}
    given = dict(stage.signature[0])
    bound = [t.name for t in stage.compiled.plan.external if t.name in stage.compiled.bound]
    brought, stay = [n for n in bound if n in given], [n for n in bound if n not in given]
    read = {name: _raw(value, given[name]) for name, value in stage.compiled.guards.read.items()}
    sizes = sizes_data(stage.sizes) if stage.sizes else None
    return SavedProgram(stage.compiled.plan, sizes, names, brought, stay, read)


def _raw(value: Any, kind: ValueType) -> bytes:
    assert isinstance(kind, TensorType)
    return encode(np.asarray(value), kind.dtype).tobytes()


def read_target(text: str) -> Target:
    """The target of a profile (`profiles`), or of a JSON file: `limits` by name, `features`, `vendor`.

    Raises:
        InvalidArgument: there is no such file, or it says other things.
    """
    try:
        known = _TARGETS / f"{text}.json"
        data = json.loads((known if text in profiles() else Path(text)).read_text())
        unknown = data.keys() - {"limits", "features", "vendor", "about", "source"}
        if unknown:
            raise ValueError(f"it knows limits, features, vendor, about and source, not {sorted(unknown)}")
        limits = data.get("limits", {})
        if not all(isinstance(n, int) and n >= getattr(Limits(), name) for name, n in limits.items()):
            raise ValueError("a limit is a number, at least what WebGPU guarantees")
        return Target(Limits(**limits), frozenset(data.get("features", ())), str(data.get("vendor", "")))
    except FileNotFoundError:
        raise InvalidArgument(
            f"--target {text}: neither a file nor one of the profiles {', '.join(profiles())}"
        ) from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"--target {text}: {error}") from None


def profiles() -> list[str]:
    """Names of the targets that come with the package; 'default' is what every device of WebGPU has."""
    return sorted(path.stem for path in _TARGETS.glob("*.json"))


def _planned(graph: Graph, shapes: Mapping[str, Sequence[tuple[int, ...]]], target: Target) -> Stage:
    unknown = shapes.keys() - {v.name for v in graph.inputs}
    if unknown:
        raise InvalidArgument(f"the model has no input {sorted(unknown)}; its inputs: {[v.name for v in graph.inputs]}")
    program = Program(graph, NullDevice(target), refuse_host=True)
    rounds = max((len(given) for given in shapes.values()), default=1)
    names = [v.name for v in graph.outputs]
    every = [{v.name: _type(v, shapes.get(v.name, ()), n) for v in graph.inputs} for n in range(rounds)]
    for types in every[:-1]:
        program.openings.note(types)
    try:
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop that runs
            stage = thread.submit(lambda: asyncio.run(program.prepare(every[-1], names, strict=True))).result()
    except TooEarly as error:
        raise EPFail(
            f"planning waits for values that only a run brings: {error}; make these inputs initializers, or create the "
            "session without a plan"
        ) from None
    except EPFail as error:
        reasons = str(error).partition("would run on the host: ")[2] or str(error)
        raise EPFail(
            f"the model needs Python beside its plan: {reasons}; create the session without a plan, or change the "
            "model so that these nodes have kernels"
        ) from None
    assert stage is not None
    if stage.boundary is not None:
        nodes = ", ".join(n.label for n in stage.compiled.rest[:10])
        raise EPFail(f"planning waits for values that only a run brings: {nodes}; create the session without a plan")
    if stage.compiled.guards.read:
        raise EPFail(f"the plan depends on the values of {sorted(stage.compiled.guards.read)}; make these initializers")
    if rounds > 1 and stage.sizes is None:
        reason = "; ".join(f"{k}: {v}" for k, v in program.openings.reasons.items())
        raise EPFail(
            f"the model needs its sizes when it is planned ({reason}); give one shape, and compile one plan each"
        )
    return stage


def _type(value: ValueInfo, given: Sequence[tuple[int, ...]], number: int) -> TensorType:
    kind = value.type
    if not isinstance(kind, DeclaredTensor):
        raise EPFail(f"input '{value.name}' is no tensor: it needs Python; create the session without a plan")
    declared = kind.shape
    if given:
        shape = given[min(number, len(given) - 1)]
        fits = declared is None or (
            len(declared) == len(shape)
            and all(not isinstance(d, int) or d == s for d, s in zip(declared, shape, strict=True))
        )
        if not fits:
            raise InvalidArgument(f"--shape: input '{value.name}' is {kind}, not {list(shape)}")
        return TensorType(kind.dtype, shape)
    if declared is None:
        raise InvalidArgument(f"input '{value.name}' has no declared shape; give --shape {value.name}=...")
    return TensorType(kind.dtype, tuple(d if isinstance(d, int) else 1 for d in declared))


def package_version() -> str:
    """pyruntime's version, by which plans are known."""
    from pyruntime import __version__

    return __version__
