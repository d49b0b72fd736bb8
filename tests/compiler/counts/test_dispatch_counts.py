"""Dispatches of decoders as exporters write them: a Llama layer, its caches, a step of a quantised decoder."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from pyruntime.compiler.typing import Guards, Typing
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.passes import optimize
from pyruntime.session.run.program import Program
from tests.model_writer import ModelNodes
from tests.passes.support import evaluate

HEADS, GROUPS, SIZE, INNER, WORDS = 4, 2, 16, 96, 50
WIDTH = HEADS * SIZE
LAST = 2**63 - 1


class Llama(ModelNodes):
    """torch's Llama as its exporter writes it: sizes from Shape, rotate-half by slices, repeat_kv by Expand.

    newer: the keys of scaled_dot_product_attention in three dimensions, Reciprocal of the root. normed: norms of the
    heads of queries and keys, as in Qwen3.
    """

    def __init__(self, layers: int, cached: bool, newer: bool, normed: bool = False) -> None:
        super().__init__()
        self.layers, self.cached, self.newer, self.normed = layers, cached, newer, normed

    def number(self, value: float) -> str:
        return self.given(np.float32(value))

    def weight(self, *shape: int) -> str:
        return self.given((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def sizes(self, x: str, *parts: int | str) -> str:
        """int64 [n]; a string names a value and the dimension of it, as 'x:1'."""
        made = []
        for part in parts:
            if isinstance(part, int):
                made.append(self.ints(part))
                continue
            name, axis = part.rsplit(":", 1)
            size = self.add("Gather", self.add("Shape", name), self.given(np.int64(int(axis))), axis=0)
            made.append(self.add("Unsqueeze", size, self.ints(0)))
        return self.add("Concat", *made, axis=0)

    def norm(self, x: str, width: int = WIDTH) -> str:
        mean = self.add("ReduceMean", self.add("Pow", x, self.number(2)), self.ints(-1), keepdims=1)
        root = self.add("Sqrt", self.add("Add", mean, self.number(1e-6)))
        inverse = self.add("Reciprocal", root) if self.newer else self.add("Div", self.number(1), root)
        scaled = self.add("Cast", self.add("Mul", x, inverse), to=TensorProto.FLOAT)
        return self.add("Mul", self.given(self.rng.uniform(0.5, 1.5, width).astype(np.float32)), scaled)

    def heads(self, x: str, count: int, normed: bool = False) -> str:
        made = self.add("MatMul", x, self.weight(WIDTH, count * SIZE))
        shape = self.sizes(x, f"{x}:0", f"{x}:1", count, SIZE)
        made = self.add("Reshape", made, shape)
        return self.add("Transpose", self.norm(made, SIZE) if normed else made, perm=[0, 2, 1, 3])

    def turned(self, x: str, cos: str, sin: str) -> str:
        half, axis, one = self.ints(SIZE // 2), self.ints(3), self.ints(1)
        first = self.add("Slice", x, self.ints(0), half, axis, one)
        second = self.add("Slice", x, half, self.ints(LAST), axis, one)
        rotated = self.add("Concat", self.add("Neg", second), first, axis=-1)
        return self.add("Add", self.add("Mul", x, cos), self.add("Mul", rotated, sin))

    def repeated(self, x: str, merged: bool = False) -> str:
        wide = self.sizes(x, f"{x}:0", f"{x}:1", HEADS // GROUPS, f"{x}:2", SIZE)
        made = self.add("Expand", self.add("Unsqueeze", x, self.ints(2)), wide)
        if merged:
            return self.add("Reshape", made, self.sizes(x, -1, f"{x}:2", SIZE))
        return self.add("Reshape", made, self.sizes(x, f"{x}:0", HEADS, f"{x}:2", SIZE))

    def layer(self, x: str, i: int, cos: str, sin: str, visible: str) -> str:
        inner = self.norm(x)
        q, k = (self.heads(inner, n, self.normed) for n in (HEADS, GROUPS))
        v = self.heads(inner, GROUPS)
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        if self.cached:
            k = self.add("Concat", f"past.{i}.k", k, out=f"present.{i}.k", axis=-2)
            v = self.add("Concat", f"past.{i}.v", v, out=f"present.{i}.v", axis=-2)
        if self.newer:
            turned = self.add("Transpose", self.repeated(k, merged=True), perm=[0, 2, 1])
            keys = self.add("Reshape", turned, self.sizes(k, f"{k}:0", HEADS, SIZE, f"{k}:2"))
        else:
            keys = self.add("Transpose", self.repeated(k), perm=[0, 1, 3, 2])
        root = self.number(SIZE**-0.25)
        scores = self.add("MatMul", self.add("Mul", q, root), self.add("Mul", keys, self.number(SIZE**-0.25)))
        mask = self.add("Where", visible, self.number(0), self.number(float(np.finfo(np.float32).min)))
        weights = self.add("Softmax", self.add("Add", scores, mask), axis=-1)
        weights = self.add("Where", self.add("IsNaN", weights), self.number(0), weights)
        y = self.add("Transpose", self.add("MatMul", weights, self.repeated(v)), perm=[0, 2, 1, 3])
        y = self.add("Reshape", y, self.sizes(x, f"{x}:0", f"{x}:1", -1))
        x = self.add("Add", x, self.add("MatMul", y, self.weight(WIDTH, WIDTH)))
        inner = self.norm(x)
        gate = self.add("MatMul", inner, self.weight(WIDTH, INNER))
        silu = self.add("Mul", gate, self.add("Sigmoid", gate))
        product = self.add("Mul", silu, self.add("MatMul", inner, self.weight(WIDTH, INNER)))
        return self.add("Add", x, self.add("MatMul", product, self.weight(INNER, WIDTH)))

    def model(self) -> bytes:
        x = self.add("Gather", self.weight(WORDS, WIDTH), "ids", axis=0)
        at = self.add("Cast", self.add("Unsqueeze", "positions", self.ints(2)), to=TensorProto.FLOAT)
        angles = self.add("Mul", at, self.given((10000.0 ** -np.linspace(0, 1, SIZE // 2)).astype(np.float32)))
        both = self.add("Concat", angles, angles, axis=-1)
        cos, sin = (self.add("Unsqueeze", self.add(f, both), self.ints(1)) for f in ("Cos", "Sin"))
        keys = self.add("Unsqueeze", "mask", self.ints(1, 2))
        length = self.add("Gather", self.add("Shape", "mask"), self.given(np.int64(1)), axis=0)
        every = self.add("Range", self.given(np.int64(0)), length, self.given(np.int64(1)))
        causal = self.add("LessOrEqual", every, self.add("Unsqueeze", "positions", self.ints(1, 3)))
        visible = self.add("And", causal, self.add("Cast", keys, to=TensorProto.BOOL))
        for i in range(self.layers):
            x = self.layer(x, i, cos, sin, visible)
        self.add("MatMul", self.norm(x), self.weight(WIDTH, WORDS), out="logits")
        info = helper.make_tensor_value_info
        inputs = [info("ids", 7, ["B", "S"]), info("mask", 7, ["B", "T"]), info("positions", 7, ["B", "S"])]
        outputs = [info("logits", 1, ["B", "S", WORDS])]
        if self.cached:
            parts = [f"{i}.{part}" for i in range(self.layers) for part in "kv"]
            inputs += [info(f"past.{p}", 1, ["B", GROUPS, "P", SIZE]) for p in parts]
            outputs += [info(f"present.{p}", 1, ["B", GROUPS, "T", SIZE]) for p in parts]
        graph = helper.make_graph(self.nodes, "llama", inputs, outputs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def feeds(layers: int, cached: bool, batch: int, length: int, past: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    past = past if cached else 0
    mask = np.ones((batch, past + length), np.int64)
    mask[-1, :2] = 0
    positions = np.broadcast_to(np.arange(past, past + length), (batch, length)).copy()
    made: dict[str, Any] = {"ids": rng.integers(0, WORDS, (batch, length)), "mask": mask, "positions": positions}
    for i in range(layers if cached else 0):
        made |= {f"past.{i}.{p}": rng.standard_normal((batch, GROUPS, past, SIZE)).astype(np.float32) for p in "kv"}
    return made


def types(given: dict[str, Any]) -> dict[str, TensorType]:
    return {n: TensorType(DType.from_numpy(x.dtype), x.shape, None, n) for n, x in given.items()}


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_llama__prefill__takes_few_dispatches_a_layer(cached: bool, newer: bool, normed: bool) -> None:
    counts = []
    for layers in (2, 4):
        graph = import_model(read_model(memoryview(Llama(layers, cached, newer, normed).model()))).graph
        program = Program(
            graph, NullDevice(Target(Limits(storage_buffers=10 if normed else 8), frozenset({"subgroups"}), "nvidia"))
        )
        names = [v.name for v in graph.outputs]
        found: list[int] = []
        stage = None
        for sizes in ((2, 12, 5), (3, 19, 14), (4, 15, 6)):
            stage = asyncio.run(program.prepare(types(feeds(layers, cached, *sizes)), names))
            assert stage is not None
            found.append(len(stage.compiled.plan.commands))
        assert stage is not None and stage.compiled.sizes is not None and not stage.compiled.sizes.specialized()
        counts.append(found)
    a_layer = [(b - a) / 2 for a, b in zip(*counts, strict=True)]
    assert max(a_layer) <= 9
    assert max(a + 10 * n for a, n in zip(counts[0], a_layer, strict=True)) <= 130  # of twelve layers


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_llama__after_all_passes__computes_what_onnxruntime_does(cached: bool, newer: bool, normed: bool) -> None:
    model, given = Llama(2, cached, newer, normed).model(), feeds(2, cached, 2, 7, 5)
    graph = import_model(read_model(memoryview(model))).graph
    known = {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in graph.constants.items()}
    typing = Typing({**types(given), **known}, set(graph.constants), Guards({}))
    rest, boundary = typing.run(graph.nodes)
    assert not rest and boundary is None
    typed = typing.graph(list(given), [v.name for v in graph.outputs], graph.constants)
    optimize(typed, Target())
    typed.verify()
    kinds = [n.op.op_type for n in typed.nodes]
    assert kinds.count("PreparedHeads") == 2 and kinds.count("FusedAttention") == 2
    with np.errstate(all="ignore"):
        mine = evaluate(typed, given)
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 2e-5)
