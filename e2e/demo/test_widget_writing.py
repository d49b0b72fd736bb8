"""<pyruntime-model input="text"> and input="chat": text that flows, stops, is read out once, takes a page's colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from e2e.demo.test_page_access import AXE
from e2e.demo.test_page_write import talking_folder, write_folder
from e2e.harness.browser import Guard, guarded_page
from tools.devkit import fetch, pins
from tools.devkit.server import Server

PUT = """async ({ id, ...attributes }) => {
    await import('/web/widget.js');
    const element = document.createElement('pyruntime-model');
    element.id = id;
    element.generateOptions = { seed: 1, maxNewTokens: 12 };
    globalThis.events = [];
    for (const type of ['piece', 'text', 'error']) {
        element.addEventListener(type, ({ detail }) => (
            globalThis.events.push({ type, ...detail, error: String(detail.error) })));
    }
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    document.body.append(element);
}"""


@pytest.fixture(scope="module")
def shared_widget_page(
    browser: Browser, site_url: str, site_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Page, Guard]]:
    folder = tmp_path_factory.mktemp("talking")
    site_server.mounts["/e2e/talking-widget/"] = write_folder(folder, talking_folder())
    with guarded_page(browser, site_url) as (page, guard):
        page.goto(site_url + "e2e/blank.html")
        yield page, guard


@pytest.fixture
def widget_page(shared_widget_page: tuple[Page, Guard]) -> Iterator[Page]:
    page, guard = shared_widget_page
    yield page
    page.evaluate("for (const element of document.querySelectorAll('pyruntime-model')) element.remove()")
    guard.check()


def put(page: Page, way: str, src: str = "/models/austen", **attributes: str) -> Locator:
    """A loaded widget."""
    page.evaluate(PUT, {"id": way, "input": way, "src": src, "loading": "eager", **attributes})
    widget = page.locator(f"#{way}")
    widget.locator("textarea").wait_for()
    return widget


def test_text__prompt_continued__flows_is_read_out_once_and_told(widget_page: Page) -> None:
    widget = put(widget_page, "text", prompt="She was")
    area = widget.get_by_label("Begin a text")
    expect(area).to_have_value("She was")
    area.press("Enter")
    expect(widget.locator("[part=facts]")).to_contain_text("12 tokens")
    expect(widget.get_by_role("button", name="Write")).to_be_visible()
    events = widget_page.evaluate("events")
    pieces = [event["piece"] for event in events if event["type"] == "piece"]
    (told,) = [event for event in events if event["type"] == "text"]
    assert told["text"] == "".join(piece["text"] for piece in pieces)
    assert (len(pieces), told["tokens"], told["stopped"]) == (12, 12, False)
    expect(widget.locator("[part=text]")).to_have_text("She was" + told["text"])
    expect(widget.locator("[role=status]")).to_have_text(told["text"].strip())
    assert widget.locator("[part=text]").get_attribute("aria-live") is None


def test_chat__longer_than_the_context__goes_on(
    widget_page: Page, site_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = write_folder(tmp_path_factory.mktemp("short"), talking_folder(context=48))
    site_server.mounts["/e2e/short-widget/"] = folder
    widget = put(widget_page, "chat", src="/e2e/short-widget/")
    widget_page.evaluate("document.querySelector('#chat').generateOptions = { maxNewTokens: 40 }")
    for turn in range(1, 4):
        widget.get_by_label("Your message").fill("Who is Emma?")
        widget.get_by_role("button", name="Send").click()
        expect(widget.locator("[part=facts]")).to_contain_text("40 tokens")
        expect(widget.get_by_role("button", name="Send")).to_be_visible()
        expect(widget.locator("[part~=turn]")).to_have_count(2 * turn)
    events = widget_page.evaluate("events")
    assert [event["tokens"] for event in events if event["type"] == "text"] == [40] * 3
    assert not [event for event in events if event["type"] == "error"]


def test_text__stopped__keeps_what_is_there(widget_page: Page) -> None:
    widget = put(widget_page, "text", prompt="The next morning")
    widget_page.evaluate("document.getElementById('text').generateOptions = { seed: 2, maxNewTokens: 900 }")
    widget.get_by_role("button", name="Write").click()
    expect(widget.locator("[part=facts]")).to_contain_text(" a second")
    widget.get_by_role("button", name="Stop").click()
    expect(widget.locator("[role=status]")).to_contain_text("Stopped.")
    expect(widget.get_by_role("button", name="Write")).to_be_focused()
    told = widget_page.evaluate("events.find(({ type }) => type === 'text')")
    assert told["stopped"]
    assert 0 < told["tokens"] < 900


def test_chat__turns__are_kept_and_a_model_without_template_says_so(
    widget_page: Page, shared_widget_page: tuple[Page, Guard]
) -> None:
    shared_widget_page[1].allow("404")  # the files that may hold a template
    widget = put(widget_page, "chat", "/e2e/talking-widget/")
    for count, message in ((2, "Who is Emma?"), (4, "And Harriet?")):
        widget.get_by_label("Your message").fill(message)
        widget.get_by_role("button", name="Send").click()
        expect(widget.locator("[part~=turn]")).to_have_count(count)
        expect(widget.get_by_role("button", name="Send")).to_be_visible()
        expect(widget.locator("[part~=assistant] p").last).not_to_be_empty()
    widget_page.evaluate("document.getElementById('chat').remove()")
    plain = put(widget_page, "chat")
    plain.get_by_label("Your message").fill("Good morning")
    plain.get_by_label("Your message").press("Enter")
    expect(plain.get_by_role("alert")).to_contain_text("no chat template")


def test_dtype__changed__loads_that_file_and_releases_the_other(
    widget_page: Page, site_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = talking_folder()
    (graph,) = (path for path in files if path.endswith(".onnx"))
    both = {**files, "onnx/model_int8.onnx": files[graph], "onnx/model_uint8.onnx": files[graph]}
    site_server.mounts["/e2e/dtype-widget/"] = write_folder(tmp_path_factory.mktemp("dtypes"), both)
    put(widget_page, "text", src="/e2e/dtype-widget/", dtype="int8")
    found = widget_page.evaluate("""async () => {
        const element = document.getElementById('text');
        const first = element.generator;
        const files = new Set();
        element.addEventListener('progress', ({ detail: { file } }) => {
            if (file?.endsWith('.onnx')) files.add(file);
        });
        const loaded = new Promise((resolve) => { element.addEventListener('load', resolve, { once: true }); });
        element.dtype = 'uint8';
        await loaded;
        const message = await first.generate('x').next().catch(({ message }) => message);
        const second = element.generator;
        element.setAttribute('dtype', 'uint8');
        return { files: [...files], message, other: first !== second, kept: element.generator === second };
    }""")
    assert found == {
        "files": ["onnx/model_uint8.onnx"],
        "message": "the generator is released",
        "other": True,
        "kept": True,
    }


def test_dtype__of_a_model_that_writes_nothing__leaves_it_alone(widget_page: Page) -> None:
    """It says nothing about a single file."""
    kept = widget_page.evaluate("""async () => {
        await customElements.whenDefined('pyruntime-model');
        const element = document.createElement('pyruntime-model');
        element.src = '/models/digits.onnx';
        document.body.append(element);
        const session = await element.load();
        element.dtype = 'q4';
        return element.session === session;
    }""")
    assert kept


def test_removed__element__releases_its_generator(widget_page: Page) -> None:
    widget = put(widget_page, "text")
    released = widget_page.evaluate("""async () => {
        const element = document.getElementById('text');
        const { generator } = element;
        element.remove();
        await new Promise((resolve) => setTimeout(resolve));
        const message = await generator.generate('x').next().catch(({ message }) => message);
        return [element.generator, message];
    }""")
    assert released == [None, "the generator is released"]
    expect(widget).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe__text_and_chat__nothing_serious(widget_page: Page, scheme: str) -> None:
    text, chat = put(widget_page, "text", prompt="She was"), put(widget_page, "chat", "/e2e/talking-widget/")
    widget_page.evaluate("document.body.append(Object.assign(document.createElement('main'), { id: 'around' }))")
    widget_page.evaluate("for (const e of document.querySelectorAll('pyruntime-model')) around.append(e)")
    for widget, word in ((text, "Write"), (chat, "Send")):
        widget.locator("textarea").wait_for()
        widget.locator("textarea").fill("She was")
        widget.get_by_role("button", name=word).click()
        expect(widget.locator("[part=facts]")).to_contain_text("tokens")
        expect(widget.get_by_role("button", name=word)).to_be_visible()
    widget_page.evaluate((fetch.npm_package(pins.AXE) / "axe.min.js").read_text() + "; undefined")
    widget_page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for width in (390, 1280):
        widget_page.set_viewport_size({"width": width, "height": 844})
        found = widget_page.evaluate(AXE)
        assert not found, f"{width} wide:\n" + "\n".join(found)
    widget_page.evaluate("around.remove()")
