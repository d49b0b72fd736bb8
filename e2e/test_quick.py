"""Kernels that run until their pipelines are there (web/quick.js): which a run has, and what is compiled when."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

PLAYING = """async ({ body }) => {
    const { play } = await import('/web/player.js');
    const { compileQuickly, settled } = await import('/web/quick.js');
    const { bufferOf } = await import('/web/buffers.js');
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    const entries = [];
    const { createComputePipelineAsync } = GPUDevice.prototype;
    GPUDevice.prototype.createComputePipelineAsync = function counted(descriptor) {
        entries.push(descriptor.compute.entryPoint);
        return createComputePipelineAsync.call(this, descriptor);
    };
    const warned = [];
    console.warn = (text) => warned.push(text);
    const texts = [];
    const { createShaderModule } = GPUDevice.prototype;
    GPUDevice.prototype.createShaderModule = function kept(descriptor) {
        texts.push(descriptor.code);
        return createShaderModule.call(this, descriptor);
    };
    const made = compileQuickly(device, body);
    const pipeline = await made.pipeline;
    const buffer = bufferOf(device, 64);
    const group = device.createBindGroup({
        layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }] });
    const commands = [{ pipeline, group, grid: [16, 1, 1], scaled: [] }];
    const zero = { buffer, offset: 0, nbytes: 64, data: new ArrayBuffer(64), dataOffset: 0 };
    const run = async () => {
        const [answer] = await play(device, commands, [zero], [{ buffer, offset: 0, nbytes: 64 }], []);
        return [...new Set(new Uint32Array(answer))];
    };
    const before = [...entries];
    const first = await run();
    await settled(device);
    const later = [await run(), await run(), await run()];
    await settled(device);
    device.destroy();
    return { before, first, later, entries, texts, warned, code: made.code };
}"""

BODY = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
// <whole>
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] = 2; }
// </whole>
//
// <quick>
@compute @workgroup_size(1) fn quick(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] = 1; }
// </quick>
"""


def _played(page: Page, site_url: str, body: str) -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate(PLAYING, {"body": body})


def test_compile__two_entry_points__a_first_run_is_quick_and_later_ones_whole(page: Page, site_url: str) -> None:
    found = _played(page, site_url, BODY)
    assert found["before"] == ["quick"], "nothing else compiles in front of the first run"
    assert found["first"] == [1]
    assert found["later"] == [[2], [2], [2]]
    assert found["entries"] == ["quick", "main"]
    quick, whole = found["texts"]
    assert "fn main" not in quick and "fn quick" not in whole
    assert found["code"] == quick
    assert found["warned"] == []


def test_compile__one_entry_point__compiles_once(page: Page, site_url: str) -> None:
    found = _played(page, site_url, BODY.split("// </whole>")[0].replace("// <whole>\n", ""))
    assert (found["entries"], found["first"], found["later"]) == (["main"], [2], [[2], [2], [2]])


def test_compile__whole_kernel_does_not_compile__quick_goes_on_and_it_is_told(page: Page, site_url: str) -> None:
    found = _played(page, site_url, BODY.replace("x[at.x] = 2;", "x[at.x] = nothing;"))
    assert (found["first"], found["later"]) == ([1], [[1], [1], [1]])
    assert len(found["warned"]) == 1 and "stays slow" in found["warned"][0]
