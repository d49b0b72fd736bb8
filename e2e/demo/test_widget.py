"""<pyruntime-model>: in a page under the strict policy, in another site's page, and on a server without a browser."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect

from e2e.harness.browser import Guard, guarded_page
from e2e.harness.page import DRAWN, has_sideways_scroll, small_model
from tests.session import models
from tools.devkit import fetch, pins
from tools.devkit.server import Server
from tools.devkit.shell import ROOT

ELEMENT = "id => document.getElementById(id)"


def picture_file() -> FilePayload:
    """A black bar on white, 60 by 40."""
    image = Image.new("RGB", (60, 40), "white")
    image.paste((0, 0, 0), (28, 4, 34, 36))
    data = io.BytesIO()
    image.save(data, "PNG")
    return {"name": "bar.png", "mimeType": "image/png", "buffer": data.getvalue()}


@pytest.fixture(scope="module")
def small_models(site_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    (folder / "double.onnx").write_bytes(models.double())
    (folder / "places.onnx").write_bytes(small_model())
    (folder / "broken.onnx").write_bytes(b"<!doctype html>")
    (folder / "labels.txt").write_text("first\nsecond\nthird\nfourth\n")
    site_server.mounts["/e2e/small/"] = folder
    return folder


@pytest.fixture(scope="module")
def shared_widgets(browser: Browser, site_url: str, small_models: Path) -> Iterator[tuple[Page, Guard]]:
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/widget.html")
        for name in ("digits", "picture", "numbers"):
            page.locator(f"#{name} [part=input]").wait_for()
        yield page, guard


@pytest.fixture
def widgets(shared_widgets: tuple[Page, Guard]) -> Iterator[Page]:
    """A page of several widgets, those that are to load at once loaded. Checked by the guard after each test."""
    page, guard = shared_widgets
    yield page
    guard.check()


def draw(page: Page, widget: Locator, digit: int) -> None:
    canvas = widget.locator(".pad canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    for stroke in DRAWN[digit]:
        for i, (x, y) in enumerate(stroke):
            page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=1 if i == 0 else 3)
            if i == 0:
                page.mouse.down()
        page.mouse.up()


def seen(page: Page, name: str, *types: str) -> list[dict[str, Any]]:
    events = page.evaluate("id => seen.filter((event) => event.id === id)", name)
    return [event for event in events if not types or event["type"] in types]


def test_widgets__several_of_a_page__share_one_worker(widgets: Page) -> None:
    scripts = [worker.url.split("/")[-1] for worker in widgets.workers]
    assert [name for name in scripts if name != "downloader.js"] == ["worker.js"] and len(scripts) <= 2


@pytest.mark.parametrize("digit", [2, 7])
def test_draw__digit__is_recognized(widgets: Page, digit: int) -> None:
    digits = widgets.locator("#digits")
    draw(widgets, digits, digit)
    expect(digits.locator(".best .name")).to_have_text(str(digit))
    expect(digits.locator("[role=status]")).to_contain_text(f"{digit}, ")
    assert digits.locator("[part=bar]").count() == 10
    digits.locator("[part=clear]").click()
    expect(digits.locator("[part=bar]")).to_have_count(0)
    result = seen(widgets, "digits", "result")[-1]
    assert result["outputs"] == ["probabilities"]
    assert result["ms"] > 0


def test_run__that_reports_progress__has_a_bar_until_its_result(widgets: Page) -> None:
    digits = widgets.locator("#digits")
    widgets.evaluate(
        """async () => {
        const element = document.getElementById('digits');
        const session = await element.load();
        session.run = (feeds, options) => {
          options.onProgress({ phase: 'run', status: 'progress', loaded: 1, total: 4 });
          return new Promise((resolve) => {
            globalThis.goOn = () => {
              delete session.run;
              resolve(session.run(feeds, options));
            };
          });
        };
        globalThis.running = element.run({ image: new Float32Array(256) });
        }"""
    )
    bar = digits.get_by_role("progressbar", name="Running the model")
    expect(bar).to_have_attribute("aria-valuenow", "25")
    widgets.evaluate("async () => { goOn(); await running; }")
    expect(bar).to_have_count(0)
    expect(digits.locator(".best")).to_have_count(1)


def test_draw__with_the_keyboard__is_recognized_and_cleared(widgets: Page) -> None:
    digits = widgets.locator("#digits")
    digits.locator(".pad canvas").focus()
    expect(digits.locator(".pen")).to_be_hidden()
    widgets.keyboard.press("Space")
    for _ in range(14):
        widgets.keyboard.press("ArrowDown")
    expect(digits.locator(".pen.down")).to_be_visible()
    widgets.keyboard.press("Space")
    expect(digits.locator(".best .name")).to_have_text("1")
    widgets.keyboard.press("Delete")
    expect(digits.locator("[part=bar]")).to_have_count(0)


def test_image__chosen_file__is_cut_to_the_model_and_shown(widgets: Page) -> None:
    picture = widgets.locator("#picture")
    picture.locator("input[type=file]").set_input_files(picture_file())
    expect(picture.locator(".best")).to_have_count(1)
    canvas = picture.locator(".drop canvas")
    assert canvas.evaluate("({ width, height }) => [width, height]") == [16, 16]
    expect(picture.locator("[part=bar] .name")).to_have_text(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )


def test_image__file_that_is_none__says_so_and_another_one_works(widgets: Page) -> None:
    picture = widgets.locator("#picture")
    chooser = picture.locator("input[type=file]")
    chooser.set_input_files({"name": "no.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(picture.get_by_role("alert")).to_contain_text("no picture")
    assert "no picture" in seen(widgets, "picture", "error")[-1]["message"]
    chooser.set_input_files(picture_file())
    expect(picture.get_by_role("alert")).to_be_hidden()


def test_json__numbers__are_run_and_bad_ones_explained(widgets: Page) -> None:
    numbers = widgets.locator("#numbers")
    area = numbers.get_by_label("Input as JSON")
    assert area.input_value() == "[[0,0,0,0]]"
    area.fill("[[1, -2, 3, -4], [0, 0, 0.5, 0]]")
    numbers.get_by_role("button", name="Run", exact=True).click()
    expect(numbers.locator("[part=numbers]")).to_have_text("2, 0, 6, 0, 0, 0, 1, 0")
    area.fill("[[1, 2")
    area.press("Control+Enter")
    expect(numbers.get_by_role("alert")).to_be_visible()
    area.fill("[[1, 2]]")
    area.press("Control+Enter")
    expect(numbers.get_by_role("alert")).to_contain_text("'x'")
    area.fill('{"x": [4, 3, 2, 1]}')
    area.press("Control+Enter")
    expect(numbers.locator(".best .value")).to_have_text("8")
    expect(numbers.get_by_role("alert")).to_be_hidden()


def test_lazy__out_of_sight__loads_when_it_comes_into_view(widgets: Page) -> None:
    assert not widgets.evaluate("document.getElementById('lazy').loaded")
    assert seen(widgets, "lazy") == []
    widgets.locator("#lazy").scroll_into_view_if_needed()
    widgets.locator("#lazy .pad").wait_for()
    assert widgets.evaluate("document.getElementById('lazy').loaded")
    events = seen(widgets, "lazy", "progress")
    totals = [event["totalProgress"] for event in events]
    assert totals == sorted(totals)
    assert 0 <= totals[0] < totals[-1] <= 1
    assert len(seen(widgets, "lazy", "load")) == 1
    widgets.evaluate("scrollTo(0, 0)")


def test_poster__until_it_is_asked_for__loads_nothing(widgets: Page) -> None:
    posted = widgets.locator("#posted")
    expect(posted.locator("img")).to_be_visible()
    assert seen(widgets, "posted") == []
    outputs = widgets.evaluate("""async () => {
        const element = document.getElementById('posted');
        const { probabilities } = await element.run({ image: new Float32Array(256) });
        return [element.loaded, element.session.inputNames, probabilities.dims, probabilities.type];
    }""")
    assert outputs == [True, ["image"], [1, 10], "float32"]
    expect(posted.locator("[part=bar]")).to_have_count(10)
    expect(posted.locator("[part=poster]")).to_have_count(0)


def test_poster__pressed_by_keyboard__goes_on_with_the_controls(widgets: Page) -> None:
    widgets.evaluate("""() => {
        const element = document.createElement('pyruntime-model');
        Object.assign(element, { id: 'pressed', src: 'small/double.onnx', poster: '../web/ui/app/icon.svg' });
        document.querySelector('main').append(element);
    }""")
    pressed = widgets.locator("#pressed")
    pressed.get_by_role("button", name="Run the model").press("Enter")
    expect(pressed.locator("textarea")).to_be_focused()
    widgets.evaluate("document.getElementById('pressed').remove()")


def test_error__broken_model__is_said_and_tried_again(widgets: Page) -> None:
    widgets.evaluate("""() => {
        const element = document.createElement('pyruntime-model');
        Object.assign(element, { id: 'broken', src: 'small/broken.onnx', loading: 'eager', input: 'none' });
        globalThis.failures = [];
        element.addEventListener('error', ({ detail }) => globalThis.failures.push(detail.error.name));
        document.querySelector('main').append(element);
    }""")
    broken = widgets.locator("#broken")
    expect(broken.get_by_role("alert")).to_be_visible()
    broken.get_by_role("button", name="Try again").click()
    broken.get_by_role("button", name="Try again").wait_for()
    assert widgets.evaluate("failures") == ["InvalidProtobuf", "InvalidProtobuf"]
    widgets.evaluate("document.getElementById('broken').src = 'small/double.onnx'")
    outputs = widgets.evaluate(
        "document.getElementById('broken').run({ x: [[1, 2, 3, 4]] }).then(({ y }) => [...y.data])"
    )
    assert outputs == [2, 4, 6, 8]
    expect(broken.get_by_role("alert")).to_be_hidden()
    widgets.evaluate("document.getElementById('broken').remove()")


def test_labels__of_a_file__name_the_bars(widgets: Page) -> None:
    widgets.evaluate("""async () => {
        const element = document.createElement('pyruntime-model');
        Object.assign(element, { id: 'labelled', src: 'small/double.onnx', labels: 'small/labels.txt', input: 'none' });
        document.querySelector('main').append(element);
        await element.run({ x: [[1, 2, 3, 2]] });
    }""")
    expect(widgets.locator("#labelled .best .name")).to_have_text("third")
    widgets.evaluate("document.getElementById('labelled').remove()")


def test_input__that_does_not_fit_the_model__says_what_to_use(widgets: Page) -> None:
    digits = widgets.locator("#digits")
    widgets.evaluate("document.getElementById('digits').input = 'voice'")
    expect(digits.get_by_role("alert")).to_contain_text("draw, image, json, none")
    widgets.evaluate("document.getElementById('digits').input = 'draw'")
    expect(digits.locator(".pad")).to_be_visible()
    expect(digits.get_by_role("alert")).to_be_hidden()


def test_removed__element__gives_its_session_back(widgets: Page) -> None:
    outcome = widgets.evaluate("""async () => {
        const element = document.createElement('pyruntime-model');
        Object.assign(element, { src: 'small/double.onnx', loading: 'eager', input: 'none' });
        document.body.append(element);
        const session = await element.load();
        document.querySelector('main').append(element); // moved: it stays loaded
        await new Promise((resolve) => setTimeout(resolve));
        const moved = element.session === session;
        element.remove();
        await new Promise((resolve) => setTimeout(resolve));
        return [moved, element.loaded, await session.run({}).catch(({ message }) => message)];
    }""")
    assert outcome == [True, False, "the session is released"]


@pytest.mark.parametrize("width", [390, 1280])
def test_page_of_widgets__phone_and_desktop__has_no_sideways_scroll(widgets: Page, width: int) -> None:
    widgets.set_viewport_size({"width": width, "height": 844})
    assert not has_sideways_scroll(widgets)


def test_names__for_who_does_not_see__are_there(widgets: Page) -> None:
    widgets.get_by_role("group", name="Recognizes a digit that you draw").wait_for()
    canvas = widgets.get_by_role("application", name="Drawing area").first
    assert canvas.get_attribute("tabindex") == "0"
    widgets.locator("#picture").get_by_label("Choose").wait_for(state="attached")


AXE = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ['violations'] });
    return violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .flatMap(({ help, nodes }) => nodes.map(({ target, failureSummary }) => (
            `${help}: ${JSON.stringify(target)}: ${failureSummary}`)));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe__widgets_in_every_state__finds_nothing_serious(widgets: Page, scheme: Literal["light", "dark"]) -> None:
    widgets.evaluate("""() => {
        const element = document.createElement('pyruntime-model');
        Object.assign(element, { id: 'failing', src: 'small/broken.onnx', loading: 'eager', input: 'none' });
        const coloured = document.createElement('pyruntime-model');
        Object.assign(coloured, { id: 'coloured', src: 'small/double.onnx', poster: '../web/ui/app/icon.svg' });
        coloured.style.setProperty('--pyruntime-accent', '#b03060');
        document.querySelector('main').append(element, coloured);
    }""")
    widgets.locator("#failing").get_by_role("button", name="Try again").wait_for()
    draw(widgets, widgets.locator("#digits"), 2)
    expect(widgets.locator("#digits .best")).to_have_count(1)
    widgets.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
    widgets.emulate_media(color_scheme=scheme)
    for width in (390, 1280):
        widgets.set_viewport_size({"width": width, "height": 844})
        found = widgets.evaluate(AXE)
        assert not found, f"{width} wide:\n" + "\n".join(found)
    widgets.evaluate("document.body.append(Object.assign(document.createElement('button'), { id: 'nameless' }))")
    assert any("nameless" in line for line in widgets.evaluate(AXE)), "axe finds what is wrong"
    widgets.evaluate("for (const id of ['nameless', 'failing', 'coloured']) document.getElementById(id).remove()")


BARE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Another page</title>
<script type="module" src="{site}web/widget.js"></script>
<pyruntime-model src="{site}models/digits.onnx" input="draw" loading="eager"></pyruntime-model>
</html>"""


