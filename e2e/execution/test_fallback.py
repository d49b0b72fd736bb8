"""Fallback kernels, which run while optimized ones compile (web/gpu/fallback.js): which a run has, and when."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from e2e.harness.python import BrowserPython
from pyruntime.kernels.ir.fallback import without_fallback

PLAYING = """async ({ bodies, early }) => {
    const { play } = await import('/src/web/gpu/player.js');
    const { record } = await import('/src/web/gpu/recording.js');
    const { compileWithFallback, whenOptimized } = await import('/src/web/gpu/fallback.js');
    const { bufferOf } = await import('/src/web/gpu/buffers.js');
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
    const made = bodies.map((body) => compileWithFallback(device, body));
    const ready = Promise.all(made.map(({ pipeline }) => pipeline));
    const buffer = bufferOf(device, 64);
    const rows = bodies.map((_, i) => [i, [16 / bodies.length, 1, 1], [], [0, 0, 64], 0]);
    const text = JSON.stringify({ rows, order: null, repeated: [] });
    const { commands } = record(device, text, early ? made : await ready, [buffer]);
    await ready;
    const zero = { buffer, offset: 0, nbytes: 64, data: new ArrayBuffer(64), dataOffset: 0 };
    const run = async () => {
        const [answer] = await play(device, commands, [zero], [{ buffer, offset: 0, nbytes: 64 }], []);
        return [...new Set(new Uint32Array(answer))];
    };
    const before = [...entries];
    const first = await run();
    await whenOptimized(device);
    const later = [await run(), await run(), await run()];
    await whenOptimized(device);
    device.destroy();
    return { before, first, later, entries, texts, warned, code: made[0].code };
}"""

BODY = """
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
// <optimized>
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] = 2; }
// </optimized>
//
// <fallback>
@compute @workgroup_size(1) fn fallback(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] = 1; }
// </fallback>
"""


def _played(page: Page, site_url: str, *bodies: str, early: bool = False) -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate(PLAYING, {"bodies": bodies, "early": early})


@pytest.mark.parametrize("early", [False, True], ids=["recorded after its pipeline", "recorded before"])
def test_compile__two_entry_points__first_run_uses_the_fallback_and_later_ones_the_optimized_kernel(
    page: Page, site_url: str, early: bool
) -> None:
    found = _played(page, site_url, BODY, early=early)
    assert found["before"] == ["fallback"], "nothing else compiles before the first run"
    assert found["first"] == [1]
    assert found["later"] == [[2], [2], [2]]
    assert found["entries"] == ["fallback", "main"]
    fallback, optimized = found["texts"]
    assert "fn main" not in fallback and optimized == without_fallback(BODY), "what a plan that is kept has"
    assert found["code"] == fallback
    assert len(fallback.splitlines()) == len(BODY.splitlines()) - 3, (
        "errors name lines of the text without the other's part"
    )
    assert found["warned"] == []


TILED = """
// tiled_SIDE
const SIDE: u32 = SIDEu;
const TWICE: u32 = 2u * SIDE;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
// <optimized>
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3<u32>) { x[at.x + FROMu] = TWICE; }
// </optimized>
//
// <fallback>
@compute @workgroup_size(1) fn fallback(@builtin(workgroup_id) at: vec3<u32>) { x[at.x] = 1; x[at.x + 8u] = 1; }
// </fallback>
"""


def test_compile__kernels_that_differ_in_their_tiles_alone__have_one_fallback_pipeline(
    page: Page, site_url: str
) -> None:
    bodies = [
        TILED.replace("SIDEu", f"{side}u").replace("_SIDE", f"_{side}").replace("FROM", str(start))
        for side, start in ((4, 0), (8, 8))
    ]
    found = _played(page, site_url, *bodies, early=True)
    assert found["before"] == ["fallback"]
    assert found["first"] == [1]
    assert found["later"] == [[8, 16], [8, 16], [8, 16]], "each has an optimized kernel of its own"
    assert sorted(found["entries"]) == ["fallback", "main", "main"]
    assert "SIDE" not in found["texts"][0] and "tiled" not in found["texts"][0]


def test_compile__kernels_that_differ_in_their_fallback_alone__have_one_optimized_pipeline(
    page: Page, site_url: str
) -> None:
    found = _played(page, site_url, BODY, BODY.replace("x[at.x] = 1;", "x[at.x] = 3;"))
    assert (found["before"], found["first"]) == (["fallback", "fallback"], [3, 0]), "half of the places are written"
    assert found["later"] == [[2, 0], [2, 0], [2, 0]]
    assert sorted(found["entries"]) == ["fallback", "fallback", "main"]


def test_compile__a_fallback_kernel_that_uses_the_size_of_a_tile__is_one_of_its_own(page: Page, site_url: str) -> None:
    bodies = [TILED.replace("SIDEu", f"{side}u").replace("= 1;", "= TWICE;").replace("FROM", "0") for side in (4, 8)]
    found = _played(page, site_url, *bodies)
    assert found["before"] == ["fallback", "fallback"]
    assert found["first"] == [16], "the second overwrites the first"


def test_compile__one_entry_point__compiles_once(page: Page, site_url: str) -> None:
    found = _played(page, site_url, BODY.split("// </optimized>")[0].replace("// <optimized>\n", ""))
    assert (found["entries"], found["first"], found["later"]) == (["main"], [2], [[2], [2], [2]])


def test_compile__optimized_kernel_does_not_compile__fallback_stays_and_it_is_reported(
    page: Page, site_url: str
) -> None:
    found = _played(page, site_url, BODY.replace("x[at.x] = 2;", "x[at.x] = nothing;"))
    assert (found["first"], found["later"]) == ([1], [[1], [1], [1]])
    assert len(found["warned"]) == 1 and "stays slow" in found["warned"][0]


def test_compile__fallback_kernel_does_not_compile__the_error_names_the_kernel_and_shows_the_line(
    python_in_browser: BrowserPython,
) -> None:
    text = "// some_kernel\n" + BODY.replace("x[at.x] = 1;", "x[at.x] = nothing;")
    said = python_in_browser(
        """
        from pyruntime.errors import EngineError
        from pyruntime.session.environment import device
        try:
            await (await device()).compile([text])
            said = ""
        except EngineError as error:
            said = str(error)
        said
        """,
        text=text,
    )
    first, line, caret, *_ = said.splitlines()
    assert first.startswith("some_kernel: WGSL line ") and "nothing" in first
    assert line.index("nothing") == caret.index("^")


def test_compile__one_of_several_that_run_together_fails__the_others_stay_and_it_is_begun_anew(
    python_in_browser: BrowserPython,
) -> None:
    good = "// good\n" + BODY.replace("= 1;", "= 3;")
    found = python_in_browser(
        """
        from pyruntime.errors import EngineError
        from pyruntime.session.environment import device
        gpu = await device()
        before, said = gpu.ledger.pipelines, []
        gpu.ask(good)
        for _ in range(2):
            try:
                await gpu.compile([good, bad])
            except EngineError as error:
                said.append(str(error).splitlines()[0])
        made = gpu.ledger.pipelines - before
        await gpu.compile([good])
        said, made, gpu.ledger.pipelines - before
        """,
        good=good,
        bad=good.replace("// good", "// bad").replace("= 3;", "= nothing;"),
    )
    said, made, later = found
    assert len(said) == 2 and all(text.startswith("bad: WGSL line ") for text in said)
    assert (made, later) == (1, 1)
