"""Commands that show models and their plans, for a device that need not be present."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pyruntime.cli.sessions import dims_of, feeds_of, half_of, session_of, type_of
from pyruntime.compiler.compile import Compiler, Request
from pyruntime.device.null import NullDevice
from pyruntime.errors import InvalidArgument, OrtError
from pyruntime.ir import TypedGraph
from pyruntime.passes.listing import listing
from pyruntime.passes.pipeline import PassRun
from pyruntime.session import InferenceSession
from pyruntime.session.api.feeds import from_user
from pyruntime.session.base import Internals
from pyruntime.session.inspect.explanation import KernelUse, kernels_of
from pyruntime.session.inspect.memory_plan import MemoryPlan
from pyruntime.session.markup import bytes_text, text_table
from pyruntime.session.run.program import Program, Stage
from pyruntime.target.named import read_target

__all__ = ["inspect", "ops", "passes", "plan", "shaders"]


def _planned(arguments: argparse.Namespace) -> tuple[InferenceSession, Stage]:
    """Return the session and the first stage of its plan, compiled on a recording device.

    Where planning reads values of inputs, they are the inputs of the command `run`.
    """
    session, dims = session_of(arguments), dims_of(arguments)
    graph = Internals(session).model.graph
    names = [v.name for v in graph.outputs]
    program = Program(graph, NullDevice(replace(read_target(arguments.target), half=half_of(arguments, graph))))
    stage = asyncio.run(program.prepare({v.name: type_of(v, dims) for v in graph.inputs}, names))
    if stage is None:
        given = feeds_of(session, arguments)
        feeds = {v.name: from_user(given[v.name], v, {}) for v in graph.inputs}
        try:
            asyncio.run(program.run(feeds, names))
        except OrtError:  # a device that returns zeros may not suit the next stage
            if not program.roots:
                raise
        stage = program.roots[-1]
    return session, stage


def inspect(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Show inputs, outputs, operators and parameters."""
    session = session_of(arguments)
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


def plan(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Show the placement of nodes, dispatches and memory."""
    session, stage = _planned(arguments)
    plan, nodes = stage.executable.plan, len(Internals(session).model.graph.nodes)
    memory = MemoryPlan.planned((plan.memory,))
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
        f"planned for the target {arguments.target}, not for this machine: nothing has run",
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


def passes(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Show what each graph pass changes."""
    graph, dims = Internals(session_of(arguments)).model.graph, dims_of(arguments)
    folder, runs = Path(arguments.dump) if arguments.dump else None, list[PassRun]()

    def observe(run: PassRun, now: TypedGraph) -> None:
        if folder is not None and (run.changed or not runs):
            (folder / f"{len(runs):02}-{run.name}.txt").write_text(listing(now))
        runs.append(run)

    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        target = replace(read_target(arguments.target), half=half_of(arguments, graph))
        compiler = Compiler(graph, target, observe=observe)
        compiler.compile(Request({v.name: type_of(v, dims) for v in graph.inputs}, [v.name for v in graph.outputs]))
    except OSError as error:
        raise InvalidArgument(f"--dump {folder}: {error}") from None
    rows = [(r.name, "yes" if r.changed else "", r.nodes, f"{1000 * r.seconds:.2f}") for r in runs]
    return [asdict(r) for r in runs], text_table(("pass", "changed", "nodes", "ms"), rows)


def shaders(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Print the WGSL of the kernels."""
    _, stage = _planned(arguments)
    found: list[KernelUse] = [
        k for k in kernels_of([stage.executable.plan]) if not arguments.kernel or arguments.kernel in k.name
    ]
    data = [{"name": k.name, "dispatches": k.count, "nodes": k.nodes, "wgsl": k.wgsl} for k in found]
    text = "\n".join(f"// ---- {k.name}: {k.count} dispatches, for {', '.join(k.nodes[:4])}\n{k.wgsl}" for k in found)
    return data, text


def ops(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Show where operators run."""
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
