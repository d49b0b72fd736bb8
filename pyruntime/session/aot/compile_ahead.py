"""Models compiled ahead of time, for stated limits and without a GPU: what `python -m pyruntime compile` does."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from pyruntime.compiler.compile import Request, sources_of
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.refusals import KNOWN_LIMIT, TooEarly
from pyruntime.compiler.saved import ExternalFile, ModelFile, Saved, SavedProgram, tree_hash, write
from pyruntime.device.null import NullDevice
from pyruntime.errors import EPFail, InvalidArgument, OrtError
from pyruntime.ir import DeclaredTensor, DeclaredType, Graph, HostTensor, TensorType, ValueType
from pyruntime.ir.encoding import encode
from pyruntime.kernels import Target
from pyruntime.onnx.formats.external import ExternalDirectory
from pyruntime.onnx.formats.source import ByteSource, open_file
from pyruntime.onnx.importer.extents import extents
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.onnx.records import ModelRecord
from pyruntime.ops.host import HostValue
from pyruntime.session.aot.scalar_inputs import in_shape_1, is_in_shape_1, joined, scalar_inputs
from pyruntime.session.aot.stated_inputs import stated_type, stated_value
from pyruntime.session.limits import ResourceLimits
from pyruntime.session.metadata import NodeArg
from pyruntime.session.precision import half_precision
from pyruntime.session.run.dynamic_dimensions import sizes_data
from pyruntime.session.run.expected_runs import text_runs
from pyruntime.session.run.plan_cache import find_stage
from pyruntime.session.run.program import Program
from pyruntime.session.run.stages import Stage
from pyruntime.session.web_api import value_metadata

__all__ = ["compile_model", "package_version", "plan_options", "saved_program"]


def compile_model(
    path: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[tuple[int, ...]]] | None = None,
    target: Target | None = None,
    inside: bool = False,
    values: Mapping[str, Sequence[Any]] | None = None,
    precision: str = "",
    float32_nodes: Sequence[str] = (),
    text: Callable[[Graph], dict[str, Any] | None] | None = None,
) -> bytes:
    """Compile a model file into a plan for web/plans/plan.js; equal files, shapes and targets give equal bytes.

    Args:
        shapes: of inputs. One that has several leaves the dimensions open in which these differ, from 2 on: sizes 0 and
            1 get separate plans where they are among them. Symbolic dimensions of inputs without one are 1.
        target: what it is compiled for; default: what every device of WebGPU has.
        inside: put the weights into the plan. Else they stay in the model's file and in its external data files.
        values: of inputs that decide what is computed (the condition of an If, a shape): numbers or nested lists.
            Several of one input go with the shapes of the same place. The plan is for these values, and no others, of
            the inputs it depends on.
        precision, float32_nodes: see `pyruntime.session.precision`.
        text: compile the runs of a decoder of text (`text_runs`) instead of `shapes`; returns the facts of its graph
            that the plan states (`Saved.decoder`).

    Raises:
        EPFail: nodes run on the host, or wait for values; names them.
        InvalidArgument: shapes or values that do not fit the inputs; `text`, and the model is no such decoder.
    """
    source = open_file(path)
    record = read_model(source)
    files = _external_files(record, path)
    graph = import_model(record, files, str(path)).graph
    half = half_precision(graph, precision, json.dumps(list(float32_nodes)))
    target = replace(target or Target(), half=half)
    stated = text_runs(graph) if text else _rounds(graph, shapes or {}, values or {})
    scalars = [] if text else scalar_inputs(graph, shapes or {})
    stages = _planned(graph, stated, scalars, target)
    computed: dict[Hashable, tuple[int, Plan]] = {}
    programs = [saved_program(stage, computed) for stage in stages]
    saved = Saved(
        package_version(),
        ModelFile(source.size, tree_hash(source, source.size)),
        {"limits": asdict(target.limits), "features": sorted(target.features), "vendor": target.vendor},
        plan_options(target),
        [value_metadata(NodeArg.of(v)) for v in graph.inputs],
        [value_metadata(NodeArg.of(v)) for v in graph.outputs],
        joined(programs, scalars, [source, *files.values()]),
        [],
        inside,
        decoder=text(graph) if text else None,
    )
    saved.computed = [plan for _, plan in computed.values()]
    if not inside:
        saved.files = [ExternalFile(name, file.size, tree_hash(file, file.size)) for name, file in files.items()]
    return write(saved, source, [] if inside else list(files.values()))


def _external_files(record: ModelRecord, path: str | os.PathLike[str]) -> dict[str, ByteSource]:
    """The files that a model keeps weights in, by the names it gives them; what is missing is told with its tensor."""
    folder, found = ExternalDirectory.of(path), dict[str, ByteSource]()
    for name in sorted(extents(record)):
        with suppress(OrtError):
            found[name] = folder.resolve(name)
    return found


def plan_options(target: Target) -> dict[str, Any]:
    """Return the session's options that a plan follows from, those that are not their defaults."""
    if target.half is None:
        return {}
    return {"precision": "float16", "float32_nodes": sorted({*target.half.float32_nodes, *target.half.in_bodies})}


