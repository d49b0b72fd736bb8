"""The command line: `python -m pyruntime inspect | plan | passes | optimize | run | ... MODEL`.

`plan`, `passes`, `shaders` and `ops` need no GPU: they plan for the device that `--target` names, by default for
WebGPU's default limits. `run`, `bench`, `profile` and `explain` use a GPU if there is one, else NumPy. `optimize`
writes an ONNX model, `compile` a plan.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyruntime.cli.compiling import compile_arguments, compile_files
from pyruntime.cli.optimizing import optimize, optimize_arguments
from pyruntime.cli.plans import inspect, ops, passes, plan, shaders
from pyruntime.cli.runs import bench, explain, profile, run
from pyruntime.errors import OrtError
from pyruntime.target.named import profiles

__all__ = ["main"]

_ON_DEVICE = ("run", "bench", "profile", "explain")
"""Commands that run the model."""

_FOR_TARGET = ("plan", "passes", "shaders", "ops", "compile")
"""Commands that plan for a given device, which need not be present."""

_TARGET = (
    f"the device: {', '.join(profiles())}, or JSON with its limits, features, vendor (default: what every device of "
    "WebGPU has)"
)


def main(argv: Sequence[str]) -> int:
    """Run a command; return 0, or 1 after an error message on stderr."""
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
    parser = argparse.ArgumentParser(prog="python -m pyruntime", description="Inspect, compile and run ONNX models.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("inspect", "inputs, outputs, operators, parameters"),
        ("plan", "placement of each node, dispatches, memory"),
        ("passes", "what each graph pass changes, and how long it takes"),
        ("shaders", "the WGSL of every kernel"),
        ("ops", "which operators run on the GPU, on the host, or not at all"),
        ("run", "run once and print the outputs"),
        ("bench", "time runs"),
        ("profile", "time runs, by kernel and operator"),
        ("explain", "where each node runs and why, kernels, memory, after a run"),
        ("optimize", "write the model with constants folded, shapes simplified and norms fused, as ONNX"),
        ("compile", "write a plan that web pages run without Python"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        more = (
            {"nargs": "+", "help": "paths of .onnx files"} if name == "compile" else {"help": "path of an .onnx file"}
        )
        command.add_argument("model", metavar="MODEL", **more)  # type: ignore[arg-type]
        command.add_argument("--json", action="store_true", help="JSON instead of text")
        if name == "compile":
            compile_arguments(command)
        elif name == "optimize":
            optimize_arguments(command)
        elif name != "inspect":
            command.add_argument(
                "--dim",
                action="append",
                default=[],
                metavar="NAME=SIZE",
                help="size of a symbolic dimension (default 1)",
            )
        if name != "inspect":
            _precision_arguments(command)
        if name in _FOR_TARGET:
            command.add_argument("--target", default="default", metavar="NAME|FILE", help=_TARGET)
        if name in _ON_DEVICE:
            command.add_argument(
                "--input",
                action="append",
                default=[],
                metavar="[NAME=]FILE.npy",
                help="an input, without a name the next one (default: random)",
            )
            command.add_argument(
                "--adapter", default="", help="the GPU: a number or a part of its name, or 'cpu' for NumPy"
            )
        if name == "passes":
            command.add_argument("--dump", metavar="FOLDER", help="write the graph after each pass that changes it")
        if name == "run":
            command.add_argument("--save", metavar="FILE.npz", help="write the outputs")
        if name in ("bench", "profile"):
            command.add_argument("--runs", type=int, default=10)
        if name == "explain":
            command.add_argument("--html", metavar="FILE", help="write a page")
        if name == "shaders":
            command.add_argument("--kernel", metavar="NAME", help="only kernels whose name contains this")
    return parser


def _precision_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--precision",
        choices=("float16", "float32"),
        default="float32",
        help="float16: models of float32 compute in float16 (default: in the types of the model)",
    )
    command.add_argument(
        "--float32-node",
        action="append",
        default=[],
        metavar="NAME",
        help="with --precision float16, a node that computes in float32",
    )


def _plain(value: object) -> object:
    """Convert values that JSON lacks: arrays become `{type, shape, values}`."""
    if isinstance(value, np.ndarray):
        return {"type": str(value.dtype), "shape": list(value.shape), "values": value.ravel().tolist()}
    return value.item() if isinstance(value, np.generic) else str(value)


_COMMANDS: dict[str, Callable[[argparse.Namespace], tuple[Any, str]]] = {
    "inspect": inspect,
    "plan": plan,
    "passes": passes,
    "shaders": shaders,
    "ops": ops,
    "run": run,
    "bench": bench,
    "profile": profile,
    "explain": explain,
    "optimize": optimize,
    "compile": compile_files,
}
