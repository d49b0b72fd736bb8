"""Check exported models natively: python -m tools.zoo.check [--source S] [NAME ...].

For the inputs of the export and, with dynamic axes, for those of a second size, onnxruntime's CPU provider gives the
reference. The NumPy interpreter is compared with it; plans are made for a GPU and checked by the verifier. Writes
NAME.result.json and NAME.wanted.npz next to the model.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, Graph, HostTensor, TensorType, ValueType
from pyruntime.kernels import Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.interpreter import interpret
from pyruntime.session.run.program import Program, Run
from pyruntime.session.run.stages import Stage
from pyruntime.target.named import read_target
from tests.oracle import SECOND, saturates
from tools.zoo.compare import complaint
from tools.zoo.definitions import Definition, arguments, definitions

__all__ = [
    "GPU",
    "Feeds",
    "check",
    "graph_of",
    "host",
    "inputs_of",
    "planned",
    "reference",
    "result_path",
    "session_of",
]

Feeds: TypeAlias = dict[str, np.ndarray[Any, Any]]

GPU = replace(read_target("nvidia"), features=frozenset({"subgroups", "shader-f16"}))
"""A desktop GPU."""


def result_path(definition: Definition) -> Path:
    """Return the file of a model's results."""
    return definition.path.with_suffix(".result.json")


def inputs_of(npz: Path) -> list[Feeds]:
    """Return the feeds of each run."""
    runs: dict[str, Feeds] = {}
    with np.load(npz) as arrays:
        for key in arrays.files:
            run, name = key.split("/", 1)
            runs.setdefault(run, {})[name] = arrays[key]
    return [runs[key] for key in sorted(runs)]


def session_of(model: Path | bytes, optimise: bool = True) -> Any:
    """Create an onnxruntime session for a file or its bytes, whose sums of 8-bit products are exact.

    On processors without VNNI products of uint8 and int8 saturate, unless an optimization makes int8 weights uint8:
    files with such products are optimised there in any case.
    """
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not optimise:
        exact = saturates() and multiplies_bytes(model)
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if exact else levels.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def multiplies_bytes(model: Path | bytes) -> bool:
    """Return whether a model in ONNX's format has products of 8-bit integers; False for other formats."""
    if isinstance(model, Path) and model.suffix != ".onnx":
        return False
    read = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    return any(node.op_type in SECOND for node in read.graph.node)


def fits(session: Any, feeds: Feeds) -> bool:
    """Return whether the model's declared inputs accept these shapes."""
    for given in session.get_inputs():
        shape = feeds[given.name].shape
        if any(isinstance(d, int) and d != n for d, n in zip(given.shape, shape, strict=True)):
            return False
    return True


def reference(model: bytes, runs: Sequence[Feeds]) -> tuple[list[Feeds], list[list[Any]], list[str]]:
    """Run onnxruntime; return the feeds that it accepts, the outputs for each, and their names.

    Raises:
        Exception: it cannot run the model with the inputs of the export.
    """
    session = session_of(model)
    declared = [i.name for i in session.get_inputs()]
    taken: list[Feeds] = []
    wanted: list[list[Any]] = []
    for number, run in enumerate(runs):
        feeds = {n: run[n] for n in declared}
        if number and not fits(session, feeds):
            continue
        try:
            outputs = session.run(None, feeds)
        except Exception:  # boundary: onnxruntime refuses it
            if number:  # dynamic axes may be fixed after all, by a Reshape to a constant for instance
                continue
            raise
        taken.append(feeds)
        wanted.append(outputs)
    return taken, wanted, [o.name for o in session.get_outputs()]


def host(array: np.ndarray[Any, Any]) -> HostTensor:
    """Convert an array of a NumPy type to a tensor."""
    return HostTensor.of(array, DType.from_numpy(array.dtype))


def graph_of(model: bytes | Path) -> Graph:
    """Import a model; external data is in its folder."""
    folder = model if isinstance(model, Path) else None
    return import_model(read_model(model), folder=folder).graph


def native(model: bytes, runs: Sequence[Feeds], wanted: Sequence[list[Any]], names: Sequence[str]) -> str:
    """Run the interpreter; return its difference to `wanted`, or ''."""
    graph = graph_of(model)
    for feeds, theirs in zip(runs, wanted, strict=True):
        made = interpret(graph, {n: host(x).known(n) for n, x in feeds.items()})
        if wrong := complaint([made[n].value() for n in names], theirs, names):
            return f"{_shapes(feeds)}: {wrong}"
    return ""


