"""Plans for every size, on WebGPU: runs of several sizes in one session against onnxruntime; replay without Python.

Models run with the kernels of GPUs and alternately with those of software adapters; with PYRUNTIME_SOAK each with both.

Tolerances: float32 of two layers, 2e-3 of values about 1, as sums are split otherwise for other sizes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import onnxruntime
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from e2e.harness.python import BrowserPython
from e2e.harness.script import Script
from tests import open_models
from tests.open_graphs import drawn, graph_of
from tests.open_models import decoder_feeds, encoder_feeds, listener_feeds, picture_feeds
from tests.quantized.models import dynamic, encoder, packed, residual_net, static
from tests.quantized.test_models import CALIBRATION, ids

Feeds: TypeAlias = dict[str, np.ndarray[Any, Any]]
RTOL, ATOL = 2e-3, 2e-3
ALL = bool(os.environ.get("PYRUNTIME_SOAK"))

pytestmark = pytest.mark.unguarded

RUN = """
import os
os.environ["PYRUNTIME_VERIFY"] = "1"
import pyruntime as ort
options = ort.SessionOptions()
options.add_session_config_entry("pyruntime.disable", "software" if gpu else "")
session = await ort.InferenceSession.create(model, options)
try:
    outputs = [await session.run_async(None, feeds) for feeds in fed]
    told = session.explain().to_dict()["sizes"]
    plans = [bool(stage.sizes) for stage in session._program.roots]
finally:
    session.release()
