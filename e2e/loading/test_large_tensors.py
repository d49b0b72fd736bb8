"""Tensors of many megabytes, which go to the GPU and back in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from playwright.sync_api import Page

from e2e.harness.python import BrowserPython
from e2e.harness.script import NOTHING_IS_IDLE

MEGABYTE = 1 << 20


def plus_one() -> np.ndarray[Any, Any]:
    """The bytes of a model: y = x + 1 in uint8, of any length."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.UINT8, ["n"]) for name in "xy")
    one = numpy_helper.from_array(np.ones(1, np.uint8), "one")
    graph = helper.make_graph([helper.make_node("Add", ["x", "one"], ["y"])], "g", [x], [y], [one])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return np.frombuffer(made.SerializeToString(), np.uint8)


# From where on mapped buffers and the page's copies are used again; just below and at the length from which on there
# are pieces; pieces of both sizes with a tail that fills no word; more than all staging buffers together.
LENGTHS = [65_536, 700_001, 2 * MEGABYTE - 1, 2 * MEGABYTE, 5 * MEGABYTE + 3, 17 * MEGABYTE + 1, 49 * MEGABYTE + 2]


def test_javascript__large_tensors_at_once__each_comes_back_whole(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    wrong = page.evaluate(
        """async ({model, lengths}) => {
            const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
            const session = await InferenceSession.create(Uint8Array.from(model));
            const wrong = [];
            const check = async (length, seed) => {
                const data = new Uint8Array(length);
                for (let i = 0; i < length; i++) data[i] = Math.imul(i + seed, 2654435761) >>> 11;
                const before = data.slice();
                const pending = session.run({ x: new Tensor('uint8', data, [length]) });
                data.fill(7);  // the caller's again, as soon as run has returned its promise
                const { y } = await pending;
                let bad = y.data.length === length ? 0 : 1;
                for (let i = 0; i < length; i++) bad += y.data[i] !== (before[i] + 1) % 256;
                if (bad) wrong.push([length, seed, bad]);
            };
            for (const length of lengths) {
                await check(length, 1);  // planned, by Python
                await Promise.all([check(length, 2), check(length, 3), check(length, 4)]);  // replayed
            }
            await Promise.all(lengths.map((length) => check(length, 5)));
            return wrong;
        }""",
        {"model": plus_one().tolist(), "lengths": LENGTHS},
    )
    assert wrong == []


@pytest.mark.parametrize("length", [602_112, 65_535])
def test_javascript__copies_of_inputs__in_memory_that_came_back(page: Page, site_url: str, length: int) -> None:
    page.goto(site_url + "e2e/blank.html")
    found = page.evaluate(
        """async ({model, length}) => {
            const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
            let made = 0;
            globalThis.ArrayBuffer = new Proxy(ArrayBuffer, {
                construct(target, [size]) { made += size === length; return new target(size); } });
            const session = await InferenceSession.create(Uint8Array.from(model));
            const data = new Uint8Array(length), right = [];
            made = 0;
            for (let i = 0; i < 8; i++) {
                data.fill(i);
                const { y } = await session.run({ x: new Tensor('uint8', data, [length]) });
                right.push(y.data.every((byte) => byte === i + 1));
            }
            return { made, right };
        }""",
        {"model": plus_one().tolist(), "length": length},
    )
    assert found["right"] == [True] * 8
    # Python has the first two runs and keeps what they are fed; copies of little are cut out, not filled.
    assert found["made"] <= (3 if length > 65_536 else 0)


def test_python__large_arrays_at_once__each_comes_back_whole(any_python: BrowserPython) -> None:
    got = any_python(
        """
        import asyncio, numpy as np, pyruntime as ort
        from pyruntime.session import environment
        session = await ort.InferenceSession.create(bytes(model), None, ["WebGpuExecutionProvider"])
        wrong = []

        async def check(length, seed):
            x = (np.arange(seed, length + seed, dtype=np.uint32) * np.uint32(2654435761) >> 11).astype(np.uint8)
            (y,) = await session.run_async(None, {"x": x})
            if not np.array_equal(y, x + np.uint8(1)):
                wrong.append([length, seed, int(np.count_nonzero(y != x + np.uint8(1)))])

        for length in lengths:
            await check(length, 1)
            await asyncio.gather(check(length, 2), check(length, 3))
        wrong
        """,
        model=plus_one(),
        lengths=LENGTHS,
    )
    assert got == []


STAGING = """async ({lengths, failures}) => {
    const { upload } = await import('/src/web/gpu/staging.js');
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC;
    const map = GPUBuffer.prototype.mapAsync;
    GPUBuffer.prototype.mapAsync = function (...given) {
        // A GPU that is slow to be done with them, on purpose.
        return new Promise((resolve) => { setTimeout(resolve, 50); }).then(() => map.apply(this, given));
    };
    for (let i = 0; i < failures; i++) {
        const data = { copyInto: async () => { throw new Error('cut off'); } };
        const write = { buffer: null, offset: 0, data, dataOffset: 0, nbytes: 32 << 20 };
        const why = await upload(device, [write]).then(() => 'none', (error) => error.message);
        if (why !== 'cut off') return why;
    }
    const writes = lengths.map((nbytes, n) => ({
        buffer: device.createBuffer({ size: nbytes, usage }), offset: 0,
        data: new Uint8Array(nbytes).fill(n + 1), dataOffset: 0, nbytes }));
    await upload(device, writes);
    const read = device.createBuffer({
        size: 4 * lengths.length, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = device.createCommandEncoder();
    writes.forEach(({ buffer, nbytes }, n) => encoder.copyBufferToBuffer(buffer, nbytes - 4, read, 4 * n, 4));
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ);
    const last = [...new Uint8Array(read.getMappedRange())].filter((_, i) => i % 4 === 0);
    device.destroy();
    return last.join();
}"""


@pytest.mark.parametrize(
    ("lengths", "failures"),
    [([16, 16, 16, 20], 0), ([48, 16], 0), ([20, 16], 13)],
    ids=["small, then large", "large, then small", "after inputs that did not arrive"],
)
def test_uploads__pieces_of_other_sizes_in_flight__do_not_wait_for_each_other(
    page: Page, site_url: str, lengths: list[int], failures: int
) -> None:
    page.goto(site_url + "e2e/blank.html")
    given = {"lengths": [length * MEGABYTE for length in lengths], "failures": failures}
    assert page.evaluate(STAGING, given) == ",".join(str(n + 1) for n in range(len(lengths)))


READING = """async ({ lengths }) => {
    const { Readback } = await import('/src/web/gpu/readback.js');
    const adapter = await navigator.gpu.requestAdapter();
    const device = await adapter.requestDevice();
    const made = [];
    const createBuffer = device.createBuffer.bind(device);
    device.createBuffer = (descriptor) => {
        if (descriptor.label) made.push([descriptor.label, descriptor.size]);
        return createBuffer(descriptor);
    };
    const usage = GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const found = [];
    for (const nbytes of lengths) {
        const bytes = new Uint8Array(nbytes).map((_, i) => (i * 31 + (i >> 20)) % 251);
        const buffer = createBuffer({ size: nbytes + 8, usage });
        device.queue.writeBuffer(buffer, 4, bytes);
        const readback = new Readback(device, [{ buffer, offset: 4, nbytes }]);
        readback.submit([]);
        device.queue.writeBuffer(buffer, 0, new Uint8Array(nbytes + 8));  // as the next run would
        const results = [new Uint8Array(nbytes)];
        await readback.collect(results, []);
        readback.end();
        found.push([results[0].every((byte, i) => byte === bytes[i]), made.splice(0)]);
        buffer.destroy();
    }
    device.destroy();
    return found;
}"""


def test_readback__of_a_large_result__takes_few_staging_buffers_and_what_the_next_run_writes_does_not_reach_it(
    page: Page, site_url: str
) -> None:
    page.add_init_script(NOTHING_IS_IDLE)
    page.goto(site_url + "e2e/blank.html")
    lengths = [66 * MEGABYTE - 4, 4096, 4096, 4096, 66 * MEGABYTE - 4, 12 * MEGABYTE]
    found = page.evaluate(READING, {"lengths": lengths})
    assert [right for right, _ in found] == [True] * len(lengths)
    large, *small, again, middle = [made for _, made in found]
    assert large == [["result", lengths[0]], *[["staging", 4 * MEGABYTE]] * 4, ["staging", 2 * MEGABYTE]]
    assert small == [[["staging", 4096]], [], []], "buffers of large results make way for those of small ones"
    assert again == [["result", lengths[0]]]
    assert middle == [["staging", MEGABYTE]] * 12, "all at once: they are read while the rest is on its way"
