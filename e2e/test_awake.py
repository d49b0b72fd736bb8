"""The GPU kept at work while the last weights of a decoder go up: until that is over, and not where it takes long."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

KEPT = """async ([done, behind]) => {
    const { keepAwake } = await import('/web/ahead/awake.js');
    const adapter = await navigator.gpu.requestAdapter();
    const device = await adapter.requestDevice();
    const wrong = [];
    device.addEventListener('uncapturederror', ({ error }) => wrong.push(error.message));
    let submits = 0;
    const { submit } = GPUQueue.prototype;
    GPUQueue.prototype.submit = function (commands) {
        if (commands.length) submits += 1;
        return submit.call(this, commands);
    };
    if (behind) device.queue.onSubmittedWorkDone = () => new Promise((resolve) => { setTimeout(resolve, behind); });
    const before = submits;
    const count = await keepAwake(device, () => submits - before >= done);
    return [count, submits - before, wrong];
}"""


@pytest.mark.parametrize(
    ("done", "behind", "least", "most"),
    [
        (0, 0, 0, 0),
        (3, 1, 3, 4),  # what is queued when it is over is waited for
        (100, 60, 1, 1),  # a GPU that takes long for the first one is left alone
    ],
)
def test_keep_awake__until_it_is_over(
    page: Page, site_url: str, done: int, behind: int, least: int, most: int
) -> None:
    page.goto(site_url + "e2e/blank.html")
    got: list[Any] = page.evaluate(KEPT, [done, behind])
    count, submits, wrong = got
    assert count == submits and least <= count <= most and wrong == []