class Guided(Program):
    """A program on the null device whose stages start with NumPy's values, since the device returns zeros."""

    truth: Mapping[str, ValueType]

    async def _run_stage(self, stage: Stage, run: Run, sizes: Sequence[int] = ()) -> None:
        await super()._run_stage(stage, run, sizes)
        for name in [n for n in run.values if n in self.truth]:
            kind = self.truth[name]
            if isinstance(kind, TensorType) and isinstance(run.values[name], HostTensor):
                run.values[name] = HostTensor.of(kind.value(), kind.dtype)


def planned(model: bytes | Path, runs: Sequence[Feeds], target: Target = GPU) -> dict[str, Any]:
    """Plan a model; return dispatches and host steps of the first plan, and whether later plans have dynamic sizes."""
    graph = graph_of(model)
    program = Guided(graph, NullDevice(target))
    every = [n for node in graph.nodes for n in node.outputs if n]
    names = [v.name for v in program.graph.outputs]
    told: dict[str, Any] = {}
    for number, feeds in enumerate(runs):
        values = {n: host(x) for n, x in feeds.items()}
        program.truth = interpret(graph, {n: host(x).known(n) for n, x in feeds.items()}, every)
        asyncio.run(program.run(dict(values), names))
        stages = _chain(program.roots[-1])
        if number == 0:
            told = _told(stages)
        else:
            told["open"] = stages[0].sizes is not None
            told["closed"] = {k: str(v)[:200] for k, v in program.dynamic_dimensions.reasons.items()}
    return told


def _chain(root: Stage) -> list[Stage]:
    chain = [root]
    while chain[-1].next:
        chain.append(chain[-1].next[-1])
    return chain


def _told(stages: Sequence[Stage]) -> dict[str, Any]:
    waits = [stage.boundary.node for stage in stages if stage.boundary is not None and stage.boundary.node]
    host = [a for stage in stages for a in stage.executable.plan.assignments if a.placement == "host"]
    return {
        "dispatches": sum(len(stage.executable.plan.commands) for stage in stages),
        "stages": len(stages),
        "host": dict(Counter(a.op_type for a in host)),
        "waits": dict(Counter(type(n.op).__name__ for n in waits)),
        "reasons": {a.op_type: a.reason for a in host},
    }


def _shapes(feeds: Mapping[str, np.ndarray[Any, Any]]) -> str:
    return ", ".join(f"{n}{list(x.shape)}" for n, x in feeds.items())


def check(definition: Definition) -> dict[str, Any]:
    """Return all results for an exported model."""
    model = definition.path.read_bytes()
    result: dict[str, Any] = {"onnxruntime": "", "native": "", "plan": "", "nodes": 0}
    try:
        runs, wanted, names = reference(model, inputs_of(definition.path.with_suffix(".npz")))
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        return {**result, "onnxruntime": f"{type(error).__name__}: {error}"[:500]}
    arrays = {f"{i}/{n}": y for i, outputs in enumerate(wanted) for n, y in zip(names, outputs, strict=True)}
    np.savez(definition.path.with_suffix(".wanted.npz"), **arrays)
    result["runs"] = len(runs)
    result["constant"] = [n for n, y in zip(names, wanted[0], strict=True) if y.size > 1 and np.ptp(y * 1.0) == 0]
    began = time.monotonic()
    try:
        result["native"] = native(model, runs, wanted, names)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        result["native"] = f"{type(error).__name__}: {error}"[:800]
    result["native_seconds"] = round(time.monotonic() - began, 1)
    began = time.monotonic()
    try:
        result |= planned(model, runs)
    except Exception as error:  # noqa: BLE001  # boundary: reported in the table
        result["plan"] = f"{type(error).__name__}: {error}"[:800]
    result["plan_seconds"] = round(time.monotonic() - began, 1)
    return result


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--again", action="store_true", help="also what was checked before")
    args = parser.parse_args()
    os.environ["PYRUNTIME_VERIFY"] = "1"
    warnings.simplefilter("ignore")
    for definition in definitions(args.source, args.names):
        done = result_path(definition)
        if not definition.path.with_suffix(".npz").is_file() or not definition.path.is_file():
            continue
        if done.is_file() and not args.again and done.stat().st_mtime > definition.path.stat().st_mtime:
            continue
        found = check(definition)
        done.write_text(json.dumps(found))
        print(f"{definition.source} {definition.name}: {line(found)}", flush=True)


def line(found: Mapping[str, Any]) -> str:
    """Format a result as one line."""
    wrong = [f"{key}: {found[key]}" for key in ("onnxruntime", "native", "plan") if found[key]]
    if wrong:
        return "; ".join(wrong)
    state = f"{found.get('dispatches')} dispatches, {found['native_seconds']} + {found['plan_seconds']} s"
    for key in ("host", "waits", "constant"):
        state += f", {key} {found[key]}" if found.get(key) else ""
    return state + ("" if found.get("open") or found["runs"] == 1 else f", closed {found.get('closed')}")


if __name__ == "__main__":
    main()
