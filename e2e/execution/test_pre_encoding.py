"""What makes a run short: passes that are encoded while the run before is waited for."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

PLAYING = """async ({ count, runs, together }) => {
    const { play } = await import('/src/web/gpu/player.js');
    const { compile } = await import('/src/web/gpu/recording.js');
    const { bufferOf } = await import('/src/web/gpu/buffers.js');
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
