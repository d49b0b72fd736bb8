"""Pipelines are shared by shapes: other inputs of a model compile little."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import onnx
import pytest

from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program

ROOT = Path(__file__).resolve().parents[2]
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
MODELS = {
    "digits": (ROOT / "models" / "digits.onnx", (1, 1, 16, 16), [(2, 1, 16, 16)]),
    "densenet121": (LIGHT / "light_densenet121.onnx", (1, 3, 224, 224), [(1, 3, 256, 256)]),
    "squeezenet": (LIGHT / "light_squeezenet.onnx", (1, 3, 224, 224), [(2, 3, 224, 224), (1, 3, 256, 256)]),
}


@pytest.mark.parametrize("vendor", ["nvidia", "google"])
@pytest.mark.parametrize("name", list(MODELS))
def test_second_shape__of_a_model__compiles_at_most_a_quarter(name: str, vendor: str) -> None:
    path, first, others = MODELS[name]
    graph = import_model(read_model(memoryview(path.read_bytes()))).graph
    outputs = [value.name for value in graph.outputs]

    async def compiled(shapes: list[tuple[int, ...]]) -> list[int]:
        """How many pipelines each of these shapes adds."""
        device = NullDevice(Target(Limits(), frozenset({"subgroups"}), vendor))
        program = Program(graph, device)
        counts = [0]
        for shape in shapes:
            assert await program.prepare({graph.inputs[0].name: TensorType(DType.FLOAT, shape)}, outputs)
            counts.append(device.ledger.pipelines)
        return [after - before for before, after in pairwise(counts)]

    for other in others:
        whole, more = asyncio.run(compiled([first, other]))
        assert whole >= 4
        assert more <= whole / 4, f"{other} compiles {more} pipelines, {first} {whole}"
