"""How Blobs are read: the right bytes in any order, in one go from front to back, again where the browser lost them."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

MADE = """
    const { BlobReader } = await import('/web/blobs.js');
    const bytes = new Uint8Array(9 << 20).map((_, i) => (i * 31 + (i >> 11)) & 255);
    const blob = new Blob([bytes.subarray(0, 5 << 20), bytes.subarray(5 << 20)]);
    const reader = new BlobReader(blob);
    const equals = (at, got) => got.every((byte, i) => byte === bytes[at + i]);
    let begun = 0;
    const stream = Blob.prototype.stream;
    Blob.prototype.stream = function () { begun += 1; return stream.call(this); };
    const read = async (at, length) => {
        const target = new Uint8Array(length + 2);
        await reader.copyInto(at, target.subarray(1, length + 1));
        return equals(at, target.subarray(1, length + 1)) && !target[0] && !target[length + 1];
    };
"""
WITHOUT_BYTES = """
    const getReader = ReadableStream.prototype.getReader;
    ReadableStream.prototype.getReader = function (how) {
        if (how) throw new TypeError('no stream of bytes');
        return getReader.call(this);
    };
"""


def evaluate(page: Page, site_url: str, source: str) -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate("async () => {" + MADE + source + "}")


@pytest.mark.parametrize("streams", ["", WITHOUT_BYTES], ids=["streams of bytes", "streams of chunks"])
def test_copy__front_to_back_with_gaps__is_one_stream(page: Page, site_url: str, streams: str) -> None:
    got = evaluate(
        page,
        site_url,
        streams
        + """
        const parts = [[0, 7], [7, 100], [300, 1 << 20], [(1 << 20) + 400, 3 << 20], [(7 << 20) + 1, 1000],
            [(9 << 20) - 5, 5]];
        const right = [];
        for (const [at, length] of parts) right.push(await read(at, length));
        return { right, begun };
        """,
    )
    assert got == {"right": [True] * 6, "begun": 1}


def test_copy__any_order_and_at_once__right_bytes(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        """
        const right = [];
        for (const at of [8 << 20, 0, 5, (6 << 20) + 3, 1 << 20, 0]) right.push(read(at, 1 << 20));
        right.push(read(12, 0), read(3, 2 << 20));
        return (await Promise.all(right)).join();
        """,
    )
    assert got == ",".join(["true"] * 8)


def test_copy__bytes_that_are_not_there__is_an_error_and_the_next_reads(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        """
        const why = await read((9 << 20) - 3, 10).catch(({ message }) => message);
        return [why, await read(5, 10)];
        """,
    )
    assert got == [f"byte {9 << 20} of a Blob of {9 << 20} bytes", True]


def test_copy__nobody_reads_for_a_while__stream_is_closed_and_reads_go_on(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        """
        let cancelled = 0;
        const cancel = ReadableStreamBYOBReader.prototype.cancel;
        ReadableStreamBYOBReader.prototype.cancel = function () { cancelled += 1; return cancel.call(this); };
        const right = [await read(0, 100)];
        for (let i = 0; i < 100 && !cancelled; i++) await new Promise((resolve) => { setTimeout(resolve, 100); });
        right.push(await read(100, 100));
        return { right, cancelled, begun };
        """,
    )
    assert got == {"right": [True, True], "cancelled": 1, "begun": 2}


LOST = """async (failures) => {
    const { ModelFile } = await import('/web/loading/file.js');
    const file = new ModelFile('/m.onnx', { size: 20 << 20, isExact: true });
    const chunk = (n) => new Uint8Array(1 << 20).fill(n);
    await file.take((async function* () { for (let n = 0; n < 20; n++) yield chunk(n); })(), () => {});
    file.settle();
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
def test_model_file__blob_the_browser_cannot_read__is_joined_anew(page: Page, site_url: str, failures: int) -> None:
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(LOST, failures) == "2,2,3,3"


def test_model_file__bytes_the_browser_lost_for_good__says_that_there_is_no_room(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    said = page.evaluate(LOST, 100)
    assert said.startswith("RangeError: the browser has no room for /m.onnx (20,971,520 bytes): ")
    assert "network error" in said


def test_model_file__target_that_went_away__is_not_tried_again(page: Page, site_url: str) -> None:
    page.goto(site_url + "e2e/blank.html")
    said = page.evaluate(
        """async () => {
            const { ModelFile } = await import('/web/loading/file.js');
            const file = new ModelFile('/m.onnx', { size: 1 << 20, isExact: true });
            await file.take((async function* () { yield new Uint8Array(1 << 20); })(), () => {});
            file.settle();
            const target = new Uint8Array(100);
            const began = performance.now();
            const done = file.copyInto(0, target);
            structuredClone(target.buffer, { transfer: [target.buffer] });
            const name = await done.then(() => 'copied', (error) => error.name);
            return [name, performance.now() - began < 5000];
        }"""
    )
    assert said == ["TypeError", True]
