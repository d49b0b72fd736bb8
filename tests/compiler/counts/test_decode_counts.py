"""Dispatches of a decoding step as onnxruntime-genai's builder writes it: packed weights, caches, one token."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from pyruntime.compiler.typing import Guards, Typing
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType, known
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.ops.fused.normed_product import NormedProduct
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.passes import optimize
from pyruntime.session.api.feeds import from_user
from pyruntime.session.run.program import Program
from tests.passes.support import evaluate

HEADS, GROUPS, SIZE, INNER, WORDS, PAST = 4, 2, 16, 96, 64, 20
WIDTH = HEADS * SIZE


class Decoder:
    """`separate`: three projections; `bias`: "" none, "slot" of MatMulNBits, "add" of its own."""

    def __init__(self, layers: int, separate: bool, bias: str) -> None:
        self.rng = np.random.default_rng(2)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.layers, self.separate, self.bias = layers, separate, bias

    def given(self, value: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, op: str, *inputs: str, outputs: tuple[str, ...] = (), domain: str = "", **attributes: Any) -> str:
        names = outputs or (f"v{len(self.nodes)}",)
        self.nodes.append(helper.make_node(op, list(inputs), list(names), domain=domain, **attributes))
        return names[0]

    def scale(self) -> str:
        return self.given(self.rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))

    def product(self, x: str, k: int, n: int, bias: str = "") -> str:
        blocks = k // 32
        b = self.given(self.rng.integers(0, 256, (n, blocks, 16)).astype(np.uint8))
        scales = self.given((self.rng.uniform(0.5, 1.5, (n, blocks)) / 16 / np.sqrt(k)).astype(np.float32))
        inputs = [x, b, scales]
        added = self.given(self.rng.standard_normal(n).astype(np.float32)) if bias else ""
        if bias == "slot":
            inputs += ["", "", added]
        made = self.add("MatMulNBits", *inputs, domain="com.microsoft", K=k, N=n, bits=4, block_size=32)
        return self.add("Add", made, added) if bias == "add" else made

    def layer(self, inner: str, total: str, i: int) -> tuple[str, str]:
        if self.separate:
            qkv = [self.product(inner, WIDTH, n * SIZE, self.bias) for n in (HEADS, GROUPS, GROUPS)]
        else:
            qkv = [self.product(inner, WIDTH, (HEADS + 2 * GROUPS) * SIZE, self.bias), "", ""]
        y = self.add(
            "GroupQueryAttention",
            *qkv,
            f"past.{i}.key",
            f"past.{i}.value",
            "lengths",
            "total",
            "cos",
            "sin",
            outputs=(f"{i}.attended", f"present.{i}.key", f"present.{i}.value"),
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=GROUPS,
            do_rotary=1,
        )
        total, inner = self.skip(total, self.product(y, WIDTH, WIDTH))
        gate, up = self.product(inner, WIDTH, INNER), self.product(inner, WIDTH, INNER)
        gated = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.skip(total, self.product(gated, INNER, WIDTH))

    def skip(self, total: str, x: str) -> tuple[str, str]:
        """(sum, its norm)."""
        names = (f"n{len(self.nodes)}", "", "", f"s{len(self.nodes)}")
        self.add(
            "SkipSimplifiedLayerNormalization",
            total,
            x,
            self.scale(),
            outputs=names,
            domain="com.microsoft",
            epsilon=1e-6,
        )
        return names[3], names[0]

    def model(self) -> bytes:
        angles = np.arange(4096)[:, None] / 10000 ** (np.arange(0, SIZE, 2) / SIZE)
        self.weights += [numpy_helper.from_array(f(angles).astype(np.float32), f.__name__) for f in (np.cos, np.sin)]
        total = self.add("Gather", self.given(self.rng.standard_normal((WORDS, WIDTH)).astype(np.float32)), "ids")
        inner = self.add("SimplifiedLayerNormalization", total, self.scale(), axis=-1, epsilon=1e-6, stash_type=1)
        for i in range(self.layers):
            total, inner = self.layer(inner, total, i)
        self.nodes.append(helper.make_node("Identity", [self.product(inner, WIDTH, WORDS)], ["logits"]))
        info = helper.make_tensor_value_info
        parts = [f"{i}.{part}" for i in range(self.layers) for part in ("key", "value")]
        inputs = [info("ids", 7, ["B", "S"]), info("lengths", 6, ["B"]), info("total", 6, [])]
        inputs += [info(f"past.{p}", 1, ["B", GROUPS, "P", SIZE]) for p in parts]
        outputs = [info("logits", 1, ["B", "S", WORDS])]
        outputs += [info(f"present.{p}", 1, ["B", GROUPS, "T", SIZE]) for p in parts]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.weights)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return bytes(helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString())


def feeds(layers: int, rows: int, past: int = PAST) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    made: dict[str, Any] = {
        "ids": rng.integers(0, WORDS, (1, rows)),
        "lengths": np.array([past + rows - 1], np.int32),
        "total": np.array(past + rows, np.int32),
    }
    for i in range(layers):
        caches = {f"past.{i}.{p}": rng.standard_normal((1, GROUPS, past, SIZE)) for p in ("key", "value")}
        made |= {n: x.astype(np.float32) for n, x in caches.items()}
    return made


def kernels(
    layers: int, separate: bool, bias: str, buffers: int, past: int = PAST, disabled: frozenset[str] = frozenset()
) -> list[str]:
    """Of the dispatches of one token."""
    graph = import_model(read_model(memoryview(Decoder(layers, separate, bias).model()))).graph
    limits, features = Limits(storage_buffers=buffers), frozenset({"subgroups"})
    program = Program(graph, NullDevice(Target(limits, features, "nvidia")), disabled=disabled)
    given = feeds(layers, 1, past)
    fed = {v.name: from_user(given[v.name], v, {}) for v in graph.inputs}
    asyncio.run(program.run(fed, [v.name for v in graph.outputs]))
    (stage,) = program.roots
    return [command.kernel for command in stage.compiled.plan.commands]


@pytest.mark.parametrize(("buffers", "most"), [(8, 7), (10, 6)])
@pytest.mark.parametrize(("separate", "bias"), [(False, ""), (True, ""), (True, "slot"), (True, "add"), (False, "add")])
def test_decoder__one_token__takes_at_most_seven_dispatches_a_layer(
    separate: bool, bias: str, buffers: int, most: int
) -> None:
    short, long = (len(kernels(layers, separate, bias, buffers)) for layers in (1, 3))
    assert (long - short) / 2 <= most


@pytest.mark.parametrize("past", [700, 900])
def test_decoder__split_kv__product_after_attention_reduces_the_partial_results(past: int) -> None:
    layers = 3
    merged, apart = (kernels(layers, False, "", 10, past, frozenset(off)) for off in ((), ("merging_skinny",)))
    assert len(merged) == len(apart) - layers
    assert [sum("skinny_merged" in name for name in names) for names in (merged, apart)] == [layers, 0]
    assert [sum("attention_merge" in name for name in names) for names in (merged, apart)] == [0, layers]


def test_decoder__split_kv_over_many__has_a_dispatch_that_reduces() -> None:
    names = kernels(1, False, "", 10, 3000)
    assert any("attention_merge" in name for name in names) and not any("skinny_merged" in name for name in names)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("separate", "bias"), [(False, ""), (True, ""), (True, "slot"), (True, "add")])
def test_decoder__after_all_passes__computes_what_onnxruntime_does(separate: bool, bias: str, rows: int) -> None:
    model, given = Decoder(2, separate, bias).model(), feeds(2, rows)
    graph = import_model(read_model(memoryview(model))).graph
    types = {n: known(TensorType(DType.from_numpy(x.dtype), x.shape, None, n), x) for n, x in given.items()}
    constants = {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in graph.constants.items()}
    typing = Typing({**types, **constants}, set(graph.constants), Guards({}))
    rest, boundary = typing.run(graph.nodes)
    assert not rest and boundary is None
    typed = typing.graph(list(given), [v.name for v in graph.outputs], graph.constants)
    optimize(typed, Target())
    typed.verify()
    normed = [n.op.base for n in typed.nodes if isinstance(n.op, NormedProduct)]
    assert sum(isinstance(base, PairedProduct) for base in normed) == 2
    assert len(normed) == 5  # queries, keys and values; gate and up; logits
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    for a, b in zip(evaluate(typed, given), theirs, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 2e-5)
