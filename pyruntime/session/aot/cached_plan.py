"""What a session has planned, as a file for the next visit: the format of compiled models (`compiler/saved.py`)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pyruntime.compiler.plan import GpuSegment, Plan, Transfer, Unread
from pyruntime.compiler.saved import ExternalFile, ModelFile, Saved, SavedProgram, read, write
from pyruntime.errors import InvalidArgument
from pyruntime.ir import RawSource
from pyruntime.session.aot.compile_ahead import package_version, plan_options, saved_program
from pyruntime.session.run.program import Program
from pyruntime.session.run.stages import Stage

__all__ = ["INSIDE", "PROGRAMS", "bytes_inside", "cached_plan_file", "is_whole"]

PROGRAMS = 8
"""Programs in one file at most: the ones used last."""

INSIDE = 8 << 20
"""Bytes of constants that are not in the model's files, above which nothing is kept."""


READ = 1 << 10
"""Bytes of an input that a plan is for, above which it is not kept."""


def cached_plan_file(
    program: Program,
    source: RawSource,
    model: ModelFile,
    inputs: Sequence[Mapping[str, Any]],
    outputs: Sequence[Mapping[str, Any]],
    before: bytes | None = None,
    files: Mapping[ExternalFile, RawSource] | None = None,
    decoder: Mapping[str, Any] | None = None,
) -> bytes | None:
    """Write the plans of `program` that are whole runs on the device as a file; None where there are none.

    Args:
        source: the model's bytes, which constants are read from. model: their number and hash.
        inputs, outputs: `ValueMetadata` of web/pyruntime.d.ts.
        before: the file of an earlier session; what it has for other inputs is kept, too.
        files: those that the model keeps weights in.
        decoder: `Saved.decoder`.
    """
    files = files or {}
    sources = [source, *files.values()]
    computed: dict[Hashable, tuple[int, Plan]] = {}
    made = [saved_program(s, computed) for s in program.roots if is_whole(s)]
    made = [p for p in made if bytes_inside(p, sources) <= INSIDE]
    if not made:
        return None
    target = program.device.target
    saved = Saved(
        package_version(),
        model,
        {"limits": asdict(target.limits), "features": sorted(target.features), "vendor": target.vendor},
        plan_options(program.target),
        [dict(v) for v in inputs],
        [dict(v) for v in outputs],
        made,
        [plan for _, plan in computed.values()],
        files=list(files),
        decoder=dict(decoder) if decoder else None,
    )
    if before is not None:
        _add_earlier(saved, before, sources)
    saved.programs.sort(key=lambda p: not p.values)  # those for one value of an input go first
    saved.programs = saved.programs[-PROGRAMS:]
    return write(saved, source, sources[1:])


def _add_earlier(saved: Saved, before: bytes, sources: Sequence[RawSource]) -> None:
    """Put the programs of an earlier file, those for other inputs, in front."""
    try:
        earlier = read(before, sources[0], sources[1:])
    except InvalidArgument:
        return
    if any(
        getattr(earlier, what) != getattr(saved, what) for what in ("package", "model", "target", "options", "files")
    ):
        return
    known = {_inputs(p) for p in saved.programs}
    first = len(saved.computed)
    saved.computed += earlier.computed
    others = [p for p in earlier.programs if _inputs(p) not in known]
    for program in others:
        program.computed = {name: first + number for name, number in program.computed.items()}
    saved.programs[:0] = others


def is_whole(stage: Stage) -> bool:
    """Return whether a stage can be a cached plan: a run of its own that reads little on the host."""
    (_, _, on_device), compiled = stage.signature, stage.compiled
    small = all(map(_is_small, compiled.guards.read.values()))
    return small and not compiled.plan.host_values and stage.is_run and on_device <= stage.device_tensors


def _is_small(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object and value.nbytes <= READ


def bytes_inside(program: SavedProgram, sources: Sequence[RawSource]) -> int:
    """Return the bytes of a program's constants that are in none of these files."""
    external = {id(source) for source in sources}
    return sum(c.nbytes for c in program.plan.constants if id(c.source) not in external)


def _inputs(program: SavedProgram) -> Hashable:
    """Return the input types that a program is for."""
    segment = program.plan.steps[0]
    assert isinstance(segment, GpuSegment)
    ranges = tuple(map(tuple, program.sizes["ranges"])) if program.sizes else ()
    plan, external = program.plan, {t.name: t for t in program.plan.external}
    fed: list[Transfer | Unread] = [*segment.uploads, *plan.unread, *(external[n] for n in program.inputs)]
    stay = *program.outputs, *(k.name for k in plan.kept)
    types = tuple((t.name, t.type.dtype, t.type.shape, t.scaled) for t in fed)
    read = tuple(sorted(program.values.items()))
    return types, ranges, tuple(program.inputs), tuple(sorted(stay)), tuple(t.name for t in segment.downloads), read
