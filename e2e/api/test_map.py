"""`session.map`: the next batch is queued while the one before it is computed; results come in order."""

from __future__ import annotations

import pytest

from e2e.harness.script import Script
from tests.session import models

pytestmark = pytest.mark.unguarded

MAP = """
const session = await InferenceSession.create(decode(model), options);
const batch = (value, rows = 2) => ({ x: new Tensor('float32', new Float32Array(4 * rows).fill(value), [rows, 4]) });
const { client } = await import('/src/web/api/client.js');
const held = () => client().call('keptTensors', {});
"""

GATE = """(total) => {
    const { submit } = GPUQueue.prototype;
    const { mapAsync } = GPUBuffer.prototype;
    let [submits, reads] = [0, 0];
    const waiting = new Set();
    GPUQueue.prototype.submit = function counted(commands) {
        submit.call(this, commands);
        if (!commands.length) return; // who waits asks with these
        submits += 1;
        for (const look of waiting) look();
    };
    GPUBuffer.prototype.mapAsync = async function later(mode, ...range) {
        if (mode === GPUMapMode.READ) {
            reads += 1;
            const wanted = Math.min(reads + 1, total);
            await new Promise((resolve, reject) => {
                const look = () => { if (submits >= wanted) resolve(); };
                setTimeout(() => reject(new Error(`only ${submits} runs were submitted`)), 20_000);
                waiting.add(look);
                look();
            });
        }
        return mapAsync.call(this, mode, ...range);
    };
    globalThis.open = () => {
        Object.assign(GPUQueue.prototype, { submit });
        Object.assign(GPUBuffer.prototype, { mapAsync });
        return { submits, reads };
    };
}"""
"""No result is read before the next run is submitted."""


def test_map__batches__are_submitted_before_the_result_of_the_one_before_is_read(script: Script) -> None:
    script(
        f"{MAP} globalThis.session = session; for (let i = 0; i < 3; i++) await session.run(batch(i));",
        model=models.double(),
        options={},
    )
    script.worker.evaluate(GATE, 5)
    found = script(
        """
        const { session } = globalThis;
        const batch = (value) => ({ x: new Tensor('float32', new Float32Array(8).fill(value), [2, 4]) });
        const [told, values] = [[], []];
        const onProgress = (event) => told.push(event);
        for await (const { y } of session.map([1, 2, 3, 4, 5].map(batch), { onProgress })) values.push(y.data[0]);
        return { told, values };
        """
    )
    counts = script.worker.evaluate("() => open()")
    script("await globalThis.session.release()")
    assert found["values"] == [2, 4, 6, 8, 10]
    assert found["told"] == [{"done": n, "total": 5} for n in range(1, 6)]
    assert counts == {"submits": 5, "reads": 5}


def test_map__async_batches_of_other_sizes__are_what_run_gives(script: Script) -> None:
    found = script(
        f"""{MAP}
        async function* batches() {{ for (const rows of [1, 3, 2, 3]) yield batch(rows, rows); }}
        const made = [];
        const progress = [];
        const onProgress = ({{ done, total = null }}) => progress.push([done, total]);
        const wanted = {{ fetches: ['y'], onProgress }};
        for await (const {{ y }} of session.map(batches(), wanted)) made.push([y.dims[0], y.data[0]]);
        await session.release();
        return {{ made, progress }};
        """,
        model=models.double(),
        options={},
    )
    assert found["made"] == [[1, 2], [3, 6], [2, 4], [3, 6]]
    assert found["progress"] == [[n, None] for n in range(1, 5)]


def test_map__left_early__keeps_nothing_on_the_gpu(script: Script) -> None:
    found = script(
        f"""{MAP}
        for (let i = 0; i < 2; i++) (await session.run(batch(1))).y.dispose();
        const before = await held();
        let asked = 0;
        function* batches() {{ for (let i = 0; i < 9; i++) {{ asked += 1; yield batch(i); }} }}
        for await (const {{ y }} of session.map(batches())) {{ y.dispose(); break; }}
        await session.run(batch(1)).then(({{ y }}) => y.dispose());
        const after = await held();
        await session.release();
        return {{ asked, before, after }};
        """,
        model=models.double(),
        options={"preferredOutputLocation": "gpu-buffer"},
    )
    assert found["asked"] == 2
    assert found["after"] == found["before"]


def test_map__a_batch_that_does_not_fit__rejects_after_those_before_it(script: Script) -> None:
    found = script(
        f"""{MAP}
        const bad = {{ x: new Tensor('float64', new Float64Array(8), [2, 4]) }};
        let count = 0;
        const error = await failure(async () => {{
          for await (const _ of session.map([batch(1), batch(2), bad, batch(3)])) count += 1;
        }});
        const wrong = await failure(async () => {{ session.map(batch(1)); }});
        await session.release();
        return {{ count, name: error.name, wrong: wrong.message }};
        """,
        model=models.double(),
        options={},
    )
    assert found["count"] == 2
    assert found["name"] == "InvalidArgument"
    assert found["wrong"].startswith("batches must be an iterable")
