"""What makes a run short: passes encoded while the run before is waited for, and threads that wake up in time."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto, helper
from playwright.sync_api import Page

PLAYING = """async ({ count, runs, together }) => {
    const { play } = await import('/web/player.js');
    const { compile } = await import('/web/recording.js');
    const { bufferOf } = await import('/web/buffers.js');
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    const code = `
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] += 1; }`;
    const pipeline = await compile(device, code).pipeline;
    const buffer = bufferOf(device, 64);
    const entries = [{ binding: 0, resource: { buffer } }];
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const command = { pipeline, group, grid: [16, 1, 1], scaled: [0, -1, -1] };
    const commands = Array.from({ length: count }, () => command);
    let dispatches = 0;
    const { dispatchWorkgroups } = GPUComputePassEncoder.prototype;
    GPUComputePassEncoder.prototype.dispatchWorkgroups = function counted(...grid) {
        dispatches += 1;
        return dispatchWorkgroups.apply(this, grid);
    };
    let submitted = 0;
    const submit = device.queue.submit.bind(device.queue);
    device.queue.submit = (passes) => {
        if (passes.length) submitted = dispatches;
        submit(passes);
    };
    const zero = { buffer, offset: 0, nbytes: 64, data: new ArrayBuffer(64), dataOffset: 0 };
    const read = { buffer, offset: 0, nbytes: 64 };
    const one = async (grid) => {
        const before = dispatches;
        const answer = play(device, commands, [zero], [read], [grid]);
        const waited = submitted - before;  // for those that were encoded until its last submit
        return [waited, [...new Uint32Array((await answer)[0])]];
    };
    const found = [];
    for (const grid of runs) found.push(...await Promise.all(Array.from({ length: together }, () => one(grid))));
    device.destroy();
    return found;
}"""


def _outputs(count: int, grid: int) -> list[int]:
    return [count] * grid + [0] * (16 - grid)


def _played(page: Page, site_url: str, **args: Any) -> list[tuple[int, list[int]]]:
    page.goto(site_url + "e2e/blank.html")
    return [tuple(one) for one in page.evaluate(PLAYING, args)]


def test_play__the_same_run_again__has_its_passes_from_the_third_time_on(page: Page, site_url: str) -> None:
    for count in (1, 48, 150):  # one submit, one, and of 16, 32, 64 and the rest
        found = _played(page, site_url, count=count, runs=[16] * 5, together=1)
        assert [values for _, values in found] == [_outputs(count, 16)] * 5
        assert [waited for waited, _ in found] == [count, count, 0, 0, 0]


def test_play__another_size__is_not_the_run_that_was_encoded(page: Page, site_url: str) -> None:
    grids = [16, 16, 5, 5, 5, 16, 5, 16]
    found = _played(page, site_url, count=60, runs=grids, together=1)
    assert [values for _, values in found] == [_outputs(60, grid) for grid in grids]
    assert [waited for waited, _ in found] == [60, 60, 60, 60, 0, 60, 60, 60]


def test_play__runs_at_once__take_what_the_ones_before_them_have_encoded(page: Page, site_url: str) -> None:
    found = _played(page, site_url, count=20, runs=[16] * 4, together=3)
    assert [values for _, values in found] == [_outputs(20, 16)] * 12
    assert [waited for waited, _ in found] == [20, 20] + [0] * 10


ANNOUNCED = """async ({ model, lengths }) => {
    const said = [];
    const { postMessage } = Worker.prototype;
    Worker.prototype.postMessage = function noted(message, ...rest) {
        if ('announced' in message || message.method === 'run') said.push(message.announced ?? 'run');
        return postMessage.call(this, message, ...rest);
    };
    const { InferenceSession, Tensor } = await import('/web/pyruntime.js');
    const session = await InferenceSession.create(Uint8Array.from(model));
    const right = [];
    for (const length of lengths) {
        const { y } = await session.run({ x: new Tensor('float32', new Float32Array(length).fill(2), [length]) });
        right.push(y.data.length === length && y.data.every((value) => value === 4));
    }
    return { said, right };
}"""


def test_run__of_a_large_input__is_announced_before_it_is_copied(page: Page, site_url: str) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    page.goto(site_url + "e2e/blank.html")
    lengths = [16384, 16384, 16383, 16384, 700_000]  # 64 KB, a word less, and in pieces
    found = page.evaluate(ANNOUNCED, {"model": list(made.SerializeToString()), "lengths": lengths})
    assert found["right"] == [True] * len(lengths)
    announced = found["said"][0]
    assert found["said"] == [announced, "run", announced, "run", "run", announced, "run", announced, "run"]
    assert announced != "run"
