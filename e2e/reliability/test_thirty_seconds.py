"""A run of thirty seconds on a software adapter: the page draws and answers meanwhile, and an abort ends it at once."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model
from tests.sampling import ALL

pytestmark = pytest.mark.skipif(not ALL, reason="minutes; `dev.py soak` and `dev.py nightly` run it")

SIZE, PROBE = 256, 200
SECONDS, GAP, ABORT = 30.0, 0.5, 0.5

RUN = """
    const options = plan ? { plan: decode(plan) } : {};
    const session = await InferenceSession.create(new Blob([decode(model)]), options);
    const x = new Tensor('float32', new Float32Array(size * size).map((_, i) => i % 251), [size, size]);
    const seconds = async (work) => {
      const began = performance.now();
      const result = await work().catch(({ name }) => name);
      return [(performance.now() - began) / 1000, result];
    };
    const isRight = ({ y }) => y.data.every((v, i) => v === x.data[i - i % size + (i - layers % size + size) % size]);
    await session.run({ x });
"""

WATCHED = """
    const gaps = { frame: 0, timer: 0 };
    const last = {};
    let [frames, on] = [0, true];
    const note = (kind) => {
      const now = performance.now();
      gaps[kind] = Math.max(gaps[kind], (now - (last[kind] ?? now)) / 1000);
      last[kind] = now;
    };
    const frame = () => { frames += 1; note('frame'); if (on) requestAnimationFrame(frame); };
    requestAnimationFrame(frame);
    const timer = setInterval(() => note('timer'), 50);
    const events = [];
    const [took, outputs] = await seconds(() => session.run({ x }, { onProgress: ({ phase, loaded, total }) => {
      if (phase === 'run') events.push(loaded / total);
    } }));
    on = false;
    clearInterval(timer);
    const control = new AbortController();
    let asked = 0;
    const aborted = session.run({ x }, { signal: control.signal, onProgress: ({ phase, loaded, total }) => {
      if (phase === 'run' && loaded > total / 10 && !asked) { asked = performance.now(); control.abort(); }
    } }).catch(({ name }) => name);
    const end = await aborted;
    const toAbort = (performance.now() - asked) / 1000;
    await session.release();
    return { took, right: isRight(outputs), gaps, frames, events, end, toAbort };
"""


def chain(layers: int) -> bytes:
    """Products with a matrix that turns the columns, one after another."""
    turned = numpy_helper.from_array(np.roll(np.eye(SIZE, dtype=np.float32), 1, 1), "w")
    names = ["x", *(f"h{k}" for k in range(1, layers)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy")
    graph = helper.make_graph(nodes, "test", [x], [y], [turned])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("way", ["Python", "plan"])
def test_run__of_thirty_seconds__leaves_the_page_its_turns_and_ends_when_aborted(
    way: str, script: Script, tmp_path: Path
) -> None:
    path = tmp_path / "chain.onnx"

    def given(layers: int) -> dict[str, Any]:
        path.write_bytes(chain(layers))
        plan = compile_model(path) if way == "plan" else None
        return {"model": path.read_bytes(), "plan": plan, "size": SIZE, "layers": layers}

    probe = RUN + "const [took] = await seconds(() => session.run({ x })); await session.release(); return took;"
    took = script(probe, **given(PROBE))
    found = script(RUN + WATCHED, **given(math.ceil(PROBE * 1.5 * SECONDS / took)))
    print(way, {key: value for key, value in found.items() if key != "events"}, len(found["events"]), "reports")
    assert found["right"] and found["took"] > SECONDS / 2
    assert len(found["events"]) > found["took"] and found["events"] == sorted(found["events"])
    assert max(found["gaps"].values()) < GAP
    assert found["end"] == "AbortError" and found["toAbort"] < ABORT
