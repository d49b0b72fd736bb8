"""The command `optimize`, which writes the model after graph passes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyruntime.cli.sessions import dims_of
from pyruntime.compiler.rewriting import rewrite
from pyruntime.errors import InvalidArgument
from pyruntime.ir import TypedGraph
from pyruntime.onnx.formats.source import open_file
from pyruntime.onnx.graph_writer import write_model
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.passes.pipeline import PORTABLE, PassRun
from pyruntime.session.markup import bytes_text

__all__ = ["optimize", "optimize_arguments"]


def optimize_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the options of `optimize`."""
    command.add_argument("--out", metavar="FILE", required=True, help="the ONNX file to write")
    command.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="size of a symbolic dimension (default: it stays symbolic)",
    )
    command.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PASS",
        help=f"leave a pass out: {', '.join(sorted({one.name for one in PORTABLE}))} (fuse_norms and fuse_group_norm "
        "write operators of opsets 17 to 23)",
    )


def optimize(arguments: argparse.Namespace) -> tuple[Any, str]:
    """Write the model after graph passes; return what they changed, as data and as text."""
    names = {one.name for one in PORTABLE}
    unknown = sorted(set(arguments.without) - names)
    if unknown:
        raise InvalidArgument(f"--without: '{unknown[0]}' is none of the passes {', '.join(sorted(names))}")
    model = import_model(read_model(open_file(arguments.model)), folder=arguments.model)
    changed: list[str] = []

    def observe(run: PassRun, _: TypedGraph) -> None:
        if run.changed and run.name not in changed:
            changed.append(run.name)

    graph = rewrite(model.graph, dims_of(arguments), arguments.without, observe)
    write_model(arguments.out, graph, model.opsets, model.metadata)
    before, after = len(model.graph.nodes), len(graph.nodes)
    nbytes = Path(arguments.out).stat().st_size
    data = {"model": arguments.out, "nodes_before": before, "nodes": after, "bytes": nbytes, "passes": changed}
    text = (
        f"{arguments.out}: {before} -> {after} nodes, {bytes_text(nbytes)}; changed by {', '.join(changed) or 'none'}"
    )
    return data, text