[outputs, told, plans]
"""


def x(*shape: int) -> Feeds:
    return {"x": np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)}


def coordinates() -> bytes:
    """x: [n, k] -> y = x at all its coordinates, counted by NonZero of a filled tensor, plus those of its rows."""
    one = helper.make_tensor("one", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["f"], value=one),
        helper.make_node("NonZero", ["f"], ["i"]),
        helper.make_node("Transpose", ["i"], ["t"], perm=[1, 0]),
        helper.make_node("GatherND", ["x", "t"], ["g"]),
        helper.make_node("Reshape", ["g", "s"], ["h"]),
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("ConstantOfShape", ["rows"], ["fr"], value=one),
        helper.make_node("NonZero", ["fr"], ["ir"]),
        helper.make_node("Transpose", ["ir"], ["tr"], perm=[1, 0]),
        helper.make_node("Cast", ["tr"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["h", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "coordinates",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


CASES: dict[str, tuple[bytes, list[Feeds]]] = {
    "encoder": (
        open_models.encoder(),
        [
            encoder_feeds(b, n)
            for b, n in ((1, 7), (1, 20), (1, 1), (1, 61), (2, 9), (3, 33), (2, 16), (1, 300), (4, 2))
        ],
    ),
    "decoder": (
        open_models.decoder(),
        [
            decoder_feeds(b, n, p)
            for b, n, p in (
                (1, 6, 0),
                (1, 1, 6),
                (1, 1, 7),
                (1, 1, 8),
                (1, 3, 9),
                (1, 1, 300),
                (2, 5, 0),
                (2, 1, 5),
                (2, 4, 11),
                (1, 9, 0),
            )
        ],
    ),
    "listener": (
        open_models.listener(),
        [listener_feeds(b, n) for b, n in ((1, 7), (1, 20), (1, 1), (1, 2), (2, 9), (3, 33), (1, 300), (4, 61))],
    ),
    "convolutions": (
        open_models.convolutions(),
        [picture_feeds(*s) for s in ((1, 32, 48), (1, 21, 40), (2, 50, 19), (3, 64, 64), (1, 9, 100), (2, 33, 35))],
    ),
    "mixed_layouts": (
        open_models.mixed_layouts(),
        [picture_feeds(*s) for s in ((1, 32, 48), (1, 21, 40), (2, 50, 19), (3, 64, 64), (1, 9, 100), (2, 33, 35))],
    ),
    "bytes_dynamic": (
        dynamic(encoder(1, 32, 1)).SerializeToString(),
        [{"ids": ids(b, n)} for b, n in ((1, 7), (1, 20), (1, 1), (1, 161), (2, 9), (3, 33), (1, 300), (4, 2))],
    ),
    "bytes_static": (
        static(residual_net(32, 8), CALIBRATION).SerializeToString(),
        [{"x": np.resize(CALIBRATION[0], (b, 3, 32, 32))} for b in (1, 2, 3, 1, 5)],
    ),
    "packed": (packed(512).SerializeToString(), [x(n, 512) for n in (3, 1, 40, 9, 2, 100)]),
    "positions": (open_models.positions(), [x(n, 4) for n in (3, 8, 1, 0, 33, 100, 2, 7)]),
    "coordinates": (coordinates(), [x(n, k) for n, k in ((3, 4), (8, 5), (1, 7), (33, 2), (6, 64))]),
    **{
        f"by_float_{'_'.join(map(str, kernels))}": (
            open_models.by_float(*kernels),
            [picture_feeds(*s) for s in ((1, 32, 48), (1, 21, 40), (2, 50, 19), (3, 64, 64), (1, 9, 100), (2, 33, 35))],
        )
        for kernels in ((5,), (5, 1))
    },
    "fourier": (
        open_models.fourier(),
        [x(*shape) for shape in ((3, 8), (5, 8), (9, 8), (4, 12), (7, 12), (40, 12), (2, 35))],
    ),
    "needs_number": (open_models.needs_number(), [x(n, 4) for n in (4, 5, 6, 4)]),
    **{
        f"unet_{mode}{'_sizes' if by_sizes else ''}": (
            open_models.unet(mode, by_sizes),
            [picture_feeds(*s) for s in ((1, 16, 24), (1, 32, 20), (2, 8, 40), (3, 44, 36), (1, 100, 12), (2, 12, 12))],
        )
        for mode, by_sizes in (
            ("nearest", False),
            ("linear", False),
            ("nearest", True),
            ("linear", True),
            ("cubic", False),
            ("cubic", True),
        )
    },
}
CLOSED = {"fourier", "needs_number"}
"""Whose sizes are needed as numbers: a loop, tables of coordinates."""


BYTES_ATOL = {"bytes_dynamic": 0.05, "bytes_static": 0.1}
"""A step of what is quantised, where a value next to a tie became the next byte."""


def check(model: bytes, fed: list[Feeds], outputs: list[list[Any]], atol: float = ATOL) -> None:
    """Compare with onnxruntime, run by run."""
    reference = onnxruntime.InferenceSession(model)
    for feeds, got in zip(fed, outputs, strict=True):
        shapes = {n: v.shape for n, v in feeds.items()}
        for wanted, found in zip(reference.run(None, feeds), got, strict=True):
            assert np.asarray(found).shape == wanted.shape, shapes
            np.testing.assert_allclose(found, wanted, RTOL, atol, err_msg=str(shapes))


WAYS = [
    pytest.param(name, gpu, id=f"{name}-{'gpu' if gpu else 'software'}")
    for at, name in enumerate(CASES)
    for gpu in (False, True)
    if ALL or gpu == bool(at % 2)
]


@pytest.mark.parametrize(("name", "gpu"), WAYS)
def test_sizes__one_after_another__agree_with_onnxruntime(
    name: str, gpu: bool, python_in_browser: BrowserPython
) -> None:
    model, fed = CASES[name]
    outputs, told, plans = python_in_browser(RUN, model=model, fed=fed, gpu=gpu)
    check(model, fed, outputs, BYTES_ATOL.get(name, ATOL))
    assert bool(told["fixed"]) == (name in CLOSED), told
    assert any(plans) or name == "needs_number"


RUN_ALL = "results = []\nfor model, fed, gpu in cases:\n" + "\n".join(
    f"    {line}" for line in [*RUN.strip().splitlines()[:-1], "results.append(outputs)"]
) + "\nresults\n"  # fmt: skip


def test_random_graphs__of_dynamic_dimensions__agree_with_onnxruntime(python_in_browser: BrowserPython) -> None:
    @given(st.lists(drawn, min_size=12, max_size=12))
    @settings(
        max_examples=3,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    def run(batch: list[Any]) -> None:
        cases = []
        for ops, shapes, gpu in batch:
            cases.append([graph_of(ops), [x(*shape) for shape in shapes], gpu])
        results = python_in_browser(RUN_ALL, cases=cases)
        for (ops, shapes, gpu), (model, fed, _), outputs in zip(batch, cases, results, strict=True):
            try:
                check(model, fed, outputs)
            except AssertionError as error:
                raise AssertionError(f"{ops} {shapes} gpu={gpu}: {error}") from error

    run()


JAVASCRIPT = """
globalThis.loaded ??= await InferenceSession.create(decode(model));
const outputs = [];
for (const feeds of fed) {
  const tensors = Object.fromEntries(Object.entries(feeds).map(([name, [type, data, dims]]) => [
    name, new Tensor(type, type === 'int64' ? BigInt64Array.from(data, BigInt) : Float32Array.from(data), dims)]));
  const result = await loaded.run(tensors);
  outputs.push(loaded.outputNames.map((name) => [[...result[name].data], [...result[name].dims]]));
}
if (last) {
  await loaded.release();
  delete globalThis.loaded;
}
return outputs;
"""

REPLAYED: dict[str, list[Feeds]] = {
    "encoder": [encoder_feeds(1, n) for n in (9, 50, 20, 33, 64, 2, 17)],
    "positions": [x(n, 4) for n in (9, 50, 20, 33, 64, 2, 17)],
    **{
        name: [picture_feeds(1, *s) for s in ((32, 36), (64, 60), (44, 56), (28, 64), (36, 36), (64, 20), (16, 16))]
        for name in ("convolutions", "unet_linear")
    },
}


@pytest.mark.parametrize("name", REPLAYED)
def test_javascript__new_sizes_after_the_first__run_without_python(name: str, script: Script) -> None:
    model, fed = CASES[name][0], REPLAYED[name]
    plain = [
        {n: ["int64" if v.dtype == np.int64 else "float32", v.ravel().tolist(), list(v.shape)] for n, v in run.items()}
        for run in fed
    ]
    script.watch()
    found = script(JAVASCRIPT, model=model, fed=plain[:3], last=False)
    before = script.worker.evaluate("() => ({ ...submits })")
    found += script(JAVASCRIPT, model=model, fed=plain[3:], last=True)
    after = script.worker.evaluate("() => ({ ...submits })")
    made = {key: after[key] - before[key] for key in before}
    assert made["withoutPython"] == made["all"] >= len(fed) - 3 > 0, (
        "the first has its own plan, the next two are Python's"
    )
    check(model, fed, [[np.reshape(np.array(data, np.float32), dims) for data, dims in run] for run in found])


RANDOM = """
globalThis.loaded ??= await InferenceSession.create(decode(model));
for (const shapes of fed) {
  const tensors = Object.fromEntries(Object.entries(shapes).map(([name, [type, dims]]) => {
    const size = dims.reduce((a, b) => a * b, 1);
    return [name, new Tensor(type, type === 'int64' ? new BigInt64Array(size).fill(1n) : new Float32Array(size), dims)];
  }));
  await loaded.run(tensors);
}
if (last) {
  await loaded.release();
  delete globalThis.loaded;
}
return fed.length;
"""


def _pictures(r: random.Random) -> Feeds:
    return picture_feeds(r.randint(1, 3), 4 * r.randint(4, 30), 4 * r.randint(4, 30))


RUNS: dict[str, tuple[bytes, Callable[[random.Random], Feeds]]] = {
    "encoder": (open_models.encoder(), lambda r: encoder_feeds(1, r.randint(2, 500))),
    "listener": (open_models.listener(), lambda r: listener_feeds(1, r.randint(3, 500))),
    "unet": (open_models.unet("linear"), _pictures),
}


@pytest.mark.parametrize("name", RUNS)
def test_javascript__runs_of_random_sizes__make_nothing_and_ask_python_nothing_after_40(
    name: str, script: Script
) -> None:
    model, draw = RUNS[name]
    r = random.Random(3)
    fed = [
        {n: ["int64" if v.dtype == np.int64 else "float32", list(v.shape)] for n, v in draw(r).items()}
        for _ in range(150 if ALL else 80)
    ]
    script.page.reload()
    script.watch()
    counts = "() => ({ ...submits, pipelines: created.pipelines })"
    script(RANDOM, model=model, fed=fed[:40], last=False)
    before = script.worker.evaluate(counts)
    script(RANDOM, model=model, fed=fed[40:], last=False)
    after = script.worker.evaluate(counts)
    script(RANDOM, model=model, fed=[], last=True)
    spent = {key: after[key] - before[key] for key in before}
    assert spent["pipelines"] == 0 and spent["withoutPython"] == spent["all"] >= len(fed) - 40, spent
