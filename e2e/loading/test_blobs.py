"""How Blobs are read: the right bytes in any order, in one go from front to back, again where the browser lost them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

MADE = """
    const { BlobReader } = await import('/src/web/net/blobs.js');
    const bytes = new Uint8Array(9 << 20).map((_, i) => (i * 31 + (i >> 11)) & 255);
    const blob = new Blob([bytes.subarray(0, 5 << 20), bytes.subarray(5 << 20)]);
    const reader = new BlobReader(blob);
    const equals = (at, got) => got.every((byte, i) => byte === bytes[at + i]);
    let begun = 0, cut = 0;
    const { stream, slice } = Blob.prototype;
    Blob.prototype.stream = function () { begun += 1; return stream.call(this); };
    Blob.prototype.slice = function (...range) {
        const made = slice.apply(this, range);
        cut += made.size;
        return made;
    };
    const from = (reader) => async (at, length) => {
        const target = new Uint8Array(length + 2);
        await reader.copyInto(at, target.subarray(1, length + 1));
        return equals(at, target.subarray(1, length + 1)) && !target[0] && !target[length + 1];
    };
    const read = from(reader);
    const parts = [];
    for (let at = 0, size = 1; at < bytes.length; at += size, size = (size * 7) % 1300021) {
        parts.push(new Blob([bytes.subarray(at, at + size)]));
    }
"""
WITHOUT_BYTES = """
    const getReader = ReadableStream.prototype.getReader;
    ReadableStream.prototype.getReader = function (how) {
        if (how) throw new TypeError('no byte stream');
        return getReader.call(this);
    };
