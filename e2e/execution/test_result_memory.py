"""Memory for large results, which another thread makes for the next run."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from e2e.harness.script import NOTHING_IS_IDLE

MEGABYTE = 1 << 20

ASK = """async ({ sizes }) => {
    const { makeMemoryBy } = await import('/src/web/gpu/result_memory.js');
    const { resultMemory } = await import('/src/web/gpu/readback.js');
    const { downloads } = await import('/src/web/loading/downloads.js');
    const { makeDownloader } = await import('/src/web/api/port.js');
    downloads.start(new Promise(() => {}), (port) => makeDownloader(port, () => {}));
    await downloads.open('/index.html', false, new AbortController().signal);  // the thread is up
    const orders = [];
    makeMemoryBy(async (nbytes) => {
        const buffer = downloads.memory(nbytes);
        orders.push(buffer);
        return buffer;
    });
    const ready = [];
    const taken = [];
    for (const size of sizes) {
        const { bytes, isReady } = resultMemory.take(size);
        ready.push(isReady && bytes.every((byte) => byte === 0));
        taken.push(bytes.fill(7).buffer);
        resultMemory.taken([size]);
        await Promise.all(orders);
        await new Promise((resolve) => { setTimeout(resolve); });
    }
    return { ready, orders: orders.length, own: new Set(taken).size };
}"""


@pytest.mark.parametrize(
    ("sizes", "ready", "orders"),
    [
        ([24 * MEGABYTE] * 3, [False, True, True], 4),
        ([MEGABYTE + 8, 3, 4096, MEGABYTE + 8], [False, False, False, True], 3),  # small ones are not worth it
        ([50 * MEGABYTE, 60 * MEGABYTE, 50 * MEGABYTE], [False, False, False], 6),  # no more than 128 MB are kept
        ([200 * MEGABYTE] * 2, [False, False], 0),
    ],
)
def test_result_memory__after_a_run_of_the_size__is_in_place_and_not_shared(
    page: Page, site_url: str, sizes: list[int], ready: list[bool], orders: int
) -> None:
    page.add_init_script(NOTHING_IS_IDLE)
    page.goto(site_url + "e2e/blank.html")
    found = page.evaluate(ASK, {"sizes": sizes})
    assert found == {"ready": ready, "orders": orders, "own": len(sizes)}


def test_result_memory__no_thread__is_made_at_each_run(page: Page, site_url: str) -> None:
    page.add_init_script(NOTHING_IS_IDLE)
    page.goto(site_url + "e2e/blank.html")
    found = page.evaluate(
        """async () => {
            const { makeMemoryBy } = await import('/src/web/gpu/result_memory.js');
    const { resultMemory } = await import('/src/web/gpu/readback.js');
            const { downloads } = await import('/src/web/loading/downloads.js');
            let asked = 0;
            makeMemoryBy((nbytes) => { asked += 1; return downloads.memory(nbytes); });
            const ready = [];
            for (let i = 0; i < 3; i++) {
                ready.push(resultMemory.take(1 << 20).isReady);
                resultMemory.taken([1 << 20]);
                await new Promise((resolve) => { setTimeout(resolve); });
            }
            return [ready, asked];
        }"""
    )
    assert found == [[False, False, False], 2]
