"""How Python starts: from the memory snapshot, from nothing where that does not fit."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard
from playwright.sync_api import Browser, Page

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.python import BrowserPython
from tools.devkit.server import Server

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 26_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Safari/604.1"
MEMORY = "memory.bin"
"""What Python is restored from."""
RUN_DIGITS = """
async () => {
  const { InferenceSession, Tensor } = await import('/src/web/pyruntime.js');
  const session = await InferenceSession.create('/models/digits.onnx');
  const { probabilities } = await session.run({ image: new Tensor('float32', new Float32Array(256), [1, 1, 16, 16]) });
  await session.release();
  return probabilities.data.reduce((sum, value) => sum + value, 0);
}
"""


@pytest.fixture(scope="module")
def shared_restored(browser: Browser, site_url: str) -> Iterator[BrowserPython]:
    with guarded_page(browser, site_url) as (page, guard):
        yield BrowserPython(page, guard, site_url, snapshot=True)


@pytest.fixture
def restored(shared_restored: BrowserPython) -> Iterator[BrowserPython]:
    """Python from the snapshot."""
    yield shared_restored
    shared_restored.guard.check()


@pytest.fixture
def requested(page: Page) -> list[str]:
    """Names of the files that the page and its workers ask for."""
    names: list[str] = []
    page.context.on("request", lambda request: names.append(request.url.rsplit("/", 1)[1]))
    return names


def has_numpy_wheel(names: list[str]) -> bool:
    return any(name.startswith("numpy-") for name in names)


def messages_of(page: Page) -> list[str]:
    texts: list[str] = []
    page.context.on("console", lambda message: texts.append(message.text))
    return texts


def test_snapshot__session_on_a_page__python_comes_from_it(page: Page, site_url: str, requested: list[str]) -> None:
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert MEMORY in requested
    assert not has_numpy_wheel(requested)


def test_snapshot__restored__everything_is_imported(restored: BrowserPython) -> None:
    found = restored(
        """
        import sys
        names = "numpy", "pyruntime.bridge.requests", "pyruntime.ops.convolution.conv", "pyruntime.compiler.build"
        [name for name in names if name not in sys.modules]
        """
    )
    assert found == []


def test_snapshot__numpy_of_placed_libraries__computes(restored: BrowserPython) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((7, 7))
    found = restored("import numpy as np\n[np.linalg.inv(x), np.sort(x, axis=None), np.exp(x) @ x]", x=x)
    for got, expected in zip(found, (np.linalg.inv(x), np.sort(x, axis=None), np.exp(x) @ x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_snapshot__numpy_of_libraries_loaded_later__computes(restored: BrowserPython) -> None:
    x = np.arange(12.0)
    fft, random = restored(
        "import numpy as np\n[np.abs(np.fft.fft(x)), np.random.default_rng(3).standard_normal(4)]", x=x
    )
    np.testing.assert_allclose(fft, np.abs(np.fft.fft(x)), rtol=1e-10)
    np.testing.assert_allclose(random, np.random.default_rng(3).standard_normal(4), rtol=1e-12)


def test_snapshot__waiting__works_with_and_without_await(restored: BrowserPython) -> None:
    found = restored(
        """
        import asyncio
        from pyodide.ffi import run_sync
        async def later(value):
            await asyncio.sleep(0.01)  # is what is tested
            return value
        [await later(1), run_sync(later(2)), await asyncio.gather(later(3), later(4))]
        """
    )
    assert found == [1, 2, [3, 4]]


def test_snapshot__files__are_there(restored: BrowserPython) -> None:
    found = restored(
        """
        import importlib.metadata, importlib.resources, traceback
        import pyruntime
        pyruntime.set_default_logger_severity(0)  # tracebacks with the lines of pyruntime itself
        try:
            pyruntime.InferenceSession(b"")
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
        finally:
            pyruntime.set_default_logger_severity(2)
        shaders = importlib.resources.files("pyruntime") / "shaders"
        {"version": importlib.metadata.version("pyruntime-webgpu"), "trace": trace,
         "shaders": sum(path.name.endswith(".wgsl") for path in shaders.rglob("*"))}
        """
    )
    assert found["version"]
    assert found["shaders"] > 10
    assert "raise NoModel" in found["trace"]  # a line of the source


def test_snapshot__two_starts__draw_different_numbers(browser: Browser, site_url: str, restored: BrowserPython) -> None:
    draw = "import random, numpy as np\n[random.random(), float(np.random.random())]"
    with guarded_page(browser, site_url) as (page, guard):
        other = BrowserPython(page, guard, site_url, snapshot=True)(draw)
    for mine, others in zip(restored(draw), other, strict=True):
        assert mine != others


def broken_memory(site: Path) -> bytes:
    """As long as the snapshot, but of zeros."""
    size = zstandard.frame_content_size((site / "snapshot" / MEMORY).read_bytes())
    return zstandard.ZstdCompressor(level=1).compress(bytes(size))


def cut_memory(site: Path) -> bytes:
    return (site / "snapshot" / MEMORY).read_bytes()[:-1000]


@pytest.mark.parametrize("damage", [broken_memory, cut_memory])
def test_snapshot__damaged__python_starts_from_nothing(
    page: Page,
    site: Path,
    site_server: Server,
    requested: list[str],
    damage: Callable[[Path], bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    damaged = tmp_path / MEMORY
    damaged.write_bytes(damage(site))
    monkeypatch.setitem(site_server.mounts, f"/src/snapshot/{MEMORY}", damaged)
    messages = messages_of(page)
    page.goto(site_server.url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert has_numpy_wheel(requested)
    assert any("starts without its snapshot" in text for text in messages)


def test_snapshot__other_memory_before_python__python_starts_from_nothing(
    page: Page, site: Path, site_url: str, requested: list[str]
) -> None:
    manifest = json.loads((site / "snapshot" / "manifest.json").read_text())
    manifest["fresh"] ^= 1
    page.context.route("**/manifest.json", lambda route: route.fulfill(json=manifest))
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert has_numpy_wheel(requested)


def test_snapshot__function_table_of_another_length__python_starts_from_nothing(
    page: Page, site: Path, site_url: str, requested: list[str]
) -> None:
    manifest = json.loads((site / "snapshot" / "manifest.json").read_text())
    manifest["table"] += 1
    page.context.route("**/manifest.json", lambda route: route.fulfill(json=manifest))
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert has_numpy_wheel(requested)


def test_snapshot__more_memory_in_use_than_was__python_starts_from_nothing(
    page: Page, site: Path, site_url: str, requested: list[str]
) -> None:
    manifest = json.loads((site / "snapshot" / "manifest.json").read_text())
    manifest["low"] = 1 << 20
    page.context.route("**/manifest.json", lambda route: route.fulfill(json=manifest))
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert has_numpy_wheel(requested)


def test_snapshot__build_without_one__python_starts_from_nothing_without_a_word(
    page: Page, site_url: str, requested: list[str]
) -> None:
    page.context.route("**/manifest.json", lambda route: route.fulfill(body="null"))
    page.context.route(site_url + "snapshot/memory.*", lambda route: route.fulfill(body=b""))
    messages = messages_of(page)
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert has_numpy_wheel(requested)
    assert messages == []


def test_snapshot__device_that_pyodide_treats_apart__is_not_fetched(browser: Browser, site_url: str) -> None:
    context = browser.new_context(user_agent=IPHONE)
    guard = Guard(site_url)
    guard.watch(context)
    names: list[str] = []
    context.on("request", lambda request: names.append(request.url.rsplit("/", 1)[1]))
    page = context.new_page()
    page.goto(site_url + "e2e/blank.html")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert MEMORY not in names
    context.close()
    guard.check()


def test_env__snapshot_switched_off__python_starts_from_nothing(
    page: Page, site_url: str, requested: list[str]
) -> None:
    page.goto(site_url + "e2e/blank.html")
    page.evaluate("import('/src/web/pyruntime.js').then(({ env }) => { env.snapshotUrl = null; })")
    assert page.evaluate(RUN_DIGITS) == pytest.approx(1, abs=1e-4)
    assert MEMORY not in requested


def test_wheel__record__lists_every_file_with_its_digest(site: Path) -> None:
    with zipfile.ZipFile(next(site.glob("pyruntime_webgpu-*.whl"))) as wheel:
        names = wheel.namelist()
        record = next(name for name in names if name.endswith(".dist-info/RECORD"))
        rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
        assert sorted(row[0] for row in rows) == sorted(names)
        for name, digest, size in rows:
            if name != record:
                data = wheel.read(name)
                expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={expected}", len(data)), name


def test_snapshot__files_of_packages__are_fetched_when_they_are_read(
    page: Page, site_url: str, requested: list[str]
) -> None:
    page.goto(site_url + "e2e/blank.html")
    page.evaluate(RUN_DIGITS)
    assert not {"packages.bin", "python_stdlib.zip"} & set(requested)


def test_snapshot__rare_modules__are_imported_from_the_files(restored: BrowserPython) -> None:
    found = restored(
        """
        import colorsys, inspect
        import numpy as np
        import pyruntime.ops.ml.scaler
        [inspect.getsource(pyruntime.ops.ml.scaler).count("class Scaler"), colorsys.rgb_to_hsv(1, 0, 0)[2],
         inspect.getsource(np.linalg.inv).count("def inv")]
        """
    )
    assert found == [1, 1, 1]


def test_snapshot__files_missing__reading_them_is_an_error_and_asks_once(
    page: Page, guard: Guard, site_url: str, requested: list[str]
) -> None:
    guard.allow("404|packages.bin")
    page.context.route("**/packages.bin", lambda route: route.fulfill(status=404))
    page.goto(site_url + "e2e/python.html?snapshot")
    answer = page.evaluate("source => runPython(source, '{}')", "open(__import__('pyruntime').__file__).read()")
    assert "I/O error" in str(answer)
    assert requested.count("packages.bin") == 1