@contextmanager
def bare_page(browser: Browser, site: Path, folder: Path, workers: str, allowed: str) -> Iterator[tuple[Page, str]]:
    """A page with the widget, of another origin than the site, and its address.

    Args:
        workers: what its policy says of workers, with {site}. allowed: messages of the browser.
    """
    with Server({"/": site}, shared=True) as home:
        policy = (
            f"default-src 'none'; script-src {home.url} 'wasm-unsafe-eval'; connect-src {home.url}; style-src 'none'"
            + workers.format(site=home.url)
        )
        (folder / "index.html").write_text(BARE.format(site=home.url))
        with (
            Server({"/": folder}, policy=policy) as other,
            guarded_page(browser, "http://127.0.0.1:") as (page, guard),
        ):
            guard.allow(allowed)
            page.goto(other.url)
            yield page, other.url


def test_other_origin__bare_page_with_one_script_tag__has_a_worker(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    with bare_page(browser, site, tmp_path, "; worker-src blob: {site}", "favicon|404") as (page, url):
        widget = page.locator("pyruntime-model")
        widget.locator(".pad").wait_for()
        draw(page, widget, 2)
        expect(widget.locator(".best .name")).to_have_text("2")
        assert [worker.url.startswith(f"blob:{url}") for worker in page.workers] == [True, True]


def test_other_origin__policy_without_blob_workers__error_names_what_to_allow(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    with bare_page(browser, site, tmp_path, "", "favicon|404|Content Security Policy") as (page, _):
        message = page.locator("pyruntime-model").locator("[part=message]")
        expect(message).to_contain_text("worker-src, with blob: and pyruntime's origin")
        expect(message).to_contain_text("env.worker = false")


def test_other_origin__with_a_worker_script_of_its_own__has_a_worker(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    with Server({"/": site}, shared=True) as home:
        policy = (
            f"default-src 'none'; script-src 'self' {home.url} 'wasm-unsafe-eval'; connect-src {home.url}; "
            f"worker-src 'self' {home.url}"
        )
        (tmp_path / "worker.js").write_text(f"import '{home.url}web/worker.js';\n")
        (tmp_path / "page.js").write_text(
            f"import {{ env }} from '{home.url}web/pyruntime.js';\nenv.workerUrl = '/worker.js';\n"
        )
        html = BARE.format(site=home.url).replace("<script", '<script type="module" src="/page.js"></script>\n<script')
        (tmp_path / "index.html").write_text(html)
        with (
            Server({"/": tmp_path}, policy=policy) as other,
            guarded_page(browser, "http://127.0.0.1:") as (page, guard),
        ):
            guard.allow("favicon|404")
            page.goto(other.url)
            page.locator("pyruntime-model .pad").wait_for()
            assert [worker.url for worker in page.workers] == [f"{other.url}worker.js"]


LATE = """
import {{ env }} from '{site}web/pyruntime.js';
import '{site}web/widget.js';
env.worker = false;
"""


def test_settings__in_the_module_that_imports_the_widget__hold_for_elements_of_the_page(
    browser: Browser, site: Path, tmp_path: Path
) -> None:
    (tmp_path / "page.js").write_text(LATE.format(site="/"))
    (tmp_path / "index.html").write_text(BARE.format(site="/").replace('src="/web/widget.js"', 'src="/own/page.js"'))
    with (
        Server({"/": site, "/own/": tmp_path}) as server,
        guarded_page(browser, server.url) as (page, guard),
    ):
        guard.allow("favicon|404")
        page.goto(f"{server.url}own/index.html")
        page.locator("pyruntime-model .pad").wait_for()
        assert page.workers == []


@pytest.mark.parametrize("module", ["widget.js", "pyruntime.js", "page.js"])
def test_import__on_a_server__does_nothing(module: str) -> None:
    script = f"const before = Object.keys(globalThis).length; await import('./{module}'); " + (
        "console.log(Object.keys(globalThis).length - before); setTimeout(() => process.exit(3), 2000).unref()"
    )
    done = subprocess.run(
        ["node", "--no-warnings", "--input-type=module", "--eval", script],
        cwd=ROOT / "web",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
