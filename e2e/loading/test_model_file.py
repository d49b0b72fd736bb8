"""A model's file in a worker: its bytes out of the browser's Blobs, in any order, also at its capacity."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

LOST = """async (failures) => {
    const { ModelFile } = await import('/src/web/loading/file.js');
    const { Download } = await import('/src/web/loading/download.js');
    const file = new ModelFile('/m.onnx', { size: 20 << 20, isExact: true });
    const chunk = (n) => new Uint8Array(1 << 20).fill(n);
    const chunks = async function* () { for (let n = 0; n < 20; n++) yield chunk(n); };
    await new Download('/m.onnx', file.size, file).take(chunks());
    const stream = Blob.prototype.stream;
    Blob.prototype.stream = function () {
        return failures-- > 0 ? new ReadableStream({ type: 'bytes', pull() { throw new TypeError('network error'); } })
            : stream.call(this);
    };
    const target = new Uint8Array(4);
    const done = file.copyInto((3 << 20) - 2, target);
    return done.then(() => [...target].join(), (error) => `${error.name}: ${error.message}`);
}"""


@pytest.mark.parametrize("failures", [1, 3])
def test_model_file__part_the_browser_cannot_read__is_read_again(page: Page, site_url: str, failures: int) -> None:
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(LOST, failures) == "2,2,3,3"


def test_model_file__bytes_the_browser_lost_for_good__says_that_there_is_no_capacity(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    said = page.evaluate(LOST, 100)
    assert said.startswith("RangeError: the browser has no storage for /m.onnx (20,971,520 bytes): ")
    assert "network error" in said


def test_model_file__target_that_went_away__is_not_tried_again(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    said = page.evaluate(
        """async () => {
            const { ModelFile } = await import('/src/web/loading/file.js');
            const { Download } = await import('/src/web/loading/download.js');
            const file = new ModelFile('/m.onnx', { size: 1 << 20, isExact: true });
            const chunks = async function* () { yield new Uint8Array(1 << 20); };
            await new Download('/m.onnx', file.size, file).take(chunks());
            const target = new Uint8Array(100);
            const began = performance.now();
            const done = file.copyInto(0, target);
            structuredClone(target.buffer, { transfer: [target.buffer] });
            const name = await done.then(() => 'copied', (error) => error.name);
            return [name, performance.now() - began < 5000];
        }"""
    )
    assert said == ["TypeError", True]


KEPT_SLICES = """
    const { ModelFile } = await import('/src/web/loading/file.js');
    const { Download } = await import('/src/web/loading/download.js');
    const MB = 64, size = (MB << 20) + 12345;
    const byteAt = (at) => (at * 31 + (at >> 11)) & 255;
    const file = new ModelFile('/m.onnx', { size, isExact: true });
    await new Download('/m.onnx', file.size, file).take((async function* () {
        for (let at = 0; at < size; at += 1000003) {
            yield new Uint8Array(Math.min(1000003, size - at)).map((_, i) => byteAt(at + i));
        }
    })(), () => {});
    const { slice } = Blob.prototype;
    const slices = [];
    Blob.prototype.slice = function (...range) {
        slices.push(slice.apply(this, range));
        return slices.at(-1);
    };
    const equals = (at, got) => [0, 1, got.length >> 1, got.length - 1].every((i) => got[i] === byteAt(at + i));
    let seed = 11;
    const any = (below) => (seed = (seed * 48271) % 2147483647) % below;
    const cut = () => slices.reduce((sum, { size }) => sum + size, 0);
"""
"""Slices stay: the browser has a capacity of 500 MiB for Blobs and of what was cut out of them."""


def test_model_file__read_in_a_bad_order__cuts_nothing_out_of_blobs(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    got = page.evaluate(
        "async () => {"
        + KEPT_SLICES
        + """
        const target = new Uint8Array(1 << 20);
        let right = 0;
        for (let i = 0; i < 200; i++) {
            const at = any(size - target.length);
            await file.copyInto(at, target);
            right += equals(at, target);
        }
        const whole = new Uint8Array(await file.whole());
        return [right, whole.length - size, equals(0, whole), slices.length];
    }"""
    )
    assert got == [200, 0, True, 0]


NOW = (
    KEPT_SLICES
    + """
    const right = [], asked = [];
    for (const length of [2, 100, 1 << 20, 9 << 20, 30 << 20]) {
        asked.push(length);
        const at = any(size - length);
        const got = file.partNow(at, length);
        right.push(got.length === length && equals(at, got));
    }
    right.push(file.partNow(size - 5, 6) === null, file.partNow(size, 0)?.length === 0);
    const cutThen = cut();
    Blob.prototype.slice = () => { throw new DOMException('no capacity', 'NotReadableError'); };
    for (let i = 0; i < 5; i++) {
        const at = any(size - 100000);
        right.push(equals(at, file.partNow(at, 100000)));
    }
    postMessage({ right: right.every(Boolean), isCutLess: cutThen <= asked.reduce((sum, length) => sum + length) });
"""
)


def test_model_file__read_without_waiting__cuts_out_no_more_than_is_asked_for(page: Page, site_url: str) -> None:
    page.route("**/e2e/now.js", lambda route: route.fulfill(body=NOW, content_type="text/javascript"))
    page.goto(site_url + "e2e/blank.html")
    got = page.evaluate(
        """() => new Promise((resolve, reject) => {
            const worker = new Worker('/e2e/now.js', { type: 'module' });
            worker.onmessage = ({ data }) => { worker.terminate(); resolve(data); };
            worker.onerror = ({ message }) => reject(new Error(message));
        })"""
    )
    assert got == {"right": True, "isCutLess": True}
