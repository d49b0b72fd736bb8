"""The command line: `python -m pyruntime inspect | plan | passes | shaders | ops | run | bench | compile MODEL`.

Plans are made for a device of WebGPU's default limits, so nothing here needs a GPU. `run` and `bench` compute
with NumPy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.compiler.compile import Compiler, Request
from pyruntime.device.null import NullDevice
from pyruntime.errors import InvalidArgument, NoSuchFile, OrtError
from pyruntime.ir import DeclaredTensor, DType, TensorType, TypedGraph, ValueInfo
from pyruntime.passes.listing import listing
from pyruntime.passes.pipeline import PassRun
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.aot.command_line import add_arguments, compile_files
from pyruntime.session.api.feeds import from_user
from pyruntime.session.base import Internals
from pyruntime.session.inspect.explanation import KernelUse, kernels_of
from pyruntime.session.inspect.memory_plan import MemoryPlan
from pyruntime.session.markup import bytes_text, text_table
from pyruntime.session.run.program import Program, Stage

__all__ = ["main"]


def main(argv: Sequence[str]) -> int:
    """Run a command; 0 where it succeeded, 1 with a message on stderr where it did not."""
    arguments = _parser().parse_args(argv)
    try:
        data, text = _COMMANDS[arguments.command](arguments)
        print(json.dumps(data, indent=2, default=_plain) if arguments.json else text)
    except OrtError as error:
        print(f"pyruntime: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyruntime", description="Look at ONNX models, and run them.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("inspect", "inputs, outputs, operators, parameters"),
        ("plan", "placement of each node, dispatches, memory"),
        ("passes", "what each graph pass changes, and how long it takes"),
        ("shaders", "the WGSL of every kernel"),
        ("ops", "which operators run on the GPU, on the host, or not at all"),
        ("run", "run once and print the outputs"),
        ("bench", "time runs, by operator"),
        ("compile", "write a plan that web pages run without Python"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        more = (
            {"nargs": "+", "help": "paths of .onnx files"} if name == "compile" else {"help": "path of an .onnx file"}
        )
        command.add_argument("model", metavar="MODEL", **more)  # type: ignore[arg-type]
        command.add_argument("--json", action="store_true", help="JSON instead of text")
        if name == "compile":
            add_arguments(command)
        elif name != "inspect":
            command.add_argument(
                "--dim",
                action="append",
                default=[],
                metavar="NAME=SIZE",
                help="size of a symbolic dimension (default 1)",
            )
        if name in ("run", "bench"):
            command.add_argument(
                "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input (default: random)"
            )
        if name == "passes":
            command.add_argument("--dump", metavar="FOLDER", help="write the graph after each pass that changes it")
        if name == "run":
            command.add_argument("--save", metavar="FILE.npz", help="write the outputs")
        if name == "bench":
            command.add_argument("--runs", type=int, default=10)
        if name == "shaders":
            command.add_argument("--kernel", metavar="NAME", help="only kernels whose name contains this")
    return parser


def _session(arguments: argparse.Namespace) -> InferenceSession:
    return InferenceSession(arguments.model, SessionOptions())


def _dims(arguments: argparse.Namespace) -> dict[str, int]:
    pairs = [text.partition("=") for text in arguments.dim]
    wrong = [name for name, _, size in pairs if not size.isdecimal()]
    if wrong:
        raise InvalidArgument(f"--dim: expected NAME=SIZE, got {wrong[0]!r}")
    return {name: int(size) for name, _, size in pairs}


def _type(value: ValueInfo, dims: dict[str, int]) -> TensorType:
    kind = value.type
    if not isinstance(kind, DeclaredTensor) or kind.shape is None:
        raise InvalidArgument(f"input '{value.name}' has no declared shape; run it from Python")
    return TensorType(kind.dtype, tuple(d if isinstance(d, int) else dims.get(str(d), 1) for d in kind.shape))


def _planned(arguments: argparse.Namespace) -> tuple[InferenceSession, Stage]:
    """The session and the first stage of its plan, made on a device that records.

    Where planning looks at the values of inputs, they are what `run` would feed.
    """
    session, dims = _session(arguments), _dims(arguments)
    graph = Internals(session).model.graph
    names = [v.name for v in graph.outputs]
    program = Program(graph, NullDevice())
    stage = asyncio.run(program.prepare({v.name: _type(v, dims) for v in graph.inputs}, names))
    if stage is None:
        given = _feeds(session, arguments)
        feeds = {v.name: from_user(given[v.name], v, {}) for v in graph.inputs}
        try:
            asyncio.run(program.run(feeds, names))
        except OrtError:  # what a device that computes nothing answers need not suit the next stage
            if not program.roots:
                raise
        stage = program.roots[-1]
    return session, stage


def _inspect(arguments: argparse.Namespace) -> tuple[Any, str]:
    session = _session(arguments)
    model = Internals(session).model
    constants = model.graph.constants.values()
    nbytes = sum(c.nbytes for c in constants)
    counts: dict[str, int] = {}
    for node in model.graph.nodes:
        name = f"{node.op.domain}.{node.op.op_type}" if node.op.domain else node.op.op_type
        counts[name] = counts.get(name, 0) + 1
    data = {
        "name": model.metadata.graph_name,
        "producer": f"{model.metadata.producer_name} {model.metadata.producer_version}".strip(),
        "ir_version": model.ir_version,
        "opsets": {d or "ai.onnx": v for d, v in model.opsets.items()},
        "inputs": [{"name": a.name, "type": a.type, "shape": a.shape} for a in session.get_inputs()],
        "outputs": [{"name": a.name, "type": a.type, "shape": a.shape} for a in session.get_outputs()],
        "nodes": len(model.graph.nodes),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "parameters": sum(c.type.size for c in constants),
        "parameter_bytes": nbytes,
        "metadata": dict(model.metadata.custom),
    }
    opsets = ", ".join(f"{d} {v}" for d, v in data["opsets"].items())  # type: ignore[attr-defined]
    rows = [
        (kind, a.name, a.type, "[" + ", ".join("?" if d is None else str(d) for d in a.shape) + "]")
        for kind, values in (("input", session.get_inputs()), ("output", session.get_outputs()))
        for a in values
    ]
    text = "\n".join(
        (
            f"{data['name'] or arguments.model}  (IR {model.ir_version}, {opsets}; {data['producer'] or '?'})",
            f"{data['nodes']} nodes, {data['parameters']:,} parameters ({bytes_text(nbytes)})",
            "",
            text_table(("", "name", "type", "shape"), rows),
            "",
            text_table(("operator", "nodes"), list(data["operators"].items())),  # type: ignore[attr-defined]
        )
    )
    return data, text


def _plan(arguments: argparse.Namespace) -> tuple[Any, str]:
    session, stage = _planned(arguments)
    plan, nodes = stage.executable.plan, len(Internals(session).model.graph.nodes)
    memory = MemoryPlan((plan.memory,))
    left = [n.label for n in stage.compiled.rest]
    data = {
        "nodes": [
            {"name": a.name, "op_type": a.op_type, "placement": a.placement, "reason": a.reason, "kernels": a.kernels}
            for a in plan.assignments
        ],
        "dispatches": len(plan.commands),
        "shaders": len(plan.shaders),
        "memory": memory.to_dict(),
        "planned_later": left,
    }
    rows = [(a.name, a.op_type, a.placement, a.reason, ", ".join(dict.fromkeys(a.kernels))) for a in plan.assignments]
    parts = [
        f"{nodes} nodes, {len(plan.commands)} dispatches of {len(plan.shaders)} shaders",
        "",
        text_table(("node", "operator", "runs on", "why", "kernels"), rows, 48),
        "",
        str(memory),
    ]
    if left:
        parts.append(
            f"\n{len(left)} nodes are planned when values are known that only a run gives: {', '.join(left[:5])}"
        )
    return data, "\n".join(parts)


def _passes(arguments: argparse.Namespace) -> tuple[Any, str]:
    graph, dims = Internals(_session(arguments)).model.graph, _dims(arguments)
    folder, runs = Path(arguments.dump) if arguments.dump else None, list[PassRun]()

    def observe(run: PassRun, now: TypedGraph) -> None:
        if folder is not None and (run.changed or not runs):
            (folder / f"{len(runs):02}-{run.name}.txt").write_text(listing(now))
        runs.append(run)

    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        compiler = Compiler(graph, NullDevice().target, observe=observe)
        compiler.compile(Request({v.name: _type(v, dims) for v in graph.inputs}, [v.name for v in graph.outputs]))
    except OSError as error:
        raise InvalidArgument(f"--dump {folder}: {error}") from None
    rows = [(r.name, "yes" if r.changed else "", r.nodes, f"{1000 * r.seconds:.2f}") for r in runs]
    return [asdict(r) for r in runs], text_table(("pass", "changed", "nodes", "ms"), rows)


def _shaders(arguments: argparse.Namespace) -> tuple[Any, str]:
    _, stage = _planned(arguments)
    found: list[KernelUse] = [
        k for k in kernels_of([stage.executable.plan]) if not arguments.kernel or arguments.kernel in k.name
    ]
    data = [{"name": k.name, "dispatches": k.count, "nodes": k.nodes, "wgsl": k.wgsl} for k in found]
    text = "\n".join(f"// ---- {k.name}: {k.count} dispatches, for {', '.join(k.nodes[:4])}\n{k.wgsl}" for k in found)
    return data, text


def _ops(arguments: argparse.Namespace) -> tuple[Any, str]:
    _, stage = _planned(arguments)
    places: dict[str, dict[str, int]] = {}
    reasons: dict[str, str] = {}
    for a in stage.executable.plan.assignments:
        where = places.setdefault(a.op_type, {"gpu": 0, "host": 0, "none": 0})
        where[a.placement] += 1
        if a.placement == "host":
            reasons[a.op_type] = a.reason
    for node in stage.compiled.rest:
        places.setdefault(node.op.op_type, {"gpu": 0, "host": 0, "none": 0})
        reasons.setdefault(node.op.op_type, "planned when values are known that only a run gives")
    data = {name: {**where, "reason": reasons.get(name, "")} for name, where in sorted(places.items())}
    rows = [(n, w["gpu"], w["host"], w["none"], reasons.get(n, "")) for n, w in sorted(places.items())]
    return data, text_table(("operator", "gpu", "host", "free", "why on the host"), rows)


def _feeds(session: InferenceSession, arguments: argparse.Namespace) -> dict[str, Any]:
    """Inputs from files, the others random: the same in every run."""
    dims, random = _dims(arguments), np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for text in getattr(arguments, "input", ()):
        name, _, file = text.partition("=")
        try:
            feeds[name] = np.load(file, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise NoSuchFile(f"--input {text}: {error}") from None
    for value in Internals(session).model.graph.inputs:
        if value.name not in feeds:
            kind = _type(value, dims)
            if kind.dtype is DType.STRING:
                raise InvalidArgument(f"input '{value.name}' holds strings; give --input {value.name}=FILE.npy")
            made = random.random(kind.shape) if kind.dtype.is_float else random.integers(0, 2, kind.shape)
            feeds[value.name] = made.astype(kind.dtype.numpy)
    return feeds


def _run(arguments: argparse.Namespace) -> tuple[Any, str]:
    session = _session(arguments)
    names = [a.name for a in session.get_outputs()]
    began = time.perf_counter()
    values = session.run(names, _feeds(session, arguments))
    seconds = time.perf_counter() - began
    outputs = dict(zip(names, values, strict=True))
    if arguments.save:
        arrays: dict[str, Any] = {k: np.asarray(v) for k, v in outputs.items()}
        np.savez(arguments.save, **arrays)
    parts = []
    for name, value in outputs.items():
        kind = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        parts.append(
            f"{name}: {kind}\n{np.array2string(value, threshold=20) if isinstance(value, np.ndarray) else value}"
        )
    parts.append(f"{1000 * seconds:.3f} ms on {session.get_providers()[0]}")
    return {"outputs": outputs, "ms": 1000 * seconds, "provider": session.get_providers()[0]}, "\n\n".join(parts)


def _bench(arguments: argparse.Namespace) -> tuple[Any, str]:
    session = _session(arguments)
    profile = session.profile(_feeds(session, arguments), arguments.runs)
    return profile.to_dict(), str(profile)


def _plain(value: object) -> object:
    """What JSON lacks: arrays as `{type, shape, values}`."""
    if isinstance(value, np.ndarray):
        return {"type": str(value.dtype), "shape": list(value.shape), "values": value.ravel().tolist()}
    return value.item() if isinstance(value, np.generic) else str(value)


_COMMANDS: dict[str, Callable[[argparse.Namespace], tuple[Any, str]]] = {
    "inspect": _inspect,
    "plan": _plan,
    "passes": _passes,
    "shaders": _shaders,
    "ops": _ops,
    "run": _run,
    "bench": _bench,
    "compile": compile_files,
}
