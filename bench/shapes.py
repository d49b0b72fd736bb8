"""Models of the distinct convolutions of the benchmark's models, for `dev.py tune`.

    python bench/shapes.py OUT                     writes OUT/convolutions-1.onnx, ... with their NAME.json
    python3 dev.py tune --models OUT               measures every kernel of each on the device at hand

Problems are those of bench/shapes.txt, a family and `Problem.key` a line. `--collect DIR` writes that file anew from
the models that bench/models.py wrote to DIR and those of the onnx package: it plans them for GPUs. A model has no
weights: operands are one number, expanded; each node's result is folded into one element.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from bench import cases
from pyruntime.compiler.refusals import TooEarly
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.inspect.report import stages_of
from pyruntime.session.run.program import Program

LIST = Path(__file__).with_suffix(".txt")
FAMILIES = ("convolution",)
EACH = 100
"""Problems of a model."""

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=49152, invocations=1024, workgroup_x=1024), vendor="nvidia")

_CONV = re.compile(
    r"(?P<x>[\dx]+) m(?P<m>\d+)(?: k(?P<k>[\dx]+))?(?: s(?P<s>[\dx]+))?(?: d(?P<d>[\dx]+))?"
    r"(?: p(?P<p>[-\dx]+))? y(?P<y>[\dx]+)(?: g(?P<g>\d+))?(?P<t> transposed)?"
)


@dataclass(frozen=True)
class Part:
    """A node's type, attributes, and the shapes of its inputs."""

    op_type: str
    inputs: tuple[tuple[int, ...], ...]
    attributes: dict[str, Any]


def convolution(key: str) -> Part | None:
    """The node of a `ConvProblem.key`; None for one of integers.

    Raises:
        ValueError: it is no such key.
    """
    found = _CONV.fullmatch(key)
    if found is None:
        if key.endswith(("integer", "bytes")):
            return None
        raise ValueError(f"'{key}' is no problem of convolutions")

    def axes(name: str, default: int) -> list[int]:
        return [int(n) for n in found[name].split("x")] if found[name] else [default] * 3

    images, channels, *extents = (int(n) for n in found["x"].split("x"))
    rows, group, output = int(found["m"]), int(found["g"] or 1), axes("y", 1)
    kernel, strides, dilations, begin = axes("k", 1), axes("s", 1), axes("d", 1), axes("p", 0)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    span = [(o - 1) * s + r for o, s, r in zip(output, strides, reach, strict=True)]
    weights = (rows, channels // group)
    if found["t"]:
        span = [(i - 1) * s + r for i, s, r in zip(extents, strides, reach, strict=True)]
        end = [have - b - o for have, b, o in zip(span, begin, output, strict=True)]
        weights = (channels, rows // group)
    else:
        end = [want - i - b for want, i, b in zip(span, extents, begin, strict=True)]
    attributes: dict[str, Any] = {
        "group": group,
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": [*begin, *end],
    }
    kind = "ConvTranspose" if found["t"] else "Conv"
    # Strides may leave inputs at the end unread: there the padding is negative, which is what nodes may say, too.
    return Part(kind, ((images, channels, *extents), (*weights, *kernel)), attributes)


def model(parts: Sequence[Part]) -> bytes:
    """A model of those nodes: x [1] in, one element of each out."""
    nodes: list[NodeProto] = []
    weights = [numpy_helper.from_array(np.array([1], np.int64), "one")]
    for n, part in enumerate(parts):
        names = [f"in{n}_{i}" for i in range(len(part.inputs))]
        for name, shape in zip(names, part.inputs, strict=True):
            weights.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}_shape"))
            nodes.append(helper.make_node("Expand", ["x", f"{name}_shape"], [name]))
        nodes.append(helper.make_node(part.op_type, names, [f"made{n}"], **part.attributes))
        nodes.append(helper.make_node("ReduceMax", [f"made{n}"], [f"folded{n}"], keepdims=0))
        nodes.append(helper.make_node("Reshape", [f"folded{n}", "one"], [f"out{n}"]))
    nodes.append(helper.make_node("Concat", [f"out{n}" for n in range(len(parts))], ["y"], axis=0))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [len(parts)])
    graph = helper.make_graph(nodes, "shapes", [x], [y], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return bytes(made.SerializeToString())


def listed() -> dict[str, list[str]]:
    """Keys of LIST by family."""
    found: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for line in LIST.read_text().splitlines():
        family, _, key = line.partition(" ")
        found[family].append(key)
    return found


def write(out: Path) -> None:
    """Models of the problems in LIST, EACH in one."""
    out.mkdir(parents=True, exist_ok=True)
    for family, keys in listed().items():
        made = [convolution(key) for key in keys]
        parts = [part for part in made if part is not None]
        for first in range(0, len(parts), EACH):
            path = out / f"{family}s-{1 + first // EACH}.onnx"
            path.write_bytes(model(parts[first : first + EACH]))
            inputs = {"x": {"dtype": "float32", "shape": [1]}}
            path.with_suffix(".json").write_text(json.dumps({"inputs": inputs}))
            print(f"{path}: {len(parts[first : first + EACH])} nodes")


def problems(models: Iterable[cases.Case], target: Target = GPU) -> Iterator[tuple[str, str]]:
    """Family and key of what kernels were chosen for in plans of these models."""
    for case in models:
        graph = import_model(read_model(case.path)).graph
        program = Program(graph, NullDevice(target))
        types = {
            name: TensorType(DType.from_numpy(np.dtype(told["dtype"])), tuple(told["shape"]))
            for name, told in case.inputs.items()
        }
        try:
            asyncio.run(program.prepare(types, [v.name for v in graph.outputs], strict=True))
        except TooEarly as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            continue
        for stage in stages_of(program):
            for assignment in stage.executable.plan.assignments:
                for noted in assignment.choices:
                    yield noted.family.name, noted.problem.key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="folder for the models")
    parser.add_argument("--collect", type=Path, metavar="DIR", help="write bench/shapes.txt from the models in DIR")
    args = parser.parse_args()
    if args.collect:
        models = [c for c in cases.generated(args.collect) if c.path.suffix == ".onnx"] + cases.light()
        found = {(family, key) for family, key in problems(models) if family in FAMILIES}
        LIST.write_text("".join(f"{family} {key}\n" for family, key in sorted(found)))
    if args.out:
        write(args.out)


if __name__ == "__main__":
    main()
