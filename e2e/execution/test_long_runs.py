"""Runs of much work, in Python's worker and over a plan in the page's thread: slices, progress, aborts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.script import Script
from pyruntime.session.aot.compile_ahead import compile_model

SIZE, LAYERS = 256, 200
"""Of square products: 7 billion operations, seconds on SwiftShader."""

RUN = """
    const options = plan ? { plan: decode(plan) } : {};
    const session = await InferenceSession.create(new Blob([decode(model)]), options);
    const dims = [size, size];
    const x = new Tensor('float32', new Float32Array(size * size).map((_, i) => i % 251), dims);
    const wrong = ({ y }) => y.data.findIndex((v, i) => v !== x.data[i - i % size + (i - layers % size + size) % size]);
"""

COUNT_DISPATCHES = """() => {
    const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
    globalThis.dispatches = 0;
    GPUComputePassEncoder.prototype.dispatchWorkgroups = function counted(...grid) {
        globalThis.dispatches += 1;
        return dispatchWorkgroups.apply(this, grid);
    };
}"""


@pytest.fixture(params=["Python", "plan"])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, object]:
    """A chain of products with a matrix that turns the columns, and what runs it."""
    turned = numpy_helper.from_array(np.roll(np.eye(SIZE, dtype=np.float32), 1, 1), "w")
    names = ["x", *(f"h{k}" for k in range(1, LAYERS)), "y"]
    nodes = [helper.make_node("MatMul", [a, "w"], [b]) for a, b in pairwise(names)]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy")
    graph = helper.make_graph(nodes, "test", [x], [y], [turned])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "chain.onnx"
    path.write_bytes(model.SerializeToString())
    plan = compile_model(path) if request.param == "plan" else None
    return {"model": path.read_bytes(), "plan": plan, "size": SIZE, "layers": LAYERS}


def test_run__long__reports_progress_and_leaves_the_page_its_turns(script: Script, given: dict[str, object]) -> None:
    found = script(
        RUN
        + """
        let turns = 0;
        const timer = setInterval(() => { turns += 1; }, 10);
        const turnsAt = [];
        const events = [];
        const onProgress = (event) => { events.push(event); turnsAt.push(turns); };
        const outputs = await session.run({ x }, { onProgress });
        clearInterval(timer);
        await session.release();
        return { wrong: wrong(outputs), events, turnsAt };
        """,
        **given,
    )
    assert found["wrong"] == -1
    events = [e for e in found["events"] if e["phase"] == "run"]
    done = [e["loaded"] for e in events]
    assert len(done) > 3 and done == sorted(set(done)) and done[-1] == events[0]["total"]
    assert len(set(found["turnsAt"])) > len(done) // 4


def test_run__long_and_aborted__submits_nothing_more(script: Script, given: dict[str, object]) -> None:
    script(f"{RUN} Object.assign(globalThis, {{ session, x, wrong }});", **given)
    thread = script.page if given["plan"] else script.worker
    thread.evaluate(COUNT_DISPATCHES)
    end = script(
        """
        const control = new AbortController();
        let events = 0;
        const onProgress = ({ phase }) => { events += phase === 'run'; if (events === 2) control.abort(); };
        return session.run({ x }, { onProgress, signal: control.signal }).then(() => 'done', ({ name }) => name);
        """
    )
    assert end == "AbortError"
    right = script("return wrong(await session.run({ x }));")
    assert right == -1
    dispatches = thread.evaluate("() => dispatches")
    assert LAYERS < dispatches < 2 * LAYERS, "the aborted run was submitted in part"
    script("await session.release();")
