"""Downloads in a separate worker: what it brings, how it fails, and what happens where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from e2e.harness.chain import ROW, expected, loaded, model
from e2e.harness.delivery import Delivery, Served
from e2e.harness.script import DOWNLOADS_ARE_UP, Script

BYTES = bytes(range(251)) * 80_000
"""20 MB, in three parts."""

OPEN = """
    const controller = new AbortController();
    const open = (url, isModel = false) => downloads.open(url, isModel, controller.signal);
    const brought = (opened, onPart) => new Promise((resolve) => {
        const parts = [];
        const handed = (part) => { parts.push(part); onPart?.(); };
        opened.into({ handed, graph() {}, failed: (error) => resolve({ error }),
            ended: (segments, agrees) => resolve({ parts, agrees }) });
    });
    const inPieces = (opened, onProgress) => new Promise((resolve, reject) => {
        const parts = [];
        const came = (part) => { parts.push(part); };
        opened.pieces({ came, failed: reject, ended: () => resolve(parts), progress: onProgress });
    });
    const sum = async (blob) => new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer())).join();
"""


@pytest.fixture(scope="module")
def site_url(delivery: Delivery) -> str:
    return delivery.url


def evaluate(page: Page, site_url: str, source: str, before: str = "") -> Any:
    page.goto(site_url + "e2e/blank.html")
    return page.evaluate("async () => {" + before + DOWNLOADS_ARE_UP + OPEN + source + "}")


def test_into__file_of_several_parts__right_bytes_and_what_is_known(
    page: Page, site_url: str, served: dict[str, Served]
) -> None:
    served["/m/data"] = Served(BYTES)
    got = evaluate(
        page,
        site_url,
        """const opened = await open('/m/data');
        const { parts, agrees } = await brought(opened);
        const here = await (await fetch('/m/data')).blob();
        const same = await sum(new Blob(parts)) === await sum(here);
        return [opened.size, opened.isExact, opened.tag, agrees, parts.length, same];""",
    )
    assert got == [len(BYTES), True, '"one"', True, 3, True]


def test_pieces__file__come_in_order_and_progress_ends_with_all(
    page: Page, site_url: str, served: dict[str, Served]
) -> None:
    served["/m/data"] = Served(BYTES)
    got = evaluate(
        page,
        site_url,
        """const opened = await open('/m/data'), seen = [];
        const parts = await inPieces(opened, (loaded, total) => seen.push([loaded, total]));
        const ordered = seen.every(([n], i) => !i || n > seen[i - 1][0]);
        const here = await (await fetch('/m/data')).blob();
        const same = await sum(new Blob(parts)) === await sum(here);
        return [parts.length > 1, seen.at(-1).join(), ordered, same];""",
    )
    assert got == [True, f"{len(BYTES)},{len(BYTES)}", True, True]


@pytest.mark.parametrize(
    ("file", "name", "text"),
    [
        (None, "NoSuchFile", "HTTP status 404"),
        (Served(BYTES, breaks=[9 << 20], etag=None), "Fail", "neither ETag nor Last-Modified"),
    ],
)
def test_failure__of_the_server__keeps_its_name(
    page: Page, site_url: str, served: dict[str, Served], file: Served | None, name: str, text: str
) -> None:
    if file:
        served["/m/data"] = file
    got = evaluate(
        page,
        site_url,
        """const failed = (error) => [error.name, error.message];
        const opened = await open('/m/data').catch((error) => ({ error }));
        return failed(opened.error ?? (await brought(opened)).error);""",
    )
    assert got[0] == name and text in got[1]


def test_abort__while_it_comes__ends_it_and_the_connection(
    page: Page, site_url: str, served: dict[str, Served]
) -> None:
    file = served["/m/data"] = Served(BYTES, gate=9 << 20)
    got = evaluate(
        page,
        site_url,
        """const opened = await open('/m/data');
        const { error } = await brought(opened, () => controller.abort());
        const later = await open('/m/data').catch((reason) => reason);
        return [error.name, later.name];""",
    )
    assert got == ["AbortError", "AbortError"]
    assert file.left.wait(30)
    assert len(file.asked) == 1


WITHOUT_WORKERS = {
    "no workers": "globalThis.Worker = class { constructor() { throw new DOMException('no', 'SecurityError'); } };",
    "no script": """globalThis.Worker = class extends Worker {
        constructor(url, options) { super(String(url).replace('downloader', 'nothing'), options); } };""",
}


@pytest.mark.parametrize("why", WITHOUT_WORKERS)
def test_open__no_worker__downloads_in_this_thread(
    page: Page, site_url: str, served: dict[str, Served], why: str
) -> None:
    served["/m/data"] = Served(BYTES)
    page.goto(site_url + "e2e/blank.html")
    got = page.evaluate(
        "async () => {"
        + WITHOUT_WORKERS[why]
        + """
        const { downloads } = await import('/src/web/loading/downloads.js');
        const { makeDownloader } = await import('/src/web/api/port.js');
        downloads.start(new Promise(() => {}), (port) => makeDownloader(port, (message) => downloads.failed(message)));
        const opened = await downloads.open('/m/data', false, new AbortController().signal);
        const parts = [], came = (part) => { parts.push(part); };
        await new Promise((ended, failed) => { opened.pieces({ came, ended, failed }); });
        return [opened.isElsewhere, new Blob(parts).size];
        }"""
    )
    assert got == [False, len(BYTES)]


def test_worker__that_breaks__fails_what_it_brings_and_is_not_used_again(
    page: Page, site_url: str, served: dict[str, Served]
) -> None:
    file = served["/m/data"] = Served(BYTES, gate=9 << 20)
    got = evaluate(
        page,
        site_url,
        """const errors = [];
        addEventListener('error', ({ message }) => errors.push(message));
        const opened = await open('/m/data');
        const done = brought(opened);
        thread.dispatchEvent(new ErrorEvent('error', { message: 'broken', cancelable: true }));
        const { error } = await done;
        const other = await open('/m/data');
        return [error.name, error.message, other.isElsewhere, errors];""",
        before="""let thread;
        globalThis.Worker = class extends Worker { constructor(...given) { super(...given); thread = this; } };""",
    )
    assert got == ["Fail", "downloads have ended (broken): create the session again", False, []]
    file.opened.set()


PAGE_MAKES = """
    globalThis.made = [];
    globalThis.Worker = class extends Worker {
        constructor(url, options) {
            super(String(url).replace('downloader', NAMED), options);
            made.push(String(url).split('/').at(-1));
        }
    };
    const { InferenceSession, Tensor, preload } = await import('/src/web/pyruntime.js');
    await preload();
    for (let tries = 0; !made.includes('downloader.js') && tries < 500; tries++) {
        await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
    const session = await InferenceSession.create('/m/model.onnx');
    const { y } = await session.run({ x: new Tensor(Float32Array.from(X), [1, X.length]) });
    await session.release();
    return [made, [...y.data]];
"""


@pytest.mark.parametrize("script", ["downloader", "nothing", "../dom"])  # the last one never says that it is up
def test_python_in_a_worker__page_makes_its_threads_and_it_does_without_those_that_fail(
    page: Page, site_url: str, served: dict[str, Served], script: str
) -> None:
    served["/m/model.onnx"] = Served(model(2))
    page.goto(site_url + "e2e/blank.html")
    source = PAGE_MAKES.replace("NAMED", f"'{script}'")
    made, y = page.evaluate("async (X) => {" + source + "}", ROW)
    assert made == ["worker.js", "downloader.js"]
    np.testing.assert_array_equal(np.float32(y), expected(2))


FETCHED = "() => performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/m/model.onnx')).length"


def test_create__python_in_a_worker__model_passes_it_by(script: Script, served: dict[str, Served]) -> None:
    file = served["/m/model.onnx"] = Served(model(5))
    script.preload()
    np.testing.assert_array_equal(np.float32(loaded(script, "/m/model.onnx")), expected(5))
    assert script.worker.evaluate(FETCHED) == 0 and file.asked == [""]


@pytest.mark.parametrize(
    ("python", "script", "elsewhere"), [("starts", "downloader", True), ("is up", "../dom", False)]
)
def test_open__before_the_worker_is_up__waits_for_it_no_longer_than_for_python(
    page: Page, site_url: str, served: dict[str, Served], python: str, script: str, elsewhere: bool
) -> None:
    served["/m/data"] = Served(BYTES)
    page.goto(site_url + "e2e/blank.html")
    got = page.evaluate(
        """async ([python, script]) => {
        globalThis.Worker = class extends Worker {
            constructor(url, options) { super(String(url).replace('downloader', script), options); }
        };
        const { downloads } = await import('/src/web/loading/downloads.js');
        const { makeDownloader } = await import('/src/web/api/port.js');
        const up = python === 'starts' ? new Promise(() => {}) : Promise.resolve();
        downloads.start(up, (port) => makeDownloader(port, () => {}));
        const opened = await downloads.open('/m/data', false, new AbortController().signal);
        return [opened.isElsewhere, downloads.resources.filter((url) => url.endsWith('/m/data')).length];
        }""",
        [python, script],
    )
    assert got == [elsewhere, int(elsewhere)]
