"""The command `compile`, which compiles plans ahead of time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pyruntime.compiler.saved import read
from pyruntime.errors import InvalidArgument
from pyruntime.generate.facts import facts_of_graph
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.session.markup import bytes_text
from pyruntime.target.named import read_target

__all__ = ["compile_arguments", "compile_files"]


def compile_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options of `compile`."""
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the plan of one MODEL (default: each next to its MODEL, with the suffix .plan)",
    )
    command.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=1,3,224,224",
        help="shape of an input; given again with other sizes, these stay open from 2 on (default: as declared, "
        "symbols are 1)",
    )
    command.add_argument(
        "--value",
        action="append",
        default=[],
        metavar="INPUT=16000",
        help="value of an input that decides what is computed: a number, true or false, numbers with commas, or JSON "
        "lists; given again, the plan is for each of them, with the shape of the same place (default: a model that "
        "needs one is refused)",
    )
    command.add_argument(
        "--text",
        action="store_true",
        help="the models are decoders of text: the plan has the runs of TextGenerator, for prompts of any length",
    )
    command.add_argument(
        "--weights",
        choices=("inside", "external"),
        default="external",
        help="where the plan's weights are: in the plan, or in the model's files",
    )


def compile_files(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Compile the models of the command line; return a summary as data and as text."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for text in arguments.shape:
        name, _, sizes = text.rpartition("=")
        parts = [part.strip() for part in sizes.split(",") if part.strip()]
        if not name or not all(part.isdecimal() for part in parts):
            raise InvalidArgument(f"--shape: expected INPUT=1,3,224,224, got {text!r}")
        shapes.setdefault(name, []).append(tuple(map(int, parts)))
    values: dict[str, list[Any]] = {}
    for text in arguments.value:
        name, value = _stated(text)
        values.setdefault(name, []).append(value)
    if arguments.output and len(arguments.model) > 1:
        raise InvalidArgument("--output names the plan of one model: leave it out, and each plan is next to its model")
    if arguments.text and (shapes or values):
        raise InvalidArgument("--text compiles the runs that text generation makes: leave out --shape and --value")
    text = facts_of_graph if arguments.text else None
    target, inside = read_target(arguments.target), arguments.weights == "inside"
    precision = arguments.precision, arguments.float32_node
    written: list[tuple[dict[str, Any], str]] = []
    for model in arguments.model:
        path = Path(arguments.output) if arguments.output else Path(model).with_suffix(".plan")
        written.append(_write_plan(path, compile_model(model, shapes, target, inside, values, *precision, text)))
    data = [about for about, _ in written]
    return data if len(data) > 1 else data[0], "\n".join(text for _, text in written)


def _write_plan(path: Path, data: bytes) -> tuple[dict[str, Any], str]:
    """Write a plan; return its summary as data and as text."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InvalidArgument(f"--output {path}: {error}") from None
    programs = read(data).programs
    commands = [len(program.plan.commands) for program in programs]
    names = sorted({name for program in programs for name in program.values})
    about = {
        "plan": str(path),
        "bytes": len(data),
        "dispatches": commands[-1],
        "programs": len(programs),
        "values": names,
    }
    told = [bytes_text(len(data)), ", ".join(map(str, commands)) + " dispatches"]
    told += [f"for the stated values of {', '.join(names)} alone"] if names else []
    return about, f"{path}: {', '.join(told)}"


def _stated(text: str) -> tuple[str, Any]:
    """Parse the name and the value of a --value argument."""
    name, _, value = text.rpartition("=")
    for form in (value, f"[{value}]"):
        try:
            if name and value.strip():
                return name, json.loads(form)
        except (ValueError, RecursionError):
            continue
    raise InvalidArgument(
        f"--value: expected INPUT=16000, INPUT=true, INPUT=1,2,3 or INPUT=[[1,2],[3,4]], got {text!r}"
    )