def saved_program(stage: Stage, computed: dict[Hashable, tuple[int, Plan]]) -> SavedProgram:
    """Return a stage as the program of a plan file.

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


def _planned(graph: Graph, rounds: Sequence[Request], scalars: Sequence[str], target: Target) -> list[Stage]:
    """Return stages that together run all of `rounds`, those that leave sizes open last.

    Before each kind are those of the runs that bring `scalars` in shape [1], where these can be planned.
    """
    program = Program(graph, NullDevice(target), True, limits=ResourceLimits(cached_plans=4 * len(rounds)))
    for one in rounds:
        program.dynamic_dimensions.observe(one.arrived)

    def stage_of(one: Request) -> None:
        if find_stage(program.roots, one.signature, sources_of(one.values)) is None:
            _check(graph, _prepared(program, one), one.values)

    # The largest first: the ranges of its plan include the others.
    largest_first = sorted(rounds, key=lambda r: -sum(t.size for t in _types(r).values()))
    for one in largest_first:
        stage_of(one)
    _refuse_closed(program, rounds)
    stages = list(program.roots)
    for one in largest_first if scalars else ():
        with suppress(OrtError):  # such a run says in Python what is wrong
            stage_of(in_shape_1(one, scalars))
            stages += [stage for stage in program.roots if stage not in stages]
    return sorted(stages, key=lambda stage: (stage.sizes is not None, not is_in_shape_1(stage, scalars)))


def _types(one: Request) -> dict[str, TensorType]:
    """The types of a run's inputs: of stated shapes, they are tensors."""
    return {name: kind for name, kind in one.arrived.items() if isinstance(kind, TensorType)}


def _rounds(
    graph: Graph, shapes: Mapping[str, Sequence[tuple[int, ...]]], values: Mapping[str, Sequence[Any]]
) -> list[Request]:
    """The runs that are stated, one set of shapes and values after another."""
    for option, stated in (("--shape", shapes), ("--value", values)):
        unknown = sorted(stated.keys() - {v.name for v in graph.inputs})
        if unknown:
            known = [v.name for v in graph.inputs]
            raise InvalidArgument(f"{option}: the model has no input {unknown}; its inputs: {known}")
    rounds: list[Request] = []
    outputs = [v.name for v in graph.outputs]
    for number in range(max((len(given) for given in (*shapes.values(), *values.values())), default=1)):
        types, known_values = dict[str, TensorType](), dict[str, HostTensor]()
        for value in graph.inputs:
            given, shape = values.get(value.name), shapes.get(value.name, ())
            if given:
                stated_shape = shape[min(number, len(shape) - 1)] if shape else None
                tensor = stated_value(value, given[min(number, len(given) - 1)], stated_shape)
                known_values[value.name] = tensor
                types[value.name] = tensor.type
            else:
                types[value.name] = stated_type(value, shape, number)
        rounds.append(Request(types, outputs, values=known_values))
    return rounds


def _prepared(program: Program, wanted: Request) -> Stage:
    """Compile the stage that serves such runs."""
    from concurrent.futures import ThreadPoolExecutor  # pages import this module, and use other parts of it

    try:
        with ThreadPoolExecutor(1) as thread:  # this one may have a loop that runs
            work = thread.submit(
                lambda: asyncio.run(
                    program.prepare(_types(wanted), wanted.outputs, True, wanted.values, wanted.on_device, wanted.free)
                )
            )
            stage = work.result()
    except TooEarly as error:
        raise EPFail(
            f"planning waits for values that only a run brings: {error}; give the values of these inputs (--value), or "
            "create the session without a plan"
        ) from None
    except EPFail as error:
        reasons = str(error).partition("would run on the host: ")[2] or str(error)
        raise EPFail(
            f"the model needs Python to run, not just a plan: {reasons}; create the session without a plan, or change "
            "the model so that these nodes have kernels"
        ) from None
    assert stage is not None
    return stage


def _check(graph: Graph, stage: Stage, values: Mapping[str, HostValue]) -> None:
    """Raises EPFail where the plan needs more than what is stated, RuntimeException where no run of it is right."""
    if stage.boundary is not None:
        nodes = ", ".join(n.label for n in stage.compiled.rest[:10])
        inputs = _origins(graph, stage.boundary.needed) if stage.boundary.node is None else []
        step = f"give the values of {inputs} (--value), or " if inputs else ""
        raise EPFail(
            f"planning waits for values that only a run brings: {nodes}; {step}create the session without a plan"
        )
    for bounded in stage.compiled.plan.bounds:
        bounded.check(values, ())
    looked = sorted(stage.compiled.guards.read.keys() - values.keys())
    if looked:
        raise EPFail(f"the plan depends on the values of {looked}; give them, as in --value {looked[0]}=...")


def _origins(graph: Graph, names: Sequence[str]) -> list[str]:
    """The inputs that these values are computed from, where all of them are small enough to be stated."""
    wanted = set(names)
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
    types = {v.name: v.type for v in graph.inputs if v.name in wanted}
    return sorted(types) if all(map(_is_small, types.values())) else []


def _is_small(kind: DeclaredType | None) -> bool:
    """Return whether a value of this type may be stated: its static dimensions have at most KNOWN_LIMIT elements."""
    if not isinstance(kind, DeclaredTensor) or kind.shape is None:
        return False
    return math.prod(d for d in kind.shape if isinstance(d, int)) <= KNOWN_LIMIT


def _refuse_closed(program: Program, rounds: Sequence[Request]) -> None:
    """Raises EPFail where sizes that differ could not be dynamic. Sizes 0 and 1 are other computations, with separate
    plans."""
    stated = [program.dynamic_dimensions.sizes_of(one.arrived) for one in rounds]
    several = {key: {sizes[key] for sizes in stated if sizes[key] > 1} for key in stated[0]}
    opened = {name for stage in program.roots if stage.sizes for name in stage.sizes.names}
    reasons = program.dynamic_dimensions.reasons
    closed = [key for key, sizes in several.items() if len(sizes) > 1 and (key not in opened or key in reasons)]
    if closed:
        told = "; ".join(f"{key}: {reasons.get(key, 'no plan of the model leaves it open')}" for key in closed)
        raise EPFail(
            f"the model needs its sizes when it is planned ({told}); give one shape, and compile one plan each"
        )


def package_version() -> str:
    """Return pyruntime's version, which plan files state."""
    from pyruntime import __version__

    return __version__