"""


def evaluate(page: Page, site_url: str, source: str) -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate("async () => {" + MADE + source + "}")


@pytest.mark.parametrize("streams", ["", WITHOUT_BYTES], ids=["byte streams", "streams of chunks"])
def test_copy__front_to_back_with_gaps__is_one_stream(page: Page, site_url: str, streams: str) -> None:
    got = evaluate(
        page,
        site_url,
        streams
        + """
        const places = [[0, 7], [7, 100], [300, 1 << 20], [(1 << 20) + 400, 3 << 20], [(7 << 20) + 1, 1000],
            [(9 << 20) - 5, 5]];
        const right = [];
        for (const [at, length] of places) right.push(await read(at, length));
        return { right, begun, cut };
        """,
    )
    assert got == {"right": [True] * 6, "begun": 1, "cut": 0}


@pytest.mark.parametrize("streams", ["", WITHOUT_BYTES], ids=["byte streams", "streams of chunks"])
def test_copy__parts_front_to_back_with_gaps__is_one_stream_for_each(page: Page, site_url: str, streams: str) -> None:
    got = evaluate(
        page,
        site_url,
        streams
        + """
        const next = from(new BlobReader(parts));
        const right = [];
        for (let at = 0; at < bytes.length; at += 100003) {
            right.push(await next(at, Math.min(70001, bytes.length - at)));
        }
        return { right: right.every(Boolean), begun: begun - parts.length, cut };
        """,
    )
    assert got == {"right": True, "begun": 0, "cut": 0}


@pytest.mark.parametrize("streams", ["", WITHOUT_BYTES], ids=["byte streams", "streams of chunks"])
def test_copy__parts_of_odd_sizes_in_any_order_and_at_once__right_bytes_and_no_slices(
    page: Page, site_url: str, streams: str
) -> None:
    got = evaluate(
        page,
        site_url,
        streams
        + """
        const next = from(new BlobReader(parts));
        let seed = 7;
        const any = (below) => (seed = (seed * 48271) % 2147483647) % below;
        const right = [];
        for (let i = 0; i < 60; i++) {
            const at = any(bytes.length);
            right.push(next(at, any(Math.min(bytes.length - at, i % 2 ? 100 : 2 << 20) + 1)));
            if (i % 5 === 0) await right[i];
        }
        const sizes = new Set(parts.map(({ size }) => size)).size;
        return { right: (await Promise.all(right)).every(Boolean), sizes, cut };
        """,
    )
    assert got["right"] and got["cut"] == 0
    assert got["sizes"] > 8, "parts of one size prove less"


def test_copy__parts_that_arrive_while_others_are_read__is_one_stream_for_each(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        """
        const [there, right] = [[], []];
        const next = from(new BlobReader(there));
        for (let at = 0, most = 0; parts.length || at < most;) {
            const near = at + (right.length % 3 ? 1 << 20 : 0); // one read in three has nothing after it
            while (parts.length && most <= near) {
                there.push(parts.shift());
                most += there.at(-1).size;
            }
            const length = Math.min(most - at, 1 << 19);
            right.push(await next(at, length));
            at += length;
        }
        return { right: right.every(Boolean), begun: begun - there.length, cut, parts: there.length > 20 };
        """,
    )
    assert got == {"right": True, "begun": 0, "cut": 0, "parts": True}


def test_copy__a_part_whose_stream_breaks_or_ends_too_soon__is_an_error_and_the_next_reads(
    page: Page, site_url: str
) -> None:
    got = evaluate(
        page,
        site_url,
        """
        const large = [0, 3, 6].map((at) => new Blob([bytes.subarray(at << 20, (at + 3) << 20)]));
        const next = from(new BlobReader(large));
        let ends = (controller) => controller.error(new TypeError('network error'));
        Blob.prototype.stream = function () {
            const whole = stream.call(this);
            if (this !== large[1] || !ends) return whole;
            let left = 1300000;
            const from = whole.getReader();
            return new ReadableStream({ type: 'bytes', async pull(controller) {
                const { value } = await from.read();
                const some = value.subarray(0, left);
                left -= some.length;
                if (some.length) controller.enqueue(some);
                if (!left) ends(controller);
            } });
        };
        const said = [];
        said.push(await next(0, 8 << 20).catch(({ name, message }) => `${name}: ${message}`));
        ends = (controller) => { controller.close(); controller.byobRequest?.respond(0); };
        said.push(await next((3 << 20) + 5, 2 << 20).catch(({ name, message }) => `${name}: ${message}`));
        said.push(await next((3 << 20) + 5, 100000));
        ends = null;
        said.push(await next(0, 9 << 20));
        return said;
        """,
    )
    of = f"Unreadable: a Blob of {9 << 20} bytes cannot be read at"
    assert got[0].startswith(of) and got[0].endswith(": network error")
    assert got[1].startswith(of) and got[1].endswith(f": it ends {(3 << 20) - 1300000} bytes too soon")
    assert got[2:] == [True, True]


def test_copy__in_the_middle_of_a_large_blob__is_begun_there_by_a_slice(page: Page, site_url: str) -> None:
    """It may be a file of many GB."""
    got = evaluate(
        page,
        site_url,
        """
        const right = [await read((8 << 20) - 3, 1000), await read(5 << 20, 10), await read(3, 10)];
        return { right, begun, cut };
        """,
    )
    assert got == {"right": [True] * 3, "begun": 3, "cut": (1 << 20) + 3 + (4 << 20)}


def test_copy__slices_that_cannot_be_read__is_from_the_front_of_the_blob(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        """
        const sliced = Blob.prototype.slice;
        let slices = 0;
        Blob.prototype.slice = function (...range) {
            slices += 1;
            const made = sliced.apply(this, range);
            made.stream = () => new ReadableStream({ type: 'bytes', pull() { throw new TypeError('network error'); } });
            return made;
        };
        const right = [];
        for (const at of [8, 6, 0, 5, 7]) right.push(await read(at << 20, 1 << 20));
        return { right, slices };
        """,
    )
    assert got == {"right": [True] * 5, "slices": 1}


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


def test_copy__no_read_for_a_while__stream_is_closed_and_reads_go_on(page: Page, site_url: str) -> None:
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


BYTES = ((np.arange(9 << 20) * 31 + (np.arange(9 << 20) >> 11)) & 255).astype(np.uint8).tobytes()
"""Those of `MADE`."""


def hash_of_blocks(size: int) -> str:
    return hashlib.sha256(
        b"".join(hashlib.sha256(BYTES[at : at + size]).digest() for at in range(0, len(BYTES), size))
    ).hexdigest()


def test_tree_hash__of_a_blob__cuts_nothing_out_of_it(page: Page, site_url: str) -> None:
    got = evaluate(
        page,
        site_url,
        "const { treeHash } = await import('/src/web/plans/treehash.js'); return [await treeHash(blob), cut];",
    )
    assert got == [hash_of_blocks(4 << 20), 0]


def test_download__that_is_kept__is_read_from_there_without_slices(page: Page, site_url: str) -> None:
    page.route("**/e2e/kept.bin", lambda route: route.fulfill(body=BYTES, headers={"ETag": '"1"'}))
    got = evaluate(
        page,
        site_url,
        """
        const { download } = await import('/src/web/ui/app/model/download.js');
        const responses = [];
        const made = Response.prototype.blob;
        Response.prototype.blob = async function () {
            responses.push(await made.call(this));
            return responses.at(-1);
        };
        const url = new URL('/e2e/kept.bin', location.href);
        const { signal } = new AbortController();
        const first = await download(url, { signal });
        const isUncut = cut < 10; // a byte of each part
        const second = await download(url, { signal });
        const right = [];
        for (const { blob: got } of [first, second]) {
            right.push(got.size === 9 << 20 && equals(0, new Uint8Array(await got.arrayBuffer())));
        }
        const isKeptOne = first.blob === responses[0];
        return { right, kept: [first.kept, second.kept], isKeptOne, isUncut };
        """,
    )
    assert got == {"right": [True, True], "kept": [False, True], "isKeptOne": True, "isUncut": True}
