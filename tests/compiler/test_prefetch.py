"""Shaders asked for while a plan is made: those it has in the end, and hardly any other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bench import cases
from bench.shapes import GPU
from pyruntime.device.null import NullDevice
from pyruntime.ir import TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.wgsl.module import Module
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from tests import open_models
from tests.open_models import Writer

ENCODER = open_models.encoder(), {n: v.shape for n, v in open_models.encoder_feeds(1, 24).items()}
DECODER = open_models.decoder(), {n: v.shape for n, v in open_models.decoder_feeds(1, 1, 40).items()}


class Listening(NullDevice):
    """Keeps what it is asked for, and what is compiled."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.asked: list[str] = []
        self.wanted: set[str] = set()
        self.compiling = False

    def ask(self, source: str) -> None:
        if not self.compiling:
            self.asked.append(source)
        super().ask(source)

    async def compile(self, sources: Sequence[str]) -> None:
        self.wanted |= set(sources)
        self.compiling = True
        await super().compile(sources)
        self.compiling = False


def planned(model: bytes, shapes: dict[str, tuple[int, ...]]) -> Listening:
    device = Listening(GPU)
    graph = import_model(read_model(model)).graph
    types = {v.name: TensorType(v.type.dtype, shapes[v.name]) for v in graph.inputs}  # type: ignore[union-attr]
    assert asyncio.run(Program(graph, device).prepare(types, [v.name for v in graph.outputs], strict=True))
    return device


@pytest.mark.parametrize("name", ["light_resnet50", "light_densenet121", "light_inception_v2", "light_shufflenet"])
def test_convolutional_model__planned__all_shaders_are_asked_for_early_and_no_other(name: str) -> None:
    (case,) = cases.light([name])
    shapes = {n: tuple(given["shape"]) for n, given in case.inputs.items()}
    device = planned(case.path.read_bytes(), shapes)
    assert set(device.asked) == device.wanted


@pytest.mark.parametrize(("model", "shapes"), [ENCODER, DECODER], ids=["encoder", "decoder"])
def test_transformer__planned__all_shaders_are_asked_for_early_and_no_other(
    model: bytes, shapes: dict[str, tuple[int, ...]]
) -> None:
    device = planned(model, shapes)
    assert set(device.asked) == device.wanted


def test_computed_constants__planned__all_shaders_are_asked_for_early_and_no_other() -> None:
    """One kernel reads computed constants, those that are uploaded, and activations."""
    g = Writer(0)
    h = g.add("MatMul", "x", g.add("Sigmoid", g.weight(160, 160)))
    h = g.add("MatMul", g.add("Add", h, g.weight(160, 160)), g.weight(160, 160))
    y = g.add("Add", g.add("MatMul", "x", h), g.add("Softmax", h), out="y")
    device = planned(g.model({"x": (1, (160, 160))}, [y]), {"x": (160, 160)})
    assert set(device.asked) == device.wanted
    ways = {
        tuple(r.access for r in Module(s).resources if r.space == "storage") for s in device.wanted if "matmul" in s
    }
    assert {("read_write", "read", "read_write"), ("read_write", "read_write", "read_write")} <= ways
